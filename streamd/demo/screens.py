"""How the demo is shown: a table that changes in place on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Literal, Protocol, Self

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from streamd.demo.tally import CameraSummary, Tally
from streamd.records import Result
from streamd.sinks.payload import line

_REFRESH_S = 0.1
_LINE_EVERY_S = 1.0


class Summary(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="summary"):
    """The last line of `streamd demo --json`."""

    ok: bool
    """Most results of every camera were true."""
    seconds: float
    """From the start of the demo to its end."""
    cameras: list[CameraSummary]


class Screen(Protocol):
    """Where the demo writes. Used as a context manager, around all of the rest."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def say(self, text: str) -> None:
        """A line for people."""
        ...

    def result(self, tally: Tally, result: Result) -> None:
        """A result, already counted in the tally of its camera."""
        ...

    def summary(self, summary: Summary) -> None:
        """The end."""
        ...


class JsonScreen:
    """One JSON object a line: each result as it stands in Redis, with `"type":"result"`, and a Summary. Words go to standard error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")

    def result(self, _tally: Tally, result: Result) -> None:
        self._write(line(result))

    def summary(self, summary: Summary) -> None:
        self._write(msgspec.json.encode(summary) + b"\n")

    @staticmethod
    def _write(data: bytes) -> None:
        sys.stdout.write(data.decode())
        sys.stdout.flush()


class LineScreen:
    """For pipes and logs: a camera's first result, then one a second at most."""

    def __init__(self) -> None:
        self._shown_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def say(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def result(self, tally: Tally, _result: Result) -> None:
        name, now_s = tally.camera.name, time.monotonic()
        if tally.results == 1:
            self.say(f"{_describe(tally)}  first result after {tally.first_after_s} s")
        elif now_s - self._shown_s[name] >= _LINE_EVERY_S:
            self.say(_describe(tally))
        else:
            return
        self._shown_s[name] = now_s

    def summary(self, summary: Summary) -> None:
        self.say("")
        for camera in summary.cameras:
            self.say("  ".join(f"{cell:<{width}}" for cell, width in zip(_cells(camera), (12, 12, 20, 5, 8), strict=True)).rstrip())


class LiveScreen:
    """For terminals."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self._tallies = tallies
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def result(self, tally: Tally, _result: Result) -> None:
        now_s = time.monotonic()
        if tally.results > 1 and now_s - self._drawn_s < _REFRESH_S:
            return
        self._drawn_s = now_s
        table = _table("camera", "label", "score", "true", "results", "first after", "latency p50")
        for each in self._tallies:
            label = each.latest
            known = ("", "", "") if label is None else (label.label, f"{label.score:.2f}", _yes(each.is_true(label)))
            times = (_number(each.first_after_s, "s"), _number(each.latency_p50_ms, "ms"))
            table.add_row(each.camera.name, *known, str(each.results), *times)
        self._live.update(table, refresh=True)

    def summary(self, summary: Summary) -> None:
        self._live.stop()
        table = _table("camera", "", "label", "true", "latency p50")
        for camera in summary.cameras:
            table.add_row(*_cells(camera))
        self._console.print(table)


def choose(tallies: Sequence[Tally], *, as_json: bool) -> Screen:
    """The one that fits standard output."""
    if as_json:
        return JsonScreen()
    return LiveScreen(tallies) if sys.stdout.isatty() else LineScreen()


def _describe(tally: Tally) -> str:
    label = tally.latest
    if label is None:
        return f"{tally.camera.name:<12} no confident label"
    return f"{tally.camera.name:<12} {label.label:<20} {label.score:.2f}  {'true' if tally.is_true(label) else 'not true'}"


def _cells(camera: CameraSummary) -> tuple[str, str, str, str, str]:
    results = f"{camera.results} result{'' if camera.results == 1 else 's'}"
    return camera.camera, results, camera.label or "none", _yes(camera.is_true), _number(camera.latency_p50_ms, "ms")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        side: Literal["left", "right"] = "right" if column in {"score", "results", "first after", "latency p50"} else "left"
        table.add_column(column, justify=side)
    return table


def _yes(value: bool) -> str:  # noqa: FBT001 - its one argument
    return "true" if value else "wrong"


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:g} {unit}"
