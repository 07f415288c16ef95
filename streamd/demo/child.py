"""Child processes that end with us: when we ask, when we leave, and by the kernel's hand when we are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Run by a bare interpreter between fork and the program itself: prctl(PR_SET_PDEATHSIG) holds across exec. Popen's preexec_fn would do it
# without the detour, but is not safe where there are threads.
_LAUNCH = """
import ctypes, os, signal, sys
parent, program = int(sys.argv[1]), sys.argv[2:]
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == parent:
    os.execvp(program[0], program)
"""


class Child:
    """One process, in a process group of its own, so that the terminal's Ctrl-C is ours to pass on."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log
        """What it wrote to standard output and error."""

    @classmethod
    async def start(cls, program: Sequence[str], *, log: Path, environ: Mapping[str, str] | None = None) -> Child:
        """Start `program`, whose first word is the path of an executable."""
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid())]
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *launcher,
                *program,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=None if environ is None else dict(environ),
                process_group=0,
            )
        return cls(process, log)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        return await self._process.wait()

    async def stop(self, *, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL after `timeout_s`, or at once where this is cancelled. It has ended when this returns."""
        try:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            self.kill()
            await self._process.wait()
        except asyncio.CancelledError:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL; nothing happens where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def last_lines(self, count: int) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
