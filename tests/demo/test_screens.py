"""What people and programs see."""

import json

import pytest
from support import records

from streamd.demo.photographs import PHOTOGRAPHS
from streamd.demo.plan import DemoCamera
from streamd.demo.screens import JsonScreen, LineScreen, LiveScreen, Summary, choose
from streamd.demo.tally import Tally
from streamd.records import Result


def result(label: str | None) -> Result:
    return records.result("cat", labels=(label,) if label else (), score=0.5, total_ms=20.0)


@pytest.fixture
def tally() -> Tally:
    return Tally(DemoCamera("cat", PHOTOGRAPHS[0]))


def show(screen, tally: Tally, *labels: str | None) -> None:
    with screen:
        screen.say("hello [bold]")
        for label in labels:
            tally.add(result(label), after_s=4.5)
            screen.result(tally, result(label))
        summary = tally.summary()
        screen.summary(Summary(ok=summary.is_true, seconds=5.0, cameras=[summary]))


def test_programs_get_the_records_and_nothing_else(tally, capsys):
    show(JsonScreen(), tally, "tabby", "lynx", "tabby")
    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    assert [line["type"] for line in lines] == ["result", "result", "result", "summary"]
    assert (lines[0]["labels"][0]["label"], lines[-1]["ok"], lines[-1]["cameras"][0]["label"]) == ("tabby", True, "tabby")
    assert captured.err == "hello [bold]\n"


def test_a_log_gets_the_first_result_and_not_each_of_the_others(tally, capsys):
    show(LineScreen(), tally, "tabby", "tabby", "tabby")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["hello [bold]", "cat          tabby                0.50  true  first result after 4.5 s"]
    assert len(lines) == 4
    assert "3 results" in lines[-1]


def test_what_is_not_true_is_said(tally, capsys):
    show(LineScreen(), tally, "lynx", None)
    out = capsys.readouterr().out
    assert "lynx                 0.50  not true" in out
    assert "wrong" in out


def test_a_terminal_gets_a_table(tally, capsys):
    show(LiveScreen([tally]), tally, "tabby", None, "lynx")
    out = capsys.readouterr().out
    assert "hello [bold]" in out
    assert "3 results" in out


def test_the_screen_fits_standard_output(tally):
    assert isinstance(choose([tally], as_json=True), JsonScreen)
    assert isinstance(choose([tally], as_json=False), LineScreen)
