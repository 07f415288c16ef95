"""Reading under deadlines, whatever the source does."""

import threading
import time
from collections.abc import Iterator
from fractions import Fraction

import pytest

from streamd.errors import Disconnected, NotVideo, SourceTimeout
from streamd.probe.watch import Limits, watch
from streamd.types import Packet, StreamInfo

INFO = StreamInfo(codec="h264", width=64, height=64, time_base=Fraction(1, 25))
PATIENCE = Limits(answer_s=0.1, watch_s=0.2)


class Script:
    """A source that hangs, like a native call, wherever the script says `hang`; the test lets it go at the end."""

    def __init__(self, *steps: str) -> None:
        self._steps = list(steps)
        self.let_go = threading.Event()
        self.closed = threading.Event()

    def open(self) -> StreamInfo:
        self._maybe_hang("open hangs")
        return INFO

    def packets(self) -> Iterator[Packet]:
        for token, step in enumerate(self._steps):
            self._maybe_hang(step)
            if step == "broken":
                raise Disconnected("rtsp://x broke off")
            yield Packet(b"x", token, token, token, step == "key", False, False, time.monotonic_ns(), 0)

    def _maybe_hang(self, step: str) -> None:
        if step.startswith("hang") or (step == "open hangs" and self._steps[:1] == ["open hangs"]):
            self.let_go.wait()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def script():
    made: list[Script] = []

    def make(*steps: str) -> Script:
        made.append(Script(*steps))
        return made[-1]

    yield make
    for source in made:
        source.let_go.set()
        assert source.closed.wait(10)


def look(source: Script, *, live: bool = True, limits: Limits = PATIENCE):
    return watch(source, limits, shown="rtsp://x", live=live)


def test_a_call_to_open_that_never_returns_costs_its_deadline_only(script):
    started_s = time.monotonic()
    with pytest.raises(SourceTimeout, match=r"rtsp://x does not answer within 0\.1 s"):
        look(script("open hangs"))
    assert time.monotonic() - started_s < 5


def test_an_open_stream_that_sends_nothing_is_silent(script):
    with pytest.raises(SourceTimeout, match="connected, but sends no video"):
        look(script("hang"))


def test_a_stream_that_falls_silent_is_judged_by_what_it_sent(script):
    watched = look(script("key", "delta", "hang"))
    assert (len(watched.seen), watched.keyframes, watched.complete) == (2, 1, False)


def test_a_stream_that_breaks_off_is_judged_by_what_it_sent(script):
    watched = look(script("key", "delta", "broken"))
    assert (len(watched.seen), str(watched.broke_off)) == (2, "rtsp://x broke off")


def test_a_stream_that_breaks_off_at_once_is_an_error(script):
    with pytest.raises(Disconnected):
        look(script("broken"))


def test_a_file_is_read_to_its_second_key_frame_but_a_hundred_packets_at_least(script):
    assert len(look(script(*["key", *["delta"] * 199] * 3), live=False).seen) == 201
    assert len(look(script(*["key"] * 300), live=False).seen) == 100
    short = look(script("key", "delta"), live=False)
    assert (len(short.seen), short.complete) == (2, True)


def test_a_file_without_a_frame_is_no_video(script):
    with pytest.raises(NotVideo, match="without a single frame"):
        look(script(), live=False)


def test_what_is_kept_for_decoding_begins_with_a_key_frame(script):
    watched = look(script("delta", "delta", "key", "delta"), live=False)
    assert [packet.token for packet in watched.head] == [2, 3]


def test_an_error_of_the_source_itself_is_not_hidden(script):
    source = script()
    source.open = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        look(source)
