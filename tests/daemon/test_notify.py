"""What systemd is told."""

import os

import pytest

from streamd.daemon.notify import Notifier


@pytest.fixture
def notifier(systemd, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
    notifier = Notifier(os.environ)
    yield notifier
    notifier.close()


def test_each_message_arrives(notifier, systemd):
    notifier.status("loading models")
    notifier.ready()
    notifier.watchdog()
    notifier.stopping()
    assert systemd.messages == ["STATUS=loading models", "READY=1", "WATCHDOG=1", "STOPPING=1"]


def test_a_status_is_sent_again_only_when_it_says_something_new(notifier, systemd):
    for text in ("1 of 2", "1 of 2", "2 of 2"):
        notifier.status(text)
    assert systemd.messages == ["STATUS=1 of 2", "STATUS=2 of 2"]


def test_without_systemd_nothing_happens():
    notifier = Notifier({"WATCHDOG_USEC": "30000000"})
    assert notifier.watchdog_interval_s is None
    notifier.ready()
    notifier.close()


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_the_process_that_systemd_means(systemd, monkeypatch, environ, interval_s):
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
    notifier = Notifier({"NOTIFY_SOCKET": systemd.address, **environ})
    notifier.close()
    assert notifier.watchdog_interval_s == interval_s
