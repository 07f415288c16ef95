"""When a camera's labels count as true."""

from support import records

from streamd.demo.photographs import PHOTOGRAPHS
from streamd.demo.plan import DemoCamera
from streamd.demo.tally import Tally, all_true
from streamd.records import Result


def result(*labels: str, total_ms: float = 20.0) -> Result:
    return records.result("cat", labels=labels, score=0.5, total_ms=total_ms)


def tally(*results: Result) -> Tally:
    tally = Tally(DemoCamera("cat", PHOTOGRAPHS[0]))
    for number, each in enumerate(results):
        tally.add(each, after_s=4.0 + number)
    return tally


def test_any_of_the_true_labels_counts():
    summary = tally(result("tabby", "moped"), result("Egyptian cat"), result("Egyptian cat", total_ms=40), result("lynx")).summary()
    assert (summary.results, summary.label, summary.is_true, summary.first_after_s) == (4, "Egyptian cat", True, 4.0)
    assert summary.latency_p50_ms == 20


def test_a_label_counts_only_where_it_is_the_best():
    assert not tally(result("moped", "tabby")).summary().is_true


def test_most_results_must_be_true():
    assert not tally(result("tabby"), result("lynx")).summary().is_true
    assert not tally(result("tabby"), result(), result()).summary().is_true


def test_a_camera_without_results_is_not_true():
    summary = tally().summary()
    assert (summary.is_true, summary.label, summary.first_after_s, summary.latency_p50_ms) == (False, None, None, None)
    assert not all_true([tally(result("tabby")).summary(), summary])
    assert all_true([tally(result("tabby")).summary()])
