"""What a benchmark says to people."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streamd.bench import report
from streamd.bench.usage import Usage


@pytest.mark.parametrize(
    ("usage", "sentence"),
    [
        (Usage(0.99, 0.8, 0.99, 1.0), "the decoder: NVDEC was 80% busy"),
        (Usage(0.9, 0.79, 0.99, 1.0), "the processors: 90% busy"),
        (Usage(0.9, None, None, None), "the processors: 90% busy"),
        (Usage(0.89, 0.79, 0.97, 1.0), "the GPU: 97% busy"),
        (Usage(0.89, 0.79, 0.96, 1.0), "the load itself: nothing was busy"),
        (Usage(0.0, None, None, None), "the load itself: nothing was busy"),
    ],
)
def test_the_limit_is_what_was_busy(usage, sentence):
    assert report.limit(usage) == sentence


def test_drops_without_anything_busy_point_to_single_threads(idle, measured):
    assert report.limit(idle, measured=measured) == "the load itself: nothing was busy"
    assert "single threads" in report.limit(idle, measured=replace(measured, dropped={"overload": 3}))


def test_a_result_becomes_one_flat_json_object(measured):
    flat = report.flat(replace(measured, dropped={"overload": 3}))
    assert "usage" not in flat
    assert (flat["cameras"], flat["usage_cpu"], flat["usage_gpu"], flat["dropped"]) == (4, 0.2, None, {"overload": 3})
    assert json.loads(json.dumps(flat)) == flat


def test_a_table_has_two_columns_and_leaves_out_what_is_none():
    shown = report.table({"cameras": 4, "p99_ms": 60.0, "usage_gpu": None})
    assert shown.splitlines() == ["cameras  4", "p99 ms   60.0"]
