"""Children end when asked, and when we are killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.wait import wait_until, wait_until_async

from streamd.demo.child import Child

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(100)"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_its_output_and_exit_code_are_kept(log):
    child = await Child.start([sys.executable, "-c", "print('one\\ntwo'); raise SystemExit(3)"], log=log)
    assert (await child.wait(), child.exit_code, child.last_lines(1)) == (3, 3, "two")


async def test_it_has_the_environment_that_is_given(log):
    child = await Child.start([sys.executable, "-c", "import os; print(sorted(os.environ))"], log=log, environ={"ONLY": "this"})
    await child.wait()
    assert "'ONLY'" in child.last_lines(1)
    assert "'HOME'" not in child.last_lines(1)


async def test_one_that_ignores_sigterm_is_killed(log):
    child = await Child.start([sys.executable, "-c", STUBBORN], log=log)
    await wait_until_async(lambda: "ready" in log.read_text(), what="the child runs")
    await child.stop(timeout_s=0.05)
    assert child.exit_code == -signal.SIGKILL


async def test_one_that_has_ended_can_be_stopped(log):
    child = await Child.start(["/bin/true"], log=log)
    await child.wait()
    await child.stop(timeout_s=1)
    child.kill()
    assert child.exit_code == 0


def test_it_does_not_outlive_a_parent_that_is_killed(log):
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from streamd.demo.child import Child\n"
        "async def main():\n"
        f"    child = await Child.start(['/bin/sleep', '100'], log=Path({str(log)!r}))\n"
        "    print(child._process.pid, flush=True)\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", what="the launcher became the program")
        parent.kill()
    wait_until(lambda: not is_running(pid), what="the child ended")
