"""The real daemon over fake workers, with a sink that notes what it is given.

One argument: JSON with `folder` (it holds configs/), `timing`,
`sink` (good, breaks, breaks later, hangs) and `killable`. Where that is false SIGKILL
fails, as it does on a process that is stuck in a driver.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from streamd import eventloop, log
from streamd.config import load, secrets
from streamd.daemon.daemon import Daemon
from streamd.daemon.supervisor import Timing
from streamd.records import EventKind
from streamd.redact import add_secrets

given = json.loads(sys.argv[1])
folder = Path(given["folder"])


class NotingSink:
    async def start(self):
        pass

    def put(self, record):
        if given["sink"] == "breaks" or (given["sink"] == "breaks later" and getattr(record, "kind", None) is EventKind.UP):
            raise RuntimeError("the sink is broken")
        self._note({"type": type(record).__name__, **msgspec.to_builtins(record)})

    async def close(self, *, timeout_s):
        self._note({"type": "closing", "timeout_s": timeout_s})
        if given["sink"] == "hangs":
            await asyncio.sleep(60)
        self._note({"type": "closed"})
        return 0

    def _note(self, fact):
        with (folder / "records").open("a") as file:
            file.write(json.dumps(fact) + "\n")


async def main():
    path = folder / "configs" / "streamd.yaml"
    config = load(path)
    add_secrets(secrets(config))
    argv = (sys.executable, str(Path(__file__).parent / "fake_worker.py"), str(folder))
    daemon = Daemon(config, path, sink=NotingSink(), worker_argv=argv, timing=Timing(**given["timing"]), log_level="debug")
    return await daemon.run()


if not given["killable"]:
    asyncio.subprocess.Process.kill = lambda _process: None
log.configure(level="debug", json=True)
sys.exit(eventloop.run(main()))
