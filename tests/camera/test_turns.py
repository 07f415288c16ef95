"""The most urgent goes first, equals in the order in which they asked, and nobody waits twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamd.camera.turns import LEAST, MOST, Turns


def all_of(turns: Turns[str]) -> list[str]:
    return [turns.next() for _ in range(len(turns))]


def test_equals_come_up_in_the_order_in_which_they_asked():
    turns: Turns[str] = Turns()
    for name in "cab":
        turns.ask(name, LEAST)
    assert all_of(turns) == ["c", "a", "b"]


def test_a_higher_rank_goes_first_then_who_lost_most():
    turns: Turns[str] = Turns()
    for name, urgency in {"a": (1, 0.9), "b": (2, 0.0), "c": (2, 0.5), "d": MOST}.items():
        turns.ask(name, urgency)
    assert all_of(turns) == ["d", "c", "b", "a"]


def test_who_waits_keeps_its_place_when_it_asks_again():
    turns: Turns[str] = Turns()
    for name in ("a", "b", "a"):
        turns.ask(name, LEAST)
    assert "a" in turns
    assert all_of(turns) == ["a", "b"]
    assert "a" not in turns


def test_asking_with_more_urgency_moves_forward_and_with_less_changes_nothing():
    turns: Turns[str] = Turns()
    for name, urgency in (("a", (1, 0.0)), ("b", (1, 0.0)), ("b", MOST), ("b", LEAST)):
        turns.ask(name, urgency)
    assert all_of(turns) == ["b", "a"]


def test_nobody_waits_at_first():
    turns: Turns[str] = Turns()
    assert not turns
    with pytest.raises(IndexError):
        turns.next()


@given(st.lists(st.one_of(st.none(), st.tuples(st.sampled_from("abcd"), st.integers(0, 3)))))
def test_whoever_comes_up_is_the_most_urgent(actions):
    turns, waiting = Turns(), {}
    for action in actions:
        if action is not None:
            name, rank = action
            turns.ask(name, (rank, 0.0))
            waiting[name] = max(rank, waiting.get(name, rank))
        elif waiting:
            highest = max(waiting.values())
            assert waiting.pop(turns.next()) == highest
        assert len(turns) == len(waiting)
