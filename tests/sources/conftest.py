from collections.abc import Iterator

import pytest
from support.http import HttpServer


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    """A running HTTP server without paths."""
    with HttpServer() as server:
        yield server
