"""However a connection ends, its owner hears of it once, and the source was closed on the thread that opened it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.wait import wait_until

from streamd.camera.reader import Reader
from streamd.errors import Disconnected, SourceError, Unauthorized
from streamd.types import Packet, StreamInfo

PATIENCE_S = 10.0
INFO = StreamInfo(codec="h264", width=320, height=240, time_base=Fraction(1, 1000), frame_rate=Fraction(25))


def packet(token: int, *, dts: int | None = None) -> Packet:
    return Packet(
        data=b"x",
        token=token,
        pts=dts,
        dts=dts,
        is_keyframe=True,
        is_corrupt=False,
        is_discard=False,
        received_ns=1,
        captured_ns=2,
    )


@dataclass
class FakeSource:
    """A Source whose every step can be told what to do; it remembers the threads that called it."""

    items: list[Any] = field(default_factory=list)
    """Packets, errors to raise, or functions to call, in order."""
    on_open: Callable[[], None] = lambda: None
    on_close: Callable[[], None] = lambda: None
    threads: dict[str, list[int]] = field(default_factory=lambda: {"open": [], "packets": [], "close": []})

    def open(self) -> StreamInfo:
        self.threads["open"].append(threading.get_ident())
        self.on_open()
        return INFO

    def packets(self) -> Iterator[Packet]:
        self.threads["packets"].append(threading.get_ident())
        for item in self.items:
            if isinstance(item, BaseException):
                raise item
            if callable(item):
                item()
            else:
                yield item

    def close(self) -> None:
        self.threads["close"].append(threading.get_ident())
        self.on_close()


class Owner:
    """Starts a reader over a source and writes down what it hears, in order."""

    def __init__(self, source: FakeSource, *, realtime: bool = False, on_packet: Callable[[Packet], None] = lambda _: None) -> None:
        self.source = source
        self.heard: list[Any] = []
        self.packets: list[Packet] = []
        self.ended = threading.Event()
        self._on_packet = on_packet
        self.reader = Reader(
            source,
            name="door",
            realtime=realtime,
            on_open=lambda info: self.heard.append(("open", info)),
            on_packet=self._take,
            on_end=self._end,
        )

    def _take(self, packet: Packet) -> None:
        self.heard.append(("packet", packet.token))
        self.packets.append(packet)
        self._on_packet(packet)

    def _end(self, error: SourceError | None) -> None:
        self.heard.append(("end", error))
        self.ended.set()

    def run(self) -> Owner:
        """To the end of the thread."""
        self.reader.start()
        self.wait()
        return self

    def wait(self) -> None:
        assert self.ended.wait(PATIENCE_S)
        wait_until(lambda: not self.reader.is_alive, what="the end of the thread")

    @property
    def end(self) -> SourceError | None:
        """The error that was told; there must have been one end, and nothing after it."""
        assert [what for what, _ in self.heard].count("end") == 1
        what, error = self.heard[-1]
        assert what == "end"
        return error


def raises(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_source_is_opened_read_to_its_end_and_closed_by_the_readers_thread():
    owner = Owner(FakeSource([packet(0), packet(1)])).run()
    assert owner.heard == [("open", INFO), ("packet", 0), ("packet", 1), ("end", None)]
    callers = [owner.source.threads[call] for call in ("open", "packets", "close")]
    assert [len(threads) for threads in callers] == [1, 1, 1]
    assert callers[0] == callers[1] == callers[2] != [threading.get_ident()]


BROKEN_OFF, REFUSED = Disconnected("gone"), Unauthorized("wrong password")


@pytest.mark.parametrize(
    ("source", "heard"),
    [
        (FakeSource(on_open=raises(REFUSED)), [("end", REFUSED)]),
        (FakeSource([BROKEN_OFF]), [("open", INFO), ("end", BROKEN_OFF)]),
        (FakeSource([packet(0), BROKEN_OFF]), [("open", INFO), ("packet", 0), ("end", BROKEN_OFF)]),
    ],
)
def test_a_source_error_is_handed_on_as_it_is(source, heard):
    assert Owner(source).run().heard == heard
    assert len(source.threads["close"]) == 1


@pytest.mark.parametrize(
    "source",
    [FakeSource(on_open=raises(KeyError("secret"))), FakeSource([packet(0), ZeroDivisionError("secret")])],
)
def test_any_other_error_is_logged_and_told_without_its_text(source):
    with capture_logs() as logs:
        owner = Owner(source).run()
    assert str(owner.end).startswith("reading failed: ")
    assert "secret" not in str(owner.end)
    assert [entry["event"] for entry in logs] == ["reader_crashed"]
    assert len(source.threads["close"]) == 1


def test_an_owner_that_fails_to_take_a_packet_hears_of_the_end_all_the_same():
    with capture_logs():
        owner = Owner(FakeSource([packet(0), packet(1)]), on_packet=raises(RuntimeError())).run()
    assert str(owner.end) == "reading failed: RuntimeError"
    assert len(owner.packets) == 1


@pytest.mark.parametrize("error", [None, BROKEN_OFF])
def test_a_source_that_cannot_be_closed_still_ends_with_its_own_error(error):
    items = [packet(0)] if error is None else [packet(0), error]
    with capture_logs() as logs:
        owner = Owner(FakeSource(items, on_close=raises(OSError("bad descriptor")))).run()
    assert owner.end is error
    assert [entry["event"] for entry in logs] == ["close_failed"]


def test_stop_while_the_source_opens_reads_nothing():
    owner = Owner(FakeSource([packet(0)]))
    owner.source.on_open = owner.reader.stop
    owner.run()
    assert owner.heard == [("end", None)]
    assert owner.source.threads["packets"] == []
    assert len(owner.source.threads["close"]) == 1


def test_stop_ends_the_reader_with_the_next_packet_which_is_not_passed_on():
    owner = Owner(FakeSource())
    owner.source.items = [packet(0), owner.reader.stop, packet(1), packet(2)]
    owner.run()
    assert owner.heard == [("open", INFO), ("packet", 0), ("end", None)]


def test_an_open_that_hangs_is_left_alone_and_ends_by_itself():
    entered, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert go_on.wait(PATIENCE_S)

    owner = Owner(FakeSource([packet(0)], on_open=hang))
    owner.reader.start()
    assert entered.wait(PATIENCE_S)
    owner.reader.stop()
    assert owner.reader.is_alive
    assert owner.heard == []
    go_on.set()
    owner.wait()
    assert owner.heard == [("end", None)]


def test_the_time_of_the_last_packet_is_known_before_the_packet_is_taken():
    seen = []
    owner = Owner(FakeSource([packet(0), packet(1)]), on_packet=lambda _: seen.append(owner.reader.last_packet_ns))
    assert owner.reader.last_packet_ns is None
    before_ns = time.monotonic_ns()
    owner.run()
    assert before_ns <= seen[0] <= seen[1] == owner.reader.last_packet_ns <= time.monotonic_ns()


def test_without_pacing_packets_keep_the_times_that_the_source_gave_them():
    owner = Owner(FakeSource([packet(0, dts=0), packet(1, dts=60_000)])).run()
    assert owner.packets == owner.source.items


def test_a_paced_file_waits_for_each_packet_and_stamps_it_then():
    began_ns, began_wall_ns = time.monotonic_ns(), time.time_ns()
    owner = Owner(FakeSource([packet(n, dts=20 * n) for n in range(6)]), realtime=True).run()
    assert [taken.token for taken in owner.packets] == list(range(6))
    received_ns = [taken.received_ns for taken in owner.packets]
    first_ns = received_ns[0]
    assert began_ns <= first_ns
    assert all(at_ns - began_ns >= n * 20_000_000 for n, at_ns in enumerate(received_ns))
    assert all(taken.captured_ns >= began_wall_ns for taken in owner.packets)
    assert owner.packets[5].dts == 100


def test_stop_breaks_off_a_wait_between_paced_packets_at_once():
    taken = threading.Event()
    owner = Owner(FakeSource([packet(0, dts=0), packet(1, dts=9000)]), realtime=True, on_packet=lambda _: taken.set())
    owner.reader.start()
    assert taken.wait(PATIENCE_S)
    wait_until(lambda: owner.reader._stop._cond._waiters, what="the wait for the second packet")
    stopped_s = time.monotonic()
    owner.reader.stop()
    owner.wait()
    assert time.monotonic() - stopped_s < 2
    assert owner.heard == [("open", INFO), ("packet", 0), ("end", None)]
