"""The line for `systemctl status`."""

import os

from streamd.config import Config
from streamd.daemon.cameras import Cameras
from streamd.daemon.notify import Notifier
from streamd.daemon.status import Status
from streamd.types import Ledger
from streamd.worker.protocol import Counts


def test_the_status_has_the_frames_a_second_of_all_workers(systemd, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
    notifier = Notifier(os.environ)
    config = Config.model_validate({"models": {"m": {"torchvision": "resnet50"}}, "cameras": {"door": {"url": "rtsp://door/1"}}})
    status = Status(notifier, Cameras(config, put=lambda _record: None))
    status.say()
    for worker, rate in (("w0", 50), ("w1", 37.5)):
        for second in (1, 11):
            ledger = Ledger(published=int(rate * second))
            status.counted(worker, Counts({"door": ledger}, sink_queue=0, batches=0, latency=[], cpu_s=0.0, at_ns=second * 10**9))
    status.say()
    status.forget("w1")
    status.say()
    notifier.close()
    assert systemd.messages[:2] == ["STATUS=0 of 1 cameras up", "STATUS=0 of 1 cameras up, 87.5 frames/s"]
    assert systemd.messages[2:] == ["STATUS=0 of 1 cameras up, 50.0 frames/s"]
