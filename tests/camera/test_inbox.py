"""A live inbox gives up whole stretches up to a key frame and counts them, when it is full or its packets stay late; a file's inbox makes
its reader wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wait import wait_until

from streamd.camera import inbox as module
from streamd.camera.inbox import MAX_BYTES, MAX_PACKETS, Inbox
from streamd.types import Packet


def packet(token: int, *, is_key: bool = False, size: int = 1, at_ms: int = 0) -> Packet:
    return Packet(
        data=bytes(size),
        token=token,
        pts=token,
        dts=token,
        is_keyframe=is_key,
        is_corrupt=False,
        is_discard=False,
        received_ns=at_ms * 1_000_000,
        captured_ns=0,
    )


def emptied(inbox: Inbox) -> list[int]:
    return [taken.token for taken in iter(inbox.take, None)]


def full_of_a_file() -> Inbox:
    inbox = Inbox(max_age_s=None)
    for token in range(MAX_PACKETS):
        assert inbox.put(packet(token)) == 0
    return inbox


@pytest.fixture
def blocked_put() -> Iterator[Callable[[Inbox, Packet], tuple[threading.Thread, list[int]]]]:
    """Puts on a thread of its own, and returns once that waits inside of `put`."""
    threads = []

    def begin(inbox: Inbox, item: Packet) -> tuple[threading.Thread, list[int]]:
        lost: list[int] = []
        thread = threading.Thread(target=lambda: lost.append(inbox.put(item)))
        threads.append(thread)
        thread.start()
        wait_until(lambda: inbox._ready._waiters, what="a reader that waits")
        assert lost == []
        return thread, lost

    yield begin
    for thread in threads:
        thread.join(5)


def test_packets_come_out_in_the_order_they_went_in():
    inbox = Inbox(max_age_s=1.0)
    for token in range(5):
        assert inbox.put(packet(token, is_key=token == 0)) == 0
    assert emptied(inbox) == [0, 1, 2, 3, 4]
    assert inbox.take() is None


PUT_KEY, PUT, TAKE = "put a key frame", "put", "take"


@settings(deadline=None)
@given(st.lists(st.sampled_from([PUT_KEY, PUT, PUT, PUT, TAKE, TAKE]), max_size=80), st.lists(st.integers(1, 9), min_size=1))
def test_a_live_inbox_counts_what_it_gives_up_and_goes_on_at_a_key_frame_only(actions, sizes):
    with patch.object(module, "MAX_PACKETS", 6), patch.object(module, "MAX_BYTES", 24):
        inbox = Inbox(max_age_s=1.0)
        keys, taken, put, lost = set(), [], 0, 0
        for action in actions:
            if action == TAKE:
                if (got := inbox.take()) is not None:
                    taken.append(got.token)
                continue
            if action == PUT_KEY:
                keys.add(put)
            lost += inbox.put(packet(put, is_key=action == PUT_KEY, size=sizes[put % len(sizes)]))
            put += 1
            assert len(inbox._packets) <= 6
            assert inbox._bytes == sum(len(waiting.data) for waiting in inbox._packets) < 24 + 9
        taken += emptied(inbox)
    assert put == len(taken) + lost
    assert taken == sorted(set(taken))
    after_a_gap = {token for before, token in zip([-1, *taken], taken, strict=False) if token != before + 1}
    assert after_a_gap <= keys


def test_a_full_live_inbox_waits_for_the_next_key_frame():
    inbox = Inbox(max_age_s=1.0)
    for token in range(MAX_PACKETS):
        assert inbox.put(packet(token, is_key=token == 0)) == 0
    assert inbox.put(packet(MAX_PACKETS)) == MAX_PACKETS + 1
    assert inbox.put(packet(MAX_PACKETS + 1)) == 1
    assert inbox.take() is None
    assert inbox.put(packet(MAX_PACKETS + 2, is_key=True)) == 0
    assert inbox.put(packet(MAX_PACKETS + 3)) == 0
    assert emptied(inbox) == [MAX_PACKETS + 2, MAX_PACKETS + 3]


def test_a_key_frame_that_finds_a_live_inbox_full_is_kept_itself():
    inbox = Inbox(max_age_s=1.0)
    for token in range(MAX_PACKETS):
        inbox.put(packet(token, is_key=True))
    assert inbox.put(packet(MAX_PACKETS, is_key=True)) == MAX_PACKETS
    assert emptied(inbox) == [MAX_PACKETS]


def test_a_few_huge_packets_fill_an_inbox_too():
    inbox = Inbox(max_age_s=1.0)
    assert inbox.put(packet(0, is_key=True, size=MAX_BYTES)) == 0
    assert inbox.put(packet(1)) == 2
    assert inbox.put(packet(2, is_key=True, size=MAX_BYTES)) == 0
    assert emptied(inbox) == [2]


def test_the_reader_of_a_file_waits_until_there_is_room_and_nothing_is_lost(blocked_put):
    inbox = full_of_a_file()
    thread, lost = blocked_put(inbox, packet(MAX_PACKETS))
    half = [inbox.take().token for _ in range(MAX_PACKETS // 2)]
    assert half == list(range(MAX_PACKETS // 2))
    thread.join(5)
    assert lost == [0]
    assert emptied(inbox) == list(range(MAX_PACKETS // 2, MAX_PACKETS + 1))


def test_close_releases_the_waiting_reader_and_leaves_what_is_queued(blocked_put):
    inbox = full_of_a_file()
    thread, lost = blocked_put(inbox, packet(MAX_PACKETS))
    inbox.close()
    thread.join(5)
    assert lost == [1]
    assert not inbox.is_exhausted
    assert emptied(inbox) == list(range(MAX_PACKETS))
    assert inbox.is_exhausted


def test_clear_releases_the_waiting_reader_and_counts_what_was_queued(blocked_put):
    inbox = full_of_a_file()
    thread, lost = blocked_put(inbox, packet(MAX_PACKETS))
    assert inbox.clear() == MAX_PACKETS
    thread.join(5)
    assert lost == [1]
    assert inbox.is_exhausted
    assert inbox.clear() == 0


@pytest.mark.parametrize("live", [True, False])
def test_a_packet_that_comes_after_close_is_given_up_alone(live):
    inbox = Inbox(max_age_s=1.0 if live else None)
    for token in range(MAX_PACKETS):
        inbox.put(packet(token, is_key=token == 0))
    inbox.close()
    assert inbox.put(packet(MAX_PACKETS)) == 1
    assert inbox.put(packet(MAX_PACKETS + 1, is_key=True)) == 1
    assert emptied(inbox) == list(range(MAX_PACKETS))


def test_an_open_inbox_is_not_exhausted_when_it_is_empty():
    inbox = Inbox(max_age_s=1.0)
    assert not inbox.is_exhausted
    inbox.close()
    assert inbox.is_exhausted


def test_a_file_passes_whole_from_one_thread_to_another():
    count, inbox, taken = 20 * MAX_PACKETS, Inbox(max_age_s=None), []

    def read() -> None:
        for token in range(count):
            assert inbox.put(packet(token)) == 0
        inbox.close()

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: taken.extend(emptied(inbox)) or inbox.is_exhausted, what="the end of the file")
    reader.join(5)
    assert taken == list(range(count))


# --- age; max_age is 1 s: late after 500 ms, and judged after 125 ms more


def live_inbox(*arrivals_ms: int, keys: frozenset[int] = frozenset({0})) -> Inbox:
    """Packets that arrived at these times; `keys` are the numbers of the key frames."""
    inbox = Inbox(max_age_s=1.0)
    for token, at_ms in enumerate(arrivals_ms):
        assert inbox.put(packet(token, is_key=token in keys, at_ms=at_ms)) == 0
    return inbox


def give_up(inbox: Inbox, at_ms: int) -> int:
    return inbox.give_up(at_ms * 1_000_000)


def test_packets_may_be_late_for_a_while():
    inbox = live_inbox(0, 100, 200)
    assert [give_up(inbox, at_ms) for at_ms in (500, 501, 625)] == [0, 0, 0]
    assert give_up(inbox, 626) == 3
    assert inbox.is_skipping


def test_everything_before_the_newest_key_frame_that_waits_is_given_up():
    inbox = live_inbox(0, 100, 200, 300, 400, keys=frozenset({0, 2, 3}))
    assert give_up(inbox, 550) == 0
    assert give_up(inbox, 700) == 3
    assert not inbox.is_skipping
    assert emptied(inbox) == [3, 4]


def test_without_a_key_frame_that_waits_all_is_given_up_to_the_next_one():
    inbox = live_inbox(0, 100, 200)
    give_up(inbox, 550)
    assert give_up(inbox, 700) == 3
    assert inbox.put(packet(3, at_ms=710)) == 1
    assert inbox.put(packet(4, is_key=True, at_ms=720)) == 0
    assert inbox.put(packet(5, at_ms=730)) == 0
    assert emptied(inbox) == [4, 5]


def test_after_a_stall_nothing_is_given_up_while_decoding_catches_up():
    inbox = live_inbox(*range(0, 600, 20))
    for now_ms in range(600, 900, 10):  # two packets for each that arrives
        assert give_up(inbox, now_ms) == 0
        inbox.take()
        if now_ms % 20 == 0:
            assert inbox.put(packet(now_ms // 20, at_ms=now_ms)) == 0
    assert inbox.lost_share == 0


def test_what_does_not_catch_up_is_given_up_however_little_it_is_late():
    inbox, lost = live_inbox(*range(0, 520, 20)), 0
    for now_ms in range(520, 800, 20):  # one packet for each that arrives: always 26 of them wait
        lost += give_up(inbox, now_ms)
        inbox.take()
        lost += inbox.put(packet(now_ms // 20, at_ms=now_ms))
    assert lost >= 26


def test_packets_that_never_get_a_turn_are_given_up_as_new_ones_arrive():
    inbox = live_inbox(0)
    lost = [inbox.put(packet(token, is_key=token == 30, at_ms=40 * token)) for token in range(1, 40)]
    assert lost[:15] == [0] * 15, "not before 625 ms"
    assert sum(lost) == 30
    assert emptied(inbox) == list(range(30, 40))


def test_a_stall_shorter_than_the_patience_costs_nothing():
    inbox = Inbox(max_age_s=1.0)
    assert sum(inbox.put(packet(token, is_key=token == 0, at_ms=40 * token)) for token in range(16)) == 0
    assert give_up(inbox, 620) == 0


def test_the_packets_of_a_file_are_never_too_old():
    inbox = Inbox(max_age_s=None)
    inbox.put(packet(0, is_key=True))
    assert [give_up(inbox, at_ms) for at_ms in (10_000, 20_000, 30_000)] == [0, 0, 0]
    assert emptied(inbox) == [0]


def test_what_waits_when_a_live_stream_ends_is_still_decoded():
    inbox = live_inbox(0, 100, 200)
    inbox.close()
    assert [give_up(inbox, at_ms) for at_ms in (10_000, 20_000)] == [0, 0]
    assert emptied(inbox) == [0, 1, 2]


def test_the_lost_share_tells_of_the_last_seconds_and_forgets():
    inbox = live_inbox(0, 100, 200, 300)
    give_up(inbox, 550)
    assert give_up(inbox, 700) == 4
    assert inbox.lost_share == 1.0
    assert inbox.is_starved
    for token in range(4, 8):
        inbox.put(packet(token, is_key=True, at_ms=700))
        inbox.take()
    assert inbox.lost_share == pytest.approx(0.5)
    assert not inbox.is_starved
    inbox.put(packet(8, at_ms=40_700))
    inbox.take()
    assert inbox.lost_share < 0.1
