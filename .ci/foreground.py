"""Runs a command as the terminal's foreground job, so that Ctrl-C reaches it and not make, which would report an interrupt whatever the
command's own exit status. Signals sent to this process are passed on; the exit status is the command's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def is_foreground() -> bool:
    return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()


def main() -> int:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it would stop a background job that gives or takes the terminal
    has_terminal = is_foreground()

    def take_terminal() -> None:
        if has_terminal:
            os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)

    # In the child, before the command starts: a Ctrl-C just after its first line must find it in the foreground already.
    command = subprocess.Popen(sys.argv[1:], process_group=0, preexec_fn=take_terminal)  # noqa: PLW1509 - there is one thread
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: os.kill(command.pid, received))
    while True:
        _, status = os.waitpid(command.pid, os.WUNTRACED)
        if has_terminal:
            os.tcsetpgrp(0, os.getpgrp())
        if not os.WIFSTOPPED(status):
            break
        os.killpg(0, signal.SIGSTOP)  # Ctrl-Z: make stops too, and the shell has its prompt back until `fg`
        has_terminal = is_foreground()
        if has_terminal:
            os.tcsetpgrp(0, command.pid)
        os.killpg(command.pid, signal.SIGCONT)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
