from collections.abc import Iterator

import pytest
from support.bench import Bench


@pytest.fixture(params=["cpu", pytest.param("nvdec", marks=pytest.mark.gpu)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The decoder under test: each test that takes it runs with every decoder, `nvdec` where there is an NVIDIA GPU."""
    with Bench(request.param) as made:
        yield made


@pytest.fixture
def cpu() -> Iterator[Bench]:
    """The CPU's decoder, to compare with."""
    with Bench("cpu") as made:
        yield made


@pytest.fixture
def nvdec() -> Iterator[Bench]:
    """The GPU's decoder; for tests marked `gpu`."""
    with Bench("nvdec") as made:
        yield made
