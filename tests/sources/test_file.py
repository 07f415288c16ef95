import itertools
import os
import random
import struct
import wave
import zlib
from pathlib import Path

import av
import numpy as np
import pytest
from support.clips import ClipCache, Marker
from support.frames import seen

from streamd.errors import NotFound, NotVideo
from streamd.sources import file
from streamd.sources.file import FileSource

FRAMES = 12
CLIP = {"frames": FRAMES, "gop": 6, "camera": 4}


def refused(path: Path) -> str:
    """What is said of a file that holds no video."""
    source = FileSource(path, loop=False)
    with pytest.raises(NotVideo) as caught:
        source.open()
    source.close()
    assert str(path) in str(caught.value)
    return str(caught.value)


# --- what is refused


def test_a_missing_file_is_not_found(tmp_path: Path):
    with pytest.raises(NotFound, match=r"gone\.mp4 does not exist"):
        FileSource(tmp_path / "gone.mp4", loop=False).open()


def test_a_file_that_may_not_be_read_is_not_found(monkeypatch, clip: ClipCache):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root, who may read everything
    with pytest.raises(NotFound, match="may not be read by this user"):
        FileSource(clip(".mp4", **CLIP), loop=False).open()


def test_a_folder_a_device_and_a_pipe_are_not_opened(tmp_path: Path):
    assert "is a folder" in refused(tmp_path)
    assert "no regular file" in refused(Path("/dev/zero"))
    os.mkfifo(tmp_path / "pipe.ts")
    assert "no regular file" in refused(tmp_path / "pipe.ts")


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + bytes(3 * 64)) * 64)
    header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _gif() -> bytes:
    frame = b"\x21\xf9\x04\x00\x0a\x00\x00\x00\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00"
    return b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff" + 2 * frame + b"\x3b"


@pytest.mark.parametrize("suffix", [".mp4", ".bin"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"url: rtsp://camera/door\n" * 200,
        _png(),
        _gif(),
        random.Random(1).randbytes(100_000),
        bytes(100_000),
    ],
    ids=["empty", "text", "png", "gif", "random", "zeros"],
)
def test_what_is_no_video_is_refused_whatever_its_name(tmp_path: Path, content: bytes, suffix: str):
    path = tmp_path / f"it{suffix}"
    path.write_bytes(content)
    assert "not a video that streamd can read" in refused(path)


def test_a_wave_file_is_refused(tmp_path: Path):
    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16000))
    refused(tmp_path / "sound.wav")


def _add_sound(container, codec: str) -> None:
    stream = container.add_stream(codec, rate=48000, layout="mono")
    for number in range(20):
        samples = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        samples.sample_rate, samples.pts = 48000, 1024 * number
        container.mux(stream.encode(samples))
    container.mux(stream.encode(None))


@pytest.mark.parametrize(("name", "codec"), [("sound.mp4", "aac"), ("sound.ts", "mp2"), ("sound.mkv", "aac")])
def test_a_container_with_sound_only_is_refused_and_says_so(tmp_path: Path, name, codec):
    with av.open(str(tmp_path / name), "w", format="mpegts" if name.endswith(".ts") else None) as container:
        _add_sound(container, codec)
    assert "holds no video, only audio" in refused(tmp_path / name)


def test_an_mp3_file_is_refused(tmp_path: Path):
    path = tmp_path / "song.mp3"
    with av.open(str(path), "w") as container:
        _add_sound(container, "mp3")
    refused(path)


@pytest.mark.parametrize(
    ("name", "playlist"),
    [
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n{clip}\n#EXT-X-ENDLIST\n"),
        ("list.ffconcat", "ffconcat version 1.0\nfile {clip}\n"),
        ("list.sdp", "v=0\no=- 1 1 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"),
        ("list.pls", "[playlist]\nFile1={clip}\nNumberOfEntries=1\n"),
        ("list.mpd", '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><BaseURL>{clip}</BaseURL></MPD>'),
    ],
)
def test_a_playlist_opens_no_other_file(tmp_path: Path, clip: ClipCache, name, playlist):
    good = clip(".ts", **CLIP)
    path = tmp_path / name
    path.write_text(playlist.format(clip=good))
    refused(path)
    (tmp_path / "disguised.mp4").write_text(playlist.format(clip=good))
    refused(tmp_path / "disguised.mp4")


# --- what is read


@pytest.mark.parametrize("name", ["a b.mp4", "100%.mp4", "ü#é?.mp4", "rtsp:x.mp4", "clip.txt", "no suffix"])
def test_a_file_is_known_by_its_content_and_not_by_its_name(tmp_path: Path, clip: ClipCache, name):
    path = tmp_path / name
    path.write_bytes(clip(".mp4", **CLIP).read_bytes())
    source = FileSource(path, loop=False)
    source.open()
    assert len(list(source.packets())) == FRAMES
    source.close()


def test_a_file_that_was_cut_short_gives_what_is_there(tmp_path: Path, clip: ClipCache):
    whole = clip(".ts", **CLIP).read_bytes()
    path = tmp_path / "cut.ts"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    source = FileSource(path, loop=False)
    info = source.open()
    packets = list(source.packets())
    source.close()
    assert 0 < len(packets) < FRAMES
    assert seen(info, packets[:-1]) == [Marker(4, number) for number in range(len(packets) - 1)]


# --- loop

LOOPED = [
    (".mp4", {"codec": "h264"}),
    (".mp4", {"codec": "h264", "b_frames": 2}),
    (".mkv", {"codec": "hevc", "b_frames": 2}),
    (".ts", {"codec": "h264", "b_frames": 2}),
    (".h264", {"codec": "h264"}),
    (".webm", {"codec": "vp9"}),
]


@pytest.mark.parametrize("keep_bytes", [file._KEEP_BYTES, 1000], ids=["from memory", "opened again"])
@pytest.mark.parametrize(("suffix", "parameters"), LOOPED, ids=str)
def test_a_loop_goes_on_with_rising_times_and_tokens(monkeypatch, clip: ClipCache, suffix, parameters, keep_bytes):
    monkeypatch.setattr(file, "_KEEP_BYTES", keep_bytes)
    source = FileSource(clip(suffix, **parameters, **CLIP), loop=True)
    info = source.open()
    packets = list(itertools.islice(source.packets(), 3 * FRAMES))
    source.close()
    assert [packet.token for packet in packets] == list(range(3 * FRAMES))
    received = [packet.received_ns for packet in packets]
    assert received == sorted(received)
    assert len(set(received)) > FRAMES
    assert seen(info, packets) == [Marker(4, number % FRAMES) for number in range(3 * FRAMES)]
    decoded = [packet.dts for packet in packets if packet.dts is not None]
    assert decoded == sorted(set(decoded))
    shown = sorted(packet.pts for packet in packets if packet.pts is not None)
    if shown:
        assert all(packet.pts is not None for packet in packets)
        rounds = [[packet.pts for packet in packets[start : start + FRAMES]] for start in range(0, 3 * FRAMES, FRAMES)]
        assert max(rounds[0]) < min(rounds[1]) <= max(rounds[1]) < min(rounds[2])
        steps = [float((later - earlier) * info.time_base) for earlier, later in itertools.pairwise(shown)]
        assert steps == pytest.approx([0.04] * len(steps), abs=0.0011)  # Matroska counts milliseconds


@pytest.mark.parametrize("keep_bytes", [file._KEEP_BYTES, 1000], ids=["from memory", "opened again"])
@pytest.mark.parametrize(("suffix", "parameters"), LOOPED, ids=str)
def test_a_loop_of_key_frames_has_the_same_ones_and_the_tokens_count_all(monkeypatch, clip: ClipCache, suffix, parameters, keep_bytes):
    monkeypatch.setattr(file, "_KEEP_BYTES", keep_bytes)
    path = clip(suffix, **parameters, **CLIP)

    def key_frames(*, keyframes_only: bool):
        source = FileSource(path, loop=True, keyframes_only=keyframes_only)
        source.open()
        packets = itertools.takewhile(lambda packet: packet.token <= 3 * FRAMES, source.packets())
        keys = [(packet.token, packet.pts, packet.dts, packet.data) for packet in packets if packet.is_keyframe]
        source.close()
        return keys

    keys = key_frames(keyframes_only=True)
    assert [token for token, *_ in keys] == list(range(0, 3 * FRAMES + 1, 6))
    assert keys == key_frames(keyframes_only=False)


def test_a_loop_of_key_frames_leaves_the_others_out_from_the_second_round_on(clip: ClipCache):
    source = FileSource(clip(".mp4", **CLIP), loop=True, keyframes_only=True)
    source.open()
    tokens = [packet.token for packet in itertools.islice(source.packets(), FRAMES + 4)]
    source.close()
    assert tokens == [*range(FRAMES), 12, 18, 24, 30]


def test_a_loop_that_is_opened_again_reports_that_its_file_has_gone(monkeypatch, tmp_path: Path, clip: ClipCache):
    monkeypatch.setattr(file, "_KEEP_BYTES", 1000)
    path = tmp_path / "clip.ts"
    path.write_bytes(clip(".ts", **CLIP).read_bytes())
    source = FileSource(path, loop=True)
    source.open()
    arriving = source.packets()
    list(itertools.islice(arriving, FRAMES))
    path.unlink()
    with pytest.raises(NotFound):
        next(arriving)
    source.close()


def test_a_loop_can_be_closed_in_any_round(clip: ClipCache):
    for count in (1, FRAMES, FRAMES + 1):
        source = FileSource(clip(".mp4", **CLIP), loop=True)
        source.open()
        list(itertools.islice(source.packets(), count))
        source.close()
        source.close()
