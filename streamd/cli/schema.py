"""`streamd schema`: prints the JSON Schema of what people write (configuration) and of what programs read (records)."""

from __future__ import annotations

import enum
import json
from typing import Any

import typer

from streamd.cli import app


class Subject(enum.StrEnum):
    CONFIG = "config"
    CAMERA = "camera"
    RESULT = "result"
    EVENT = "event"
    STATE = "state"
    REMOVED = "removed"


@app.command()
def schema(
    subject: Subject = typer.Argument(
        help="config: streamd.yaml; camera: a file in cameras/; result, event, state, removed: records in Redis and JSON lines."
    ),
) -> None:
    """Print a JSON Schema (draft 2020-12)."""
    typer.echo(json.dumps(_schema(subject), indent=2, ensure_ascii=False))


def _schema(subject: Subject) -> dict[str, Any]:
    from streamd.config.schema import DIALECT, camera_schema, main_schema

    if subject is Subject.CONFIG:
        return main_schema()
    if subject is Subject.CAMERA:
        return camera_schema()

    import msgspec

    from streamd.records import CameraRemoved, CameraState, Event, Result

    record = {Subject.RESULT: Result, Subject.EVENT: Event, Subject.STATE: CameraState, Subject.REMOVED: CameraRemoved}[subject]
    return {"$schema": DIALECT, **msgspec.json.schema(record)}
