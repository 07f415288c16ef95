"""From packets to samples, step by step and without threads: what is dropped, why, and what happens to a decoder that fails."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from support.wait import wait_until

from streamd import decoders
from streamd.camera.decoding import Decoding, DecodingConfig
from streamd.camera.inbox import Inbox
from streamd.camera.pool import DecodePool
from streamd.camera.turns import MOST
from streamd.errors import DecodeError, DecoderUnavailable
from streamd.types import DropReason, Frame, Matrix, Packet, StreamInfo

INFO = StreamInfo("h264", 320, 240, Fraction(1, 25), frame_rate=Fraction(25), reorder_frames=2)


def packet(token, *, key=False, pts=None, **fields):
    given = {"data": b"\0\0\1", "token": token, "pts": token if pts is None else pts, "dts": token, "is_keyframe": key}
    return Packet(**(given | {"is_corrupt": False, "is_discard": False, "received_ns": time.monotonic_ns(), "captured_ns": 0} | fields))


def picture(token):
    grey = torch.full((240, 320), 128, dtype=torch.uint8)
    return Frame(token, grey, grey[::2, ::2], grey[::2, ::2], 8, 0, Matrix.BT601, full_range=False, rotation_deg=0)


class ScriptedDecoder:
    """Returns each packet's frame at once, or what `script` has for its token: a list of tokens, or an error to raise."""

    name = "cpu"

    def __init__(self, script):
        self._script = script
        self.decoded = []
        self.drained = False
        self.closed = False

    def decode(self, packet):
        assert not self.closed
        assert not self.drained
        self.decoded.append(packet.token)
        return self._answer(self._script.get(packet.token, [packet.token]))

    def drain(self):
        self.drained = True
        return self._answer(self._script.get("drain", []))

    def _answer(self, answer):
        if isinstance(answer, BaseException):
            raise answer
        return [picture(token) for token in answer]

    def close(self):
        self.closed = True
        if "close" in self._script:
            raise self._script["close"]


class Bench:
    """A Decoding whose steps the test takes itself, and what it was told."""

    def __init__(self, rig, script, *, live=True, policy="auto", keyframes_only=False, fps=None, info=INFO):
        self.ledger = rig.ledgers["door"]
        self.inbox = Inbox(max_age_s=60 if live else None)
        self.decoders = []
        self.infos = []
        self.ups = []
        self.done = []
        self._script = script
        self.decoding = Decoding(
            DecodingConfig(camera="door", session="s1", policy=policy, low_latency=True, keyframes_only=keyframes_only, fps=fps),
            info,
            inbox=self.inbox,
            intake=rig.engine.intake("door", "markers", max_age_s=60 if live else None),
            ledger=self.ledger,
            device=torch.device("cpu"),
            pool=DecodePool(1),
            keyframes=decoders.KeyframeDecoders(),
            on_up=lambda frame, choice: self.ups.append((frame.token, choice)),
            on_done=self.done.append,
        )

    def create(self, choice, info, **options):
        self.infos.append(info)
        self.decoders.append(ScriptedDecoder(self._script))
        return self.decoders[-1]

    def feed(self, *packets):
        for one in packets:
            self.ledger.received()
            assert self.inbox.put(one) == 0
        self.work()

    def work(self):
        """As a thread of the pool does it."""
        try:
            while self.decoding.step():
                pass
        except Exception as error:  # noqa: BLE001 - the pool's contract
            self.decoding.crashed(error)

    def end(self):
        self.inbox.close()
        self.feed()

    @property
    def dropped(self):
        return self.ledger.snapshot().dropped


@pytest.fixture
def rig(new_rig):
    return new_rig(slots=256)


@pytest.fixture
def bench(rig, monkeypatch):
    """`bench({3: DecodeError("…")}, fps=5)`: the script says what the decoder returns for which packet."""

    def make(script=None, **options):
        made = Bench(rig, script or {}, **options)
        monkeypatch.setattr(decoders, "create", made.create)
        return made

    return make


def results(rig, count):
    """Sequence numbers of the results, in order, once there are `count`."""
    wait_until(lambda: len(rig.seen) >= count, what=f"{count} results")
    return [seen.sequence for seen in rig.seen]


def test_what_comes_before_the_first_key_frame_is_not_decoded(bench, rig):
    it = bench()
    it.feed(packet(0), packet(1), packet(2, key=True), packet(3))
    it.end()
    assert it.decoders[0].decoded == [2, 3]
    assert it.dropped == {DropReason.BEFORE_KEYFRAME: 2}
    assert results(rig, 2) == [2, 3]


def test_leading_pictures_of_the_first_key_frame_are_decoded_and_not_shown(bench, rig):
    it = bench({0: [], 1: [], 2: [], 3: [1, 2, 0, 3]})
    it.feed(packet(0, key=True, pts=10), packet(1, pts=8), packet(2, pts=9), packet(3, pts=11))
    it.end()
    assert it.dropped == {DropReason.BEFORE_KEYFRAME: 2}
    assert results(rig, 2) == [0, 3]


def test_a_rejected_packet_costs_the_frames_up_to_the_next_key_frame(bench, rig):
    it = bench({2: DecodeError("damaged")})
    it.feed(packet(0, key=True), packet(1), packet(2), packet(3), packet(4, key=True), packet(5))
    it.end()
    assert it.done == [None]
    assert [decoder.decoded for decoder in it.decoders] == [[0, 1, 2], [4, 5]]
    assert it.decoders[0].closed
    assert it.dropped == {DropReason.DECODE_ERROR: 1, DropReason.BEFORE_KEYFRAME: 1}
    assert results(rig, 4) == [0, 1, 4, 5]


def test_frames_that_a_rejecting_decoder_still_held_are_booked(bench):
    it = bench({1: [], 2: [], 3: DecodeError("damaged")})
    it.feed(packet(0, key=True), packet(1), packet(2), packet(3))
    it.end()
    assert it.dropped == {DropReason.DECODE_ERROR: 3}


def test_a_decoder_that_cannot_be_made_ends_the_session(bench, monkeypatch):
    it = bench()

    def unavailable(*_args, **_options):
        raise DecoderUnavailable("FFmpeg has no decoder for h264")

    monkeypatch.setattr(decoders, "create", unavailable)
    it.ledger.received()
    it.inbox.put(packet(0, key=True))
    it.work()
    (error,) = it.done
    assert str(error) == "FFmpeg has no decoder for h264"
    assert it.dropped == {DropReason.SHUTDOWN: 1}


def test_nvdec_that_cannot_be_made_gives_way_to_the_cpu_and_says_why(bench, monkeypatch):
    monkeypatch.setattr(decoders, "choose", lambda *_args, **_options: decoders.Choice("nvdec", None))
    it = bench()

    def create(choice, info, **options):
        if choice.name == "nvdec":
            raise DecodeError("no session left")
        return it.create(choice, info, **options)

    monkeypatch.setattr(decoders, "create", create)
    it.feed(packet(0, key=True))
    it.end()
    assert it.ups == [(0, decoders.Choice("cpu", "no session left"))]


def test_a_crash_ends_the_session_and_books_every_frame(bench):
    it = bench({1: [], 2: RuntimeError("a bug")})
    for one in (packet(0, key=True), packet(1), packet(2), packet(3)):
        it.ledger.received()
        it.inbox.put(one)
    it.work()
    (error,) = it.done
    assert str(error) == "decoding failed: RuntimeError"
    assert it.decoders[0].closed
    assert it.dropped == {DropReason.SHUTDOWN: 3}


def test_a_decoder_that_cannot_even_be_closed_ends_the_session_all_the_same(bench):
    it = bench({0: RuntimeError("a bug"), "close": RuntimeError("another one")})
    it.ledger.received()
    it.inbox.put(packet(0, key=True))
    it.work()
    (error,) = it.done
    assert str(error) == "decoding failed: RuntimeError"
    assert it.dropped == {DropReason.SHUTDOWN: 1}


def test_a_preprocessor_that_crashes_gives_its_slot_back(bench, rig, monkeypatch):
    it = bench()
    free = rig.engine.lanes["markers"].pool.free

    def crash(*_args):
        raise RuntimeError("a bug")

    monkeypatch.setattr(rig.engine.lanes["markers"].preprocessor, "many", crash)
    it.ledger.received()
    it.inbox.put(packet(0, key=True))
    it.work()
    assert rig.engine.lanes["markers"].pool.free == free
    assert it.dropped == {DropReason.DECODE_ERROR: 1}
    (error,) = it.done
    assert str(error) == "decoding failed: RuntimeError"


def test_the_end_takes_out_what_the_decoder_holds_back(bench, rig):
    it = bench({1: [], 2: [1], 3: [], "drain": [2, 3]})
    it.feed(packet(0, key=True), packet(1), packet(2), packet(3))
    it.end()
    assert results(rig, 4) == [0, 1, 2, 3]
    assert it.dropped == {}
    assert it.decoders[0].closed


@pytest.mark.parametrize("drained", [[], DecodeError("damaged")])
def test_what_is_not_returned_at_the_end_either_was_not_decoded(bench, drained):
    it = bench({1: [], "drain": drained})
    it.feed(packet(0, key=True), packet(1))
    it.end()
    assert it.dropped == {DropReason.UNDECODED: 1}
    assert it.done == [None]


def test_a_frame_that_stays_away_is_given_up_after_the_longest_reordering(bench):
    it = bench({1: []})
    it.feed(packet(0, key=True), *(packet(token) for token in range(1, 66)))
    assert it.dropped == {}
    it.feed(packet(66))
    assert it.dropped == {DropReason.UNDECODED: 1}
    it.end()


def test_two_pictures_of_one_packet_count_once(bench, rig):
    it = bench({1: [1, 1]})
    it.feed(packet(0, key=True), packet(1), packet(2))
    it.end()
    assert results(rig, 3) == [0, 1, 2]
    assert it.ledger.snapshot().decoded == 3


def test_what_the_container_cuts_away_is_decoded_and_not_shown(bench, rig):
    it = bench()
    it.feed(packet(0, key=True, is_discard=True), packet(1, is_discard=True), packet(2))
    it.end()
    assert it.dropped == {DropReason.CUT: 2}
    assert results(rig, 1) == [2]


def test_without_time_stamps_frames_are_sampled_by_their_number(bench, rig):
    it = bench(fps=5)
    it.feed(*(replace(packet(token, key=token == 0), pts=None, dts=None) for token in range(20)))
    it.end()
    assert results(rig, 4) == [0, 5, 10, 15]
    assert it.dropped == {DropReason.SAMPLED_OUT: 16}


def test_key_frames_alone_need_no_reordering(bench, rig):
    it = bench({0: [], "drain": [0]}, keyframes_only=True, info=replace(INFO, codec="mpeg4"))
    it.feed(packet(0, key=True), packet(1), packet(2))
    assert results(rig, 1) == [0]
    assert it.infos[0].reorder_frames == 0
    it.feed(packet(3, key=True))
    assert len(it.decoders) == 2
    assert it.decoders[0].closed, "after a drain it takes no packet"
    it.end()
    assert it.dropped[DropReason.SAMPLED_OUT] == 2


def test_a_key_frame_that_gives_no_picture_is_booked_at_once(bench, rig):
    it = bench({0: [], "drain": []}, keyframes_only=True)
    it.feed(packet(0, key=True), packet(1))
    assert it.dropped == {DropReason.UNDECODED: 1, DropReason.SAMPLED_OUT: 1}
    it.feed(packet(2, key=True))
    assert results(rig, 1) == [2]
    it.end()


def test_up_is_told_once_with_the_first_frame(bench):
    it = bench({0: []})
    it.feed(packet(0, key=True))
    assert it.ups == []
    it.feed(packet(1), packet(2))
    it.end()
    assert it.ups == [(1, decoders.Choice("cpu", None))]


def test_done_is_told_once(bench):
    it = bench()
    it.feed(packet(0, key=True))
    it.end()
    it.decoding.abandon()
    it.feed()
    assert it.done == [None]


def test_an_abandoned_decoding_gives_up_what_waits_and_what_the_decoder_holds(bench):
    it = bench({1: [], 2: []})
    it.feed(packet(0, key=True), packet(1), packet(2))
    for one in (packet(3), packet(4)):
        it.ledger.received()
        it.inbox.put(one)
    it.decoding.abandon()
    it.feed()
    assert it.dropped == {DropReason.SHUTDOWN: 4}
    assert it.decoders[0].decoded == [0, 1, 2]
    assert it.decoders[0].closed
    assert it.done == [None]


def test_a_live_frame_without_a_slot_is_dropped(bench, rig, monkeypatch):
    it = bench()
    monkeypatch.setattr("streamd.engine.intake.Intake.take_slot", lambda _self: None)
    it.feed(packet(0, key=True), packet(1))
    it.end()
    assert it.dropped == {DropReason.OVERLOAD: 2}


def test_a_file_waits_while_the_engine_is_full(bench, rig):
    it = bench(live=False)
    rig.model.open.clear()
    it.feed(*(packet(token, key=token == 0) for token in range(100)))
    assert it.ledger.snapshot().decoded < 100
    rig.model.open.set()
    it.inbox.close()
    wait_until(lambda: it.feed() or it.done, what="all decoded")
    assert results(rig, 100) == list(range(100))


def test_a_step_leaves_time_for_other_cameras(bench):
    it = bench()
    for token in range(10):
        it.ledger.received()
        it.inbox.put(packet(token, key=token == 0))
    assert it.decoding.step()
    assert it.decoders[0].decoded == [0]
    it.feed()
    it.end()


def give_up_all(it):
    """What waits in the inbox, because it stays late."""
    for at_s in (40, 60):
        it.ledger.dropped(DropReason.OVERLOAD, it.inbox.give_up(time.monotonic_ns() + at_s * 10**9))


def test_after_a_gap_what_leads_the_key_frame_is_not_shown(bench, rig):
    it = bench({5: [], 6: [], 7: [6, 5, 7]})
    it.feed(packet(0, key=True), packet(1))
    for token in (2, 3, 4):
        it.ledger.received()
        it.inbox.put(packet(token))
    give_up_all(it)
    it.feed(packet(5, key=True, pts=7), packet(6, pts=6), packet(7, pts=8))
    it.end()
    assert it.decoders[0].decoded == [0, 1, 5, 6, 7]
    assert it.dropped == {DropReason.OVERLOAD: 3, DropReason.BEFORE_KEYFRAME: 1}
    assert results(rig, 4) == [0, 1, 5, 7]


def test_frames_from_before_a_gap_that_come_late_are_shown(bench, rig):
    it = bench({1: [], 2: [], 5: [1, 2], 6: [], 7: [6, 5, 7]})
    it.feed(packet(0, key=True), packet(1), packet(2))
    for token in (3, 4):
        it.ledger.received()
        it.inbox.put(packet(token))
    give_up_all(it)
    it.feed(packet(5, key=True, pts=7), packet(6, pts=6), packet(7, pts=8))
    it.end()
    assert it.dropped == {DropReason.OVERLOAD: 2, DropReason.BEFORE_KEYFRAME: 1}
    assert results(rig, 5) == [0, 1, 2, 5, 7]


def test_pictures_that_lead_a_key_frame_without_a_gap_before_it_are_shown(bench, rig):
    it = bench({2: [], 3: [3, 2]})
    it.feed(packet(0, key=True), packet(1), packet(2, key=True, pts=3), packet(3, pts=2))
    it.end()
    assert it.dropped == {}
    assert results(rig, 4) == [0, 1, 3, 2]


def test_a_step_gives_up_what_has_stayed_late(bench):
    it = bench()
    old_ns = time.monotonic_ns() - 50 * 10**9
    for token in range(4):
        it.ledger.received()
        it.inbox.put(packet(token, key=token == 0, received_ns=old_ns))
    assert it.inbox.give_up(old_ns + 40 * 10**9) == 0
    it.work()
    assert it.decoders == []
    assert it.dropped == {DropReason.OVERLOAD: 4}
    it.end()


def test_a_frame_that_is_too_old_when_it_is_decoded_takes_no_slot(bench, rig, monkeypatch):
    it = bench()
    monkeypatch.setattr("streamd.engine.intake.Intake.take_slot", lambda _self: pytest.fail("took a slot"))
    it.feed(packet(0, key=True, received_ns=time.monotonic_ns() - 61 * 10**9))
    it.end()
    assert it.decoders[0].decoded == [0]
    assert it.dropped == {DropReason.STALE: 1}


def test_what_has_ended_is_the_most_urgent(bench):
    it = bench()
    assert it.decoding.strand.urgency() == (0, 0.0)
    it.decoding.abandon()
    assert it.decoding.strand.urgency() == MOST
    it.feed()
