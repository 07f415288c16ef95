"""From scores to a result: labels by confidence, latencies that add up, and times that consumers know."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamd import records
from streamd.records import Outcome
from streamd.types import FrameRef, Scores
from streamd.worker.results import result_of

LABELS = ("cat", "dog", "cup", "bus")
REF = FrameRef(
    camera="door",
    session="ab12",
    sequence=41,
    pts=90_000,
    time_base=Fraction(1, 90_000),
    captured_ns=1_700_000_000_123_999_999,
    received_ns=1_000_000,
    decoded_ns=3_000_000,
)
SCORES = Scores(
    ref=REF,
    classes=(2, 0, 3),
    probabilities=(0.7, 0.2, 0.05),
    ready_ns=4_500_000,
    batched_ns=9_500_000,
    inferred_ns=12_000_000,
    batch_size=2,
)


def result(scores: Scores = SCORES, *, min_confidence: float = 0.0, dropped: int = 0) -> records.Result:
    return result_of(scores, model="imagenet", labels=LABELS, min_confidence=min_confidence, dropped=dropped)


def test_a_result_says_which_frame_it_is_about():
    made = result(dropped=3)
    assert (made.camera, made.session, made.sequence, made.model, made.dropped) == ("door", "ab12", 41, "imagenet", 3)
    assert (made.pts, made.time_base) == (90_000, "1/90000")
    assert (made.captured_ms, made.captured_by) == (1_700_000_000_123, "arrival")
    assert made.schema == records.SCHEMA_VERSION


def test_labels_carry_name_index_and_score_best_first():
    made = result()
    assert [(label.label, label.index, label.score) for label in made.labels] == [("cup", 2, 0.7), ("cat", 0, 0.2), ("bus", 3, 0.05)]
    assert made.outcome is Outcome.LABEL


@pytest.mark.parametrize(("min_confidence", "names"), [(0.0, ["cup", "cat", "bus"]), (0.2, ["cup", "cat"]), (0.3, ["cup"]), (0.7, ["cup"])])
def test_labels_below_the_least_confidence_are_left_out(min_confidence, names):
    assert [label.label for label in result(min_confidence=min_confidence).labels] == names


def test_a_frame_without_a_confident_label_says_so():
    made = result(min_confidence=0.71)
    assert (made.outcome, made.labels) == (Outcome.NO_CONFIDENT_LABEL, [])


def test_a_model_that_gives_no_numbers_has_no_confident_label():
    made = result(replace(SCORES, probabilities=(math.nan,) * 3))
    assert made.outcome is Outcome.NO_CONFIDENT_LABEL


def test_stages_are_told_in_milliseconds():
    latency = result().latency_ms
    assert (latency.decode, latency.preprocess, latency.batch, latency.infer, latency.total) == (2.0, 1.5, 5.0, 2.5, 11.0)


@settings(deadline=None)
@given(st.integers(0, 2**62), st.lists(st.integers(0, 10**11), min_size=4, max_size=4))
def test_the_stages_add_up_to_the_total_within_rounding(received_ns, steps_ns):
    decoded_ns = received_ns + steps_ns[0]
    ready_ns = decoded_ns + steps_ns[1]
    batched_ns = ready_ns + steps_ns[2]
    ref = replace(REF, received_ns=received_ns, decoded_ns=decoded_ns)
    scores = replace(SCORES, ref=ref, ready_ns=ready_ns, batched_ns=batched_ns, inferred_ns=batched_ns + steps_ns[3])
    latency = result(scores).latency_ms
    assert latency.decode + latency.preprocess + latency.batch + latency.infer == pytest.approx(latency.total, rel=1e-12, abs=0.0026)
    assert latency.total == pytest.approx(sum(steps_ns) / 1e6, abs=0.0006)


def test_a_frame_without_a_time_stamp_says_so():
    assert result(replace(SCORES, ref=replace(REF, pts=None))).pts is None


@settings(deadline=None)
@given(st.floats(0, 1, width=32), st.floats(0, 1))
def test_scores_stay_within_the_published_range_and_records_can_be_encoded(probability, min_confidence):
    made = result(replace(SCORES, classes=(1,), probabilities=(probability,)), min_confidence=min_confidence)
    assert all(0 <= label.score <= 1 for label in made.labels)
    assert (made.outcome is Outcome.LABEL) == (probability >= min_confidence)
    assert b'"camera":"door"' in records.encode(made)
