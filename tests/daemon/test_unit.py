"""The systemd unit."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "systemd" / "streamd.service"
TEXT = UNIT.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    # verify looks for the programs, which are installed elsewhere here.
    unit = tmp_path / "streamd.service"
    unit.write_text(re.sub(r"(?m)^(Exec\w+=[-+]*)\S+", r"\1/bin/true", TEXT))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("setting", ["PrivateDevices=yes", "ProcSubset=pid", "MemoryDenyWriteExecute=yes", "PrivateNetwork=yes"])
def test_the_hardening_does_not_hide_the_gpu_or_the_cameras(setting):
    assert not re.search(rf"(?m)^{setting}", TEXT)


def test_exit_codes_that_no_restart_can_help_are_not_restarted():
    assert re.search(r"(?m)^RestartPreventExitStatus=64 66 78$", TEXT)
    assert re.search(r"(?m)^Restart=on-failure$", TEXT)


def test_systemd_waits_longer_for_the_stop_than_the_daemon_for_its_workers():
    from streamd.config.types import EngineConfig

    (stop_s,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", TEXT)
    assert int(stop_s) >= EngineConfig().shutdown_timeout + 10
