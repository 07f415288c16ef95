"""The decoders' ceiling, measured for a second on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamd.bench.decode import Share, measure
from streamd.errors import StreamdError


@pytest.fixture
def share(small_clip) -> Share:
    return Share(str(small_clip), streams=2, threads=2, device="cpu", low_latency=False, seconds=0.5)


async def test_each_process_decodes_its_streams_over_and_over(share):
    result = await measure(share, processes=2)
    assert (result.streams, result.processes, result.seconds) == (4, 2, 0.5)
    assert result.fps > 100  # the clip alone has 20 frames
    assert 0 < result.cpu_ms_per_frame < 50
    assert 0 < result.usage.cpu <= 1


async def test_a_clip_that_is_not_there_is_an_error(share, tmp_path, capfd):
    with pytest.raises(StreamdError, match="a decoding process ended early"):
        await measure(replace(share, clip=str(tmp_path / "absent.mp4")), processes=1)
    assert "absent.mp4" in capfd.readouterr().err


async def test_a_thread_without_its_device_ends_the_process(share, capfd):
    with pytest.raises(StreamdError, match="a decoding process ended early"):
        await measure(replace(share, device="cuda:99"), processes=1)
    words = capfd.readouterr().err
    assert "NVIDIA" in words or "CUDA" in words
