"""Parameter sets out of containers are those that FFmpeg's own filters insert, and a record that is cut short is refused."""

from __future__ import annotations

import av
import pytest
from av.bitstream import BitStreamFilterContext
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd.sources.parameter_sets import START_CODE, is_annex_b, to_annex_b

UNITS = st.lists(st.binary(min_size=1, max_size=300), max_size=3)


def with_length(units: list[bytes]) -> bytes:
    return b"".join(len(unit).to_bytes(2, "big") + unit for unit in units)


def avcc(sps: list[bytes], pps: list[bytes], *, extension: bytes = b"") -> bytes:
    """ISO/IEC 14496-15, 5.3.3.1.2."""
    return b"\x01\x64\x00\x1f\xff" + bytes([0xE0 | len(sps)]) + with_length(sps) + bytes([len(pps)]) + with_length(pps) + extension


def hvcc(arrays: list[tuple[int, list[bytes]]]) -> bytes:
    """ISO/IEC 14496-15, 8.3.3.1.2; each array is its NAL unit type and the units."""
    body = b"".join(bytes([0x80 | kind]) + len(units).to_bytes(2, "big") + with_length(units) for kind, units in arrays)
    return b"\x01" + bytes(21) + bytes([len(arrays)]) + body


def annex_b(units: list[bytes]) -> bytes:
    return b"".join(START_CODE + unit for unit in units)


def inserted_by_ffmpeg(path, codec: str) -> tuple[bytes, bytes]:
    """The extradata of a file, and its first packet as FFmpeg's filter turns it into Annex B."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        filtering = BitStreamFilterContext(f"{codec}_mp4toannexb", stream)
        extradata = stream.codec_context.extradata
        first = next(container.demux(stream))
        return extradata, b"".join(bytes(packet) for packet in filtering.filter(first))


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize(
    ("codec", "parameters"),
    [
        ("h264", {"frames": 4}),
        ("h264", {"frames": 8, "b_frames": 2, "encoder_options": {"profile": "high", "preset": "veryfast"}}),
        ("hevc", {"frames": 4}),
        ("hevc", {"frames": 4, "pixel_format": "yuv420p10le"}),
    ],
)
def test_they_are_what_ffmpegs_filter_puts_before_the_first_key_frame(clip, codec, parameters, suffix):
    extradata, first = inserted_by_ffmpeg(clip(suffix, codec=codec, **parameters), codec)
    assert not is_annex_b(extradata)
    converted = to_annex_b(codec, extradata)
    assert is_annex_b(converted)
    assert converted in first


@settings(deadline=None)
@given(UNITS, UNITS, st.sampled_from([b"", b"\xfd\xf8\xf8\x00"]))
def test_every_unit_of_an_avcc_record_is_taken_in_order(sps, pps, extension):
    assert to_annex_b("h264", avcc(sps, pps, extension=extension)) == annex_b(sps + pps)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([32, 33, 34, 39]), UNITS), max_size=4))
def test_every_unit_of_an_hvcc_record_is_taken_in_order(arrays):
    assert to_annex_b("hevc", hvcc(arrays)) == annex_b([unit for _, units in arrays for unit in units])


@settings(deadline=None)
@given(UNITS, UNITS, st.data())
def test_an_avcc_record_that_is_cut_anywhere_is_refused(sps, pps, data):
    record = avcc(sps, pps)
    with pytest.raises(ValueError, match="cut short"):
        to_annex_b("h264", record[: data.draw(st.integers(1, len(record) - 1))])


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([32, 33, 34]), UNITS), max_size=4), st.data())
def test_an_hvcc_record_that_is_cut_anywhere_is_refused(arrays, data):
    record = hvcc(arrays)
    with pytest.raises(ValueError, match="cut short"):
        to_annex_b("hevc", record[: data.draw(st.integers(1, len(record) - 1))])


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_real_record_is_refused_at_every_cut(clip, codec):
    extradata, _ = inserted_by_ffmpeg(clip(".mp4", codec=codec, frames=4), codec)
    whole = to_annex_b(codec, extradata)
    needed = next(size for size in range(len(extradata), 0, -1) if size == 1 or not _is_enough(codec, extradata[: size - 1], whole))
    for size in range(1, needed):
        with pytest.raises(ValueError, match="cut short"):
            to_annex_b(codec, extradata[:size])


def _is_enough(codec: str, record: bytes, whole: bytes) -> bool:
    """Whether what is missing of a record is no parameter set: an avcC of the High profile ends with four other bytes."""
    try:
        return to_annex_b(codec, record) == whole
    except ValueError:
        return False


@pytest.mark.parametrize("record", [avcc([b""], [b"\x68"]), avcc([b"\x67"], [b""])])
def test_a_unit_without_a_byte_is_refused(record):
    with pytest.raises(ValueError, match="cut short"):
        to_annex_b("h264", record)


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp9"])
@pytest.mark.parametrize("data", [b"", b"\x00\x00\x01\x67", b"\x00\x00\x00\x01\x40\x01"])
def test_annex_b_and_nothing_at_all_stay_as_they_are(codec, data):
    assert to_annex_b(codec, data) == data
    assert is_annex_b(data) is bool(data)


@pytest.mark.parametrize("codec", ["vp9", "av1", "mpeg4"])
def test_what_other_codecs_store_stays_as_it_is(codec):
    assert to_annex_b(codec, b"\x81\x04\x0c\x00") == b"\x81\x04\x0c\x00"


def test_an_elementary_stream_has_annex_b_already(clip):
    with av.open(str(clip(".h264", frames=4))) as container:
        extradata = container.streams.video[0].codec_context.extradata
    assert is_annex_b(extradata)
    assert to_annex_b("h264", extradata) == extradata
