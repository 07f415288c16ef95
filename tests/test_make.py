"""`make demo` in a terminal: Ctrl-C reaches the command, which decides on the exit status."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

FOREGROUND = Path(__file__).resolve().parent.parent / ".ci" / "foreground.py"
PATIENCE_S = 20
# Ends with 0 at the first SIGINT, like the demo; with 9 if none comes.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
print("started", flush=True)
signal.sigtimedwait([], 20)
sys.exit(9)
"""


def run_in_terminal(makefile: Path, *, keys: bytes) -> tuple[int, str]:
    """Exit status and output of make, which gets the keys once its command has started."""
    # `make test` must not make this make its child, which would report the folders it enters.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("make", ["make", "--file", str(makefile)], environment)
    output, deadline, is_sent = b"", time.monotonic() + PATIENCE_S, False
    try:
        while select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                output += os.read(terminal, 4096)
            except OSError:  # Linux reports the last close of the other side so
                break
            if not is_sent and b"started\r\n" in output:
                os.write(terminal, keys)
                is_sent = True
        else:
            os.kill(pid, signal.SIGTERM)
    finally:
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, output.decode()


def test_ctrl_c_reaches_the_command_and_make_ends_as_the_command_does(tmp_path):
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"all:\n\t@exec '{sys.executable}' '{FOREGROUND}' '{sys.executable}' '{script}'\n")
    assert run_in_terminal(makefile, keys=b"\x03") == (0, "started\r\n^C")
    makefile.write_text(f"all:\n\t@exec '{sys.executable}' '{script}'\n")
    assert run_in_terminal(makefile, keys=b"\x03")[0] == -signal.SIGINT, "make passes the exit status on by itself: foreground.py can go"


def test_without_a_terminal_signals_are_passed_on_and_the_status_is_the_commands(tmp_path):
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    run = [sys.executable, str(FOREGROUND), sys.executable, str(script)]
    with subprocess.Popen(run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"started\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    failed = subprocess.run([*run[:2], sys.executable, "-c", "raise SystemExit(7)"], stdin=subprocess.DEVNULL, check=False)
    assert failed.returncode == 7
