"""The checks that run after each test, seen failing: each is given a test of its own that leaves something behind."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import structlog
from support import invariants
from support.invariants import logging_restored, no_task_left, nothing_left
from support.require import require


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr(invariants, "GRACE_S", 0.05)


def test_a_thread_that_is_left_is_reported():
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="lost")
    with pytest.raises(AssertionError, match=r"threads left.*lost"), nothing_left():
        thread.start()
    end.set()
    thread.join()


def test_a_process_that_is_left_is_reported():
    with pytest.raises(AssertionError, match=r"processes left.*sleep"), nothing_left():
        process = subprocess.Popen(["sleep", "60"])
    process.kill()
    process.wait()


def test_a_changed_environment_and_folder_are_reported(tmp_path, monkeypatch):
    with pytest.raises(AssertionError, match=r"environment changed.*STREAMD_LOST"), nothing_left():
        monkeypatch.setenv("STREAMD_LOST", "1")
    before = Path.cwd()
    with pytest.raises(AssertionError, match="working directory changed"), nothing_left():
        os.chdir(tmp_path)
    assert Path.cwd() == before


async def test_a_task_that_is_left_is_reported_and_cancelled():
    task = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(AssertionError, match="tasks left"):
        await no_task_left()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_ends_in_time_is_not_reported():
    with nothing_left():
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)
        threading.Thread(target=lambda: None).start()


def test_the_logging_configuration_is_put_back():
    before = structlog.get_config()
    with logging_restored():
        structlog.configure(processors=[])
    assert structlog.get_config() == before


def test_what_is_missing_skips_or_fails_as_the_environment_says(monkeypatch):
    require(1, "nothing")
    monkeypatch.delenv("STREAMD_TEST_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such server"):
        require(None, "no such server")
    monkeypatch.setenv("STREAMD_TEST_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="no such server"):
        require(None, "no such server")
