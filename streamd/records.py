"""The records that consumers read: Result, Event and CameraState. This is a published contract; `SCHEMA_VERSION` says which.

Times are Unix milliseconds. Adding a field keeps the version; renaming, removing or changing the meaning of one raises it.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

SCHEMA_VERSION = 1


class Label(Struct, frozen=True, kw_only=True):
    label: str
    index: Annotated[int, Meta(ge=0, description="Class index of the model's output.")]
    score: Annotated[float, Meta(ge=0, le=1, description="Softmax probability over all classes of the model.")]


class Latency(Struct, frozen=True, kw_only=True):
    """Where a frame spent its time, in milliseconds; the stages add up to `total`."""

    decode: Annotated[float, Meta(description="From the arrival of the frame's own packet to the decoded frame.")]
    preprocess: Annotated[float, Meta(description="Colour conversion, resize, crop and normalisation.")]
    batch: Annotated[float, Meta(description="Waiting for a place in a batch.")]
    infer: Annotated[float, Meta(description="From the batch to its scores.")]
    total: Annotated[float, Meta(description="From the arrival of the frame's own packet to its scores.")]


class Outcome(enum.StrEnum):
    LABEL = "label"
    NO_CONFIDENT_LABEL = "no_confident_label"


class Result(Struct, frozen=True, kw_only=True):
    """One classified frame."""

    schema: int = SCHEMA_VERSION
    camera: str
    session: Annotated[str, Meta(description="Changes with each connection of the camera.")]
    sequence: Annotated[int, Meta(ge=0, description="Number of the frame within its session, counted over all received frames.")]
    captured_ms: Annotated[int, Meta(description="When the frame was captured, Unix milliseconds, by `captured_by`.")]
    captured_by: Annotated[str, Meta(description="`arrival`: the host's clock when the frame's packet arrived.")] = "arrival"
    pts: Annotated[int | None, Meta(description="Presentation time stamp of the stream, in ticks of `time_base`.")]
    time_base: Annotated[str, Meta(description="Seconds a tick, as a fraction: `1/90000`.")]
    model: Annotated[str, Meta(description="The model's name in the configuration.")]
    outcome: Outcome
    labels: Annotated[list[Label], Meta(description="At most `top_k`, best first; empty when no label reached `min_confidence`.")]
    latency_ms: Latency
    dropped: Annotated[int, Meta(ge=0, description="Frames of this camera without a result since its previous result, sampling excluded.")]


class EventKind(enum.StrEnum):
    STARTED = "started"
    """The daemon took the camera up."""
    UP = "up"
    """Frames are being decoded."""
    DOWN = "down"
    """The connection failed or fell silent; a new attempt follows."""
    REFUSED = "refused"
    """The camera refused our credentials; attempts go on, slowly."""
    ENDED = "ended"
    """A file reached its end, and all its results are published."""
    FAILED = "failed"
    """A file cannot be used; nothing is tried again until its configuration changes."""
    STOPPED = "stopped"
    """The daemon let go of the camera."""
    WORKER_DIED = "worker_died"
    RELOADED = "reloaded"
    """A changed configuration is in effect; `detail` says what changed."""
    RELOAD_FAILED = "reload_failed"
    """The configuration on disk cannot be used; the one before stays in effect."""


class Event(Struct, frozen=True, kw_only=True):
    """Something that changed."""

    schema: int = SCHEMA_VERSION
    kind: EventKind
    camera: str | None = None
    session: str | None = None
    at_ms: Annotated[int, Meta(description="Unix milliseconds.")]
    reason: Annotated[str | None, Meta(description="One word for programs: `timeout`, `refused`, `unauthorized`, `not_found`, …")] = None
    detail: Annotated[str | None, Meta(description="A sentence for people, without credentials.")] = None


class Phase(enum.StrEnum):
    CONNECTING = "connecting"
    UP = "up"
    DOWN = "down"
    """Waiting for the next attempt."""
    REFUSED = "refused"
    """Waiting, long, after refused credentials."""
    ENDED = "ended"
    FAILED = "failed"
    """A file that cannot be used; no further attempt."""
    STOPPED = "stopped"


class CameraState(Struct, frozen=True, kw_only=True):
    """The current state of a camera, as the hash `{prefix}:cameras` holds it."""

    schema: int = SCHEMA_VERSION
    camera: str
    phase: Phase
    since_ms: int
    session: str | None = None
    reason: str | None = None
    detail: str | None = None
    retry_in_s: float | None = None
    source: Annotated[str | None, Meta(description="The address, without credentials.")] = None
    codec: str | None = None
    width: int | None = None
    height: int | None = None
    decoder: Annotated[str | None, Meta(description="`nvdec` or `cpu`.")] = None
    decoder_reason: Annotated[str | None, Meta(description="Why this decoder, where it is not the first choice.")] = None
    model: str | None = None


class CameraRemoved(Struct, frozen=True, kw_only=True):
    """The camera is no longer configured: its state goes. Its results stay."""

    schema: int = SCHEMA_VERSION
    camera: str


Record = Result | Event | CameraState | CameraRemoved

encode = msgspec.json.Encoder().encode
