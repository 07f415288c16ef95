"""NVDEC's own: its frames are the CPU's, bit by bit, and what it cannot take is said. What all decoders promise is in test_contract.py."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from support.bench import Bench, Shot
from support.clips import ClipCache, Marker, read_marker
from support.frames import joined, packets_of, plane
from support.require import media_files

from streamd.decoders import nvdec as module
from streamd.decoders.bitstream import is_skipped_leading
from streamd.decoders.nvdec import NvdecDecoder, sampling
from streamd.errors import DecodeError, NotVideo
from streamd.types import Packet, StreamInfo

CLIP = {"frames": 20, "gop": 10, "camera": 8}
MPEG_TOLERANCE = 10
"""MPEG-1 and MPEG-2 leave the inverse transform's rounding to the decoder, and the errors add up to the next key frame."""


@pytest.mark.parametrize(
    ("pixel_format", "expected"),
    [
        (None, ("420", 8)),
        ("yuv420p", ("420", 8)),
        ("yuvj420p", ("420", 8)),
        ("yuv420p10le", ("420", 10)),
        ("yuv422p", ("422", 8)),
        ("yuv422p10le", ("422", 10)),
        ("yuv444p12le", ("444", 12)),
        ("yuvj444p", ("444", 8)),
        ("nv12", ("420", 8)),
        ("p010le", ("420", 10)),
        ("gray", ("400", 8)),
        ("gray10le", ("400", 10)),
        ("gbrp", ("gbrp", 8)),
        ("rgb24", ("rgb24", 8)),
    ],
)
def test_the_pixel_format_tells_chroma_sampling_and_bits(pixel_format, expected):
    assert sampling(pixel_format) == expected


# --- pixels equal the CPU decoder's


def assert_equal(ours: list[Shot], theirs: list[Shot], *, tolerance: int = 0) -> None:
    """The same frames in the same order, with pixels that differ by `tolerance` of their levels at most."""
    assert [shot.token for shot in ours] == [shot.token for shot in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert [samples.shape for samples in our.planes] == [samples.shape for samples in their.planes]
        apart = [np.abs(mine.astype(int) - its.astype(int)).max() for mine, its in zip(our.planes, their.planes, strict=True)]
        assert max(apart) <= tolerance, f"frame {our.token}: Y, U and V differ by up to {apart}"
        for told in ("bit_depth", "matrix", "full_range", "rotation_deg"):
            assert getattr(our.frame, told) == getattr(their.frame, told)


STREAMS = [
    (".mp4", {"codec": "h264"}),
    (".mp4", {"codec": "h264", "b_frames": 2}),
    (".mp4", {"codec": "h264", "size": (1920, 1080), "frames": 4}),
    (".mp4", {"codec": "h264", "size": (318, 242)}),
    (".mp4", {"codec": "h264", "matrix": "bt709", "full_range": True}),
    (".mp4", {"codec": "hevc"}),
    (".mp4", {"codec": "hevc", "b_frames": 2}),
    (".mkv", {"codec": "hevc", "b_frames": 2, "pixel_format": "yuv420p10le"}),
    (".mkv", {"codec": "hevc", "size": (1920, 1080), "frames": 4, "pixel_format": "yuv420p10le"}),
    (".mkv", {"codec": "hevc", "size": (322, 242)}),
    (".mkv", {"codec": "hevc", "pixel_format": "yuv444p"}),
    (".mkv", {"codec": "hevc", "pixel_format": "yuv444p", "size": (321, 241)}),
    (".mkv", {"codec": "hevc", "pixel_format": "yuv420p12le"}),
    (".mkv", {"codec": "hevc", "pixel_format": "gray"}),
    (".webm", {"codec": "vp8"}),
    (".webm", {"codec": "vp9"}),
    (".webm", {"codec": "vp9", "size": (321, 241)}),
    (".ts", {"codec": "mpeg2video"}),
    (".ts", {"codec": "mpeg2video", "b_frames": 2}),
    (".ts", {"codec": "mpeg2video", "size": (321, 241)}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("suffix", "parameters"), STREAMS, ids=str)
def test_its_frames_are_those_of_the_cpu(nvdec: Bench, cpu: Bench, clip: ClipCache, suffix, parameters):
    info, packets = packets_of(clip(suffix, **CLIP | parameters))
    said = module.refusal(info.codec, info.pixel_format, info.width, info.height, 0)
    if said is not None:
        pytest.skip(said)
    tolerance = MPEG_TOLERANCE if info.codec == "mpeg2video" else 0
    assert_equal(nvdec.decoded(info, packets), cpu.decoded(info, packets), tolerance=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("sizes", list(itertools.permutations([(320, 240), (1280, 530), (1280, 532)], 2)), ids=str)
def test_its_frames_are_those_of_the_cpu_after_a_change_of_size(nvdec: Bench, cpu: Bench, clip: ClipCache, codec, sizes):
    (info, first), (_, second) = (packets_of(clip(".ts", codec=codec, frames=6, gop=6, size=size, b_frames=2)) for size in sizes)
    packets = joined(first, second, first)
    assert_equal(nvdec.decoded(info, packets), cpu.decoded(info, packets))


# --- its own stream, its own buffer


@pytest.mark.gpu
@pytest.mark.parametrize("low_latency", [True, False])
@pytest.mark.parametrize("b_frames", [0, 2])
def test_with_and_without_low_latency_it_gives_the_same_frames(nvdec: Bench, clip: ClipCache, low_latency, b_frames):
    info, packets = packets_of(clip(".mp4", b_frames=b_frames, **CLIP))
    stream = torch.cuda.Stream()
    decoder = NvdecDecoder(info, stream=stream, low_latency=low_latency)
    shots, with_own_packet = [], 0
    with torch.cuda.stream(stream):
        for packet in packets:
            given = [nvdec.shot(frame) for frame in decoder.decode(packet)]
            with_own_packet += [shot.token for shot in given] == [packet.token]
            shots += given
        shots += [nvdec.shot(frame) for frame in decoder.drain()]
    decoder.close()
    assert [shot.marker for shot in shots] == [Marker(8, number) for number in range(20)]
    if low_latency and not b_frames:
        assert with_own_packet == 20


@pytest.mark.gpu
def test_frames_read_on_its_stream_are_whole_however_busy_the_stream_is(nvdec: Bench, clip: ClipCache):
    """The next decode overwrites the frame's buffer, but only after the work that was queued on the stream before it."""
    clips = [packets_of(clip(".mp4", frames=20, gop=10, camera=camera)) for camera in (1, 2)]
    made = [nvdec.decoder(info) for info, _ in clips]
    copies: list[tuple[int, int, torch.Tensor]] = []
    busy = torch.rand(2048, 2048, device="cuda")
    assert nvdec.stream is not None
    nvdec.stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(nvdec.stream):
        for pair in zip(*(packets for _, packets in clips), strict=True):
            for camera, (decoder, packet) in enumerate(zip(made, pair, strict=True), 1):
                for frame in decoder.decode(packet):
                    for _ in range(5):
                        busy = (busy @ busy).clamp(0, 1)
                    copies.append((camera, frame.token, frame.y.clone()))
    nvdec.stream.synchronize()
    assert len(copies) == 40
    for camera, token, luma in copies:
        assert read_marker(plane(luma)) == Marker(camera, token)


@pytest.mark.gpu
def test_sessions_that_were_closed_give_their_memory_back(nvdec: Bench, clip: ClipCache):
    info, packets = packets_of(clip(".mp4", **CLIP | {"frames": 2}))

    def used_bytes() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    def open_and_close(times: int) -> None:
        for _ in range(times):
            decoder = nvdec.decoder(info)
            nvdec.fed(decoder, packets[0])
            decoder.close()

    open_and_close(3)
    before = used_bytes()
    open_and_close(20)
    assert used_bytes() - before < 64 * 1024 * 1024, "20 sessions, of 10 MB and more each"


# --- what it cannot take


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("codec", "pixel_format", "size", "reason"),
    [
        ("h264", "yuv420p10le", (320, 240), "this GPU's NVDEC does not take h264 with pixels of yuv420p10le"),
        ("h264", "yuv422p", (320, 240), "this GPU's NVDEC does not take h264 with pixels of yuv422p"),
        ("h264", "yuv420p", (64, 8), "64x8 is outside of what this GPU's NVDEC takes for h264"),
        ("h264", "yuv420p", (16, 64), "16x64 is outside of what this GPU's NVDEC takes for h264"),
        ("h264", "yuv420p", (4112, 64), "4112x64 is outside of what this GPU's NVDEC takes for h264"),
        ("av1", "yuv420p", (320, 240), "this GPU's NVDEC does not take av1 with pixels of yuv420p"),
        ("mjpeg", "yuvj420p", (320, 240), "NVDEC does not take mjpeg with pixels of yuvj420p"),
    ],
)
def test_what_it_cannot_take_is_refused_in_words(codec, pixel_format, size, reason):
    said = module.refusal(codec, pixel_format, *size, 0)
    if said is None and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip(f"this GPU takes {codec} {pixel_format} {size}; a Hopper does not")
    assert said is not None
    assert said.startswith(reason)


@pytest.mark.gpu
@pytest.mark.parametrize("codec", ["h264", "hevc", "vp8", "vp9", "mpeg2video"])
def test_what_it_takes_is_not_refused(codec):
    assert module.refusal(codec, "yuv420p", 1920, 1080, 0) is None
    assert module.refusal(codec, None, 0, 0, 0) is None


# --- real files

DAMAGED = {
    "gen__vpf_bitflips.mp4": "bits are flipped: each decoder conceals the damage in its own way",
    "gen__ts_cut_midpacket.ts": "a packet is cut: each decoder conceals the damage in its own way",
    "openh264__BA_MW_D_P_LOST.264": "a reference frame is missing: each decoder takes another one",
    "exo__invalid-bitstream.webm": "nothing in it can be decoded",
}
WITHOUT_TRUE_STAMPS = {
    "exo__roadtrip-vp92-10bit.webm": "hidden frames have the time stamps of shown ones",
    "openh264__Cisco_Men_whisper_640x320_CABAC_Bframe_9.264": "B-frames in a raw stream, which has no time stamps",
    "vpf__test_res_change.h264": "B-frames in a raw stream, which has no time stamps",
}
"""Tokens may differ there, pictures and their order may not."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of a frame of a file: little, as files are long."""

    token: int
    size: tuple[int, int]
    digest: str
    planes: tuple[np.ndarray, ...] | None


def watched(bench: Bench, info: StreamInfo, packets: list[Packet], *, keep: bool) -> Iterator[Seen]:
    """The frames that a camera would show: from the first key frame on, without what leads it; after an error from the next one on."""
    decoder = bench.decoder(info)
    starting, shown_from, skips_leading = True, None, False
    for packet in [*packets, None]:
        if packet is not None and starting:
            if not packet.is_keyframe:
                continue
            starting, shown_from, skips_leading = False, packet.pts, True
        elif packet is not None and packet.is_keyframe:
            skips_leading = False
        elif packet is not None and skips_leading and is_skipped_leading(info.codec, packet.data):
            continue
        try:
            shots = bench.drained(decoder) if packet is None else bench.fed(decoder, packet)
        except DecodeError:
            decoder.close()
            decoder, starting = bench.decoder(info), True
            continue
        for shot in shots:
            pts = packets[shot.token].pts if 0 <= shot.token < len(packets) else None
            if pts is None or shown_from is None or pts >= shown_from:
                digest = hashlib.sha256(b"".join(samples.tobytes() for samples in shot.planes)).hexdigest()
                yield Seen(shot.token, shot.size, digest, shot.planes if keep else None)
    decoder.close()


@pytest.mark.gpu
@pytest.mark.media
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", media_files(), ids=lambda path: path.name)
def test_a_real_file_shows_the_same_on_both(nvdec: Bench, cpu: Bench, path: Path):
    try:
        info, packets = packets_of(path)
    except NotVideo as error:
        pytest.skip(str(error))
    said = module.refusal(info.codec, info.pixel_format, info.width, info.height, 0)
    if said is not None:
        pytest.skip(said)
    is_mpeg = info.codec in {"mpeg1video", "mpeg2video"}
    ours = list(watched(nvdec, info, packets, keep=is_mpeg))
    theirs = list(watched(cpu, info, packets, keep=is_mpeg))
    if path.name in DAMAGED:
        return  # it ended, and without a crash
    assert [frame.size for frame in ours] == [frame.size for frame in theirs]
    if path.name not in WITHOUT_TRUE_STAMPS:
        assert [frame.token for frame in ours] == [frame.token for frame in theirs]
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our.planes is None or their.planes is None:
            assert our.digest == their.digest, f"frame {number} of {len(ours)} differs"
        else:
            apart = max(int(np.abs(a.astype(int) - b.astype(int)).max()) for a, b in zip(our.planes, their.planes, strict=True))
            assert apart <= MPEG_TOLERANCE, f"frame {number} of {len(ours)} differs by {apart}"
