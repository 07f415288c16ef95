"""Which event loop runs, with uvloop and without it."""

import asyncio
import sys

import pytest

from streamd import eventloop


async def kind_of_loop():
    await asyncio.sleep(0)
    return type(asyncio.get_running_loop()).__module__


def test_uvloop_runs_where_it_is_installed():
    pytest.importorskip("uvloop")
    assert eventloop.run(kind_of_loop()).startswith("uvloop")


def test_asyncios_own_loop_runs_where_uvloop_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert eventloop.run(kind_of_loop()).startswith("asyncio")


@pytest.mark.parametrize("without_uvloop", [False, True])
def test_errors_come_out_and_the_loop_is_closed(without_uvloop, monkeypatch):
    if without_uvloop:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    loops = []

    async def fail():
        loops.append(asyncio.get_running_loop())
        raise ValueError("it went wrong")

    with pytest.raises(ValueError, match="it went wrong"):
        eventloop.run(fail())
    assert loops[0].is_closed()
