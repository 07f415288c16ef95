"""Every message arrives as it was sent; an end that is gone is no error, a message that is absurdly large is one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from streamd.records import CameraState, Event, EventKind, Phase
from streamd.types import DropReason, Ledger
from streamd.worker.protocol import (
    MAX_MESSAGE_BYTES,
    Changed,
    Channel,
    Counts,
    Failed,
    FromWorker,
    Ready,
    Start,
    Stop,
    ToWorker,
)

STATE = CameraState(camera="door", phase=Phase.DOWN, since_ms=1, reason="timeout", retry_in_s=1.5, width=1920, decoder="nvdec")
EVENT = Event(kind=EventKind.DOWN, camera="door", session="ab12", at_ms=1, reason="timeout", detail="door fell silent · für 10 s")
LEDGER = Ledger(received=9, decoded=8, published=3, dropped={DropReason.STALE: 2, DropReason.SINK_FULL: 1})
TO_WORKER = [
    Start(worker="0", config={"models": {"m": {"top_k": 5}}, "redact": ["s3cret"], "x": None}, cameras=["door"], log_json=False),
    Stop(timeout_s=2.5),
]
FROM_WORKER = [
    Ready(device="NVIDIA H200"),
    Failed(message="no such model", retry=False),
    Changed(state=STATE),
    Changed(state=STATE, event=EVENT),
    Counts(ledgers={"door": LEDGER, "yard": Ledger()}, sink_queue=12, batches=34, latency=[0, 7], cpu_s=1.25, at_ns=1 << 62),
]


class Pair:
    """The daemon's end and the worker's end of one socket pair."""

    async def connect(self) -> None:
        daemon_socket, worker_socket = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=daemon_socket)
        self.daemon = Channel(reader, writer, receives=FromWorker)
        self.daemon_writer = writer
        reader, writer = await asyncio.open_unix_connection(sock=worker_socket)
        self.worker = Channel(reader, writer, receives=ToWorker)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    await pair.connect()
    yield pair
    await pair.daemon.close()
    await pair.worker.close()


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: type(message).__name__)
async def test_messages_to_a_worker_arrive_as_they_were_sent(pair, message):
    pair.daemon.send(message)
    assert await pair.worker.receive() == message


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: type(message).__name__)
async def test_messages_from_a_worker_arrive_as_they_were_sent(pair, message):
    pair.worker.send(message)
    assert await pair.daemon.receive() == message


async def test_counts_of_drops_arrive_under_plain_names(pair):
    pair.worker.send(FROM_WORKER[-1])
    received = await pair.daemon.receive()
    assert received.ledgers["door"].dropped == {"stale": 2, "sink_full": 1}
    assert received.ledgers["door"].in_flight == 3


async def test_many_messages_arrive_in_order_and_both_ways_at_once(pair):
    for number in range(500):
        pair.daemon.send(Stop(timeout_s=number))
        pair.worker.send(Ready(device=str(number)))
    assert [(await pair.worker.receive()).timeout_s for _ in range(500)] == list(range(500))
    assert [(await pair.daemon.receive()).device for _ in range(500)] == [str(number) for number in range(500)]


async def test_a_message_of_megabytes_arrives_whole(pair):
    message = Start(worker="0", config={"x": "y" * 3_000_000}, cameras=[f"camera-{number}" for number in range(5000)])
    pair.daemon.send(message)
    assert await pair.worker.receive() == message


async def test_an_end_that_closed_is_seen_after_its_last_message(pair):
    pair.worker.send(Ready(device="cpu"))
    await pair.worker.close()
    assert await pair.daemon.receive() == Ready(device="cpu")
    assert await pair.daemon.receive() is None
    assert await pair.daemon.receive() is None


@pytest.mark.parametrize("sent", [b"\x00\x00", b"\x00\x00\x00\x09half"])
async def test_an_end_that_dies_in_the_middle_of_a_message_is_gone_too(pair, sent):
    pair.daemon_writer.write(sent)
    await pair.daemon.close()
    assert await pair.worker.receive() is None


async def test_sending_to_an_end_that_is_gone_is_no_error(pair):
    await pair.worker.close()
    for _ in range(100):
        pair.daemon.send(Stop(timeout_s=1))
        await asyncio.sleep(0)
    assert await pair.daemon.receive() is None
    await pair.daemon.close()
    pair.daemon.send(Stop(timeout_s=1))


async def test_a_length_beyond_the_limit_is_refused_before_anything_is_kept(pair):
    pair.daemon_writer.write((MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="message of 67108865 bytes"):
        await pair.worker.receive()


async def test_a_message_for_the_other_end_is_refused(pair):
    pair.daemon.send(Ready(device="cpu"))
    with pytest.raises(msgspec.ValidationError, match="Ready"):
        await pair.worker.receive()
