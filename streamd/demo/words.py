"""What the demo tells people, apart from results: what it chose and why, how to look for themselves, and what to try next."""

from __future__ import annotations

import sys
from pathlib import Path

from streamd.demo.clips import FPS, SIZE
from streamd.demo.plan import MODEL, PREFIX, Plan
from streamd.demo.redis_server import URL_VARIABLE, RedisAddress
from streamd.demo.screens import Summary


def prologue(plan: Plan) -> str:
    """What was chosen, and why."""
    if plan.redis is not None:
        redis = f"{plan.redis.url}, which ${URL_VARIABLE} names"
    else:
        redis = f"{plan.redis_binary}, on a free port of this machine, until the demo ends"
    device = f"{plan.device}: {plan.device_reason}" if plan.device == "auto" else f"{plan.device}, {plan.device_reason}"
    names = [camera.name for camera in plan.cameras]
    shown = ", ".join(names if len(names) <= 4 else [*names[:3], f"… {len(names)} in all"])
    return "\n".join(
        f"{name:<8} {text}"
        for name, text in (
            ("device", device),
            ("decoder", "the CPU's" if plan.fps < FPS else "NVDEC where it can, else the CPU's"),
            ("model", f"{MODEL}, which comes inside a package: nothing is downloaded"),
            ("redis", redis),
            (
                "cameras",
                f"{shown}: clips made of photographs, {SIZE[0]}x{SIZE[1]}, {FPS} frames a second; {plan.fps:g} a second are classified",
            ),
        )
    )


def while_it_runs(plan: Plan, redis: RedisAddress) -> str:
    """How to see the same results without us."""
    where = f"-u {redis.url}" if plan.redis is not None else f"-p {redis.url.rpartition(':')[2].partition('/')[0]}"
    key = f"{PREFIX}:results:{plan.cameras[0].name}"
    command = f"{plan.redis_cli} {where} XREAD BLOCK 5000 COUNT 3 STREAMS {key} '$'"
    return f"Starting the daemon. While it runs, the same results by hand:\n  {command}\n"


def command(argv0: str) -> str:
    """How streamd was called, to be typed again."""
    return f"{sys.executable} -m streamd" if Path(argv0).name == "__main__.py" else "streamd"


def epilogue(summary: Summary, *, command: str, redis: RedisAddress | None) -> str:
    """The next commands to try."""
    verdict = "Every camera's label is true. " if summary.ok else ""
    kept = f"\n\nThe results stay in that Redis, under {PREFIX}:*." if redis is not None else ""
    return f"""
{verdict}Next, a camera of your own; Redis at redis://127.0.0.1:6379 unless ${URL_VARIABLE} names another:
  mkdir -p configs/cameras && echo 'models: {{imagenet: {{builtin: {MODEL}}}}}' > configs/streamd.yaml
  {command} probe rtsp://HOST/PATH --username NAME --password - --write configs/cameras/door.yaml
  {command} run{kept}"""
