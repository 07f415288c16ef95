"""`streamd probe`, without the command line: looks at one address for a few seconds and says what is there, or what is wrong.

It opens the address once, never retries, and says nothing of credentials. The stages are modules of their own: `address` takes the text
apart, `watch` reads packets under deadlines, `measure` computes from them, `diagnosis` puts a failure into plain words, `words` and
`camera_file` write down what was found.
"""

from __future__ import annotations

from streamd.config.types import CameraConfig
from streamd.errors import SourceError
from streamd.probe.diagnosis import explain
from streamd.probe.report import Report
from streamd.probe.watch import Limits, watch
from streamd.redact import redact
from streamd.sources import of_camera

__all__ = ["Limits", "Report", "probe"]


def probe(camera: CameraConfig, limits: Limits) -> Report:
    """What the address of `camera` gives.

    Raises:
        SourceError: nothing usable; its text says what is wrong and what to do.
        DecoderUnavailable: there is video, in a codec that FFmpeg cannot decode.
    """
    shown = redact(camera.url)
    try:
        watched = watch(of_camera(camera), limits, shown=shown, live=camera.is_live)
    except SourceError as error:
        raise explain(error, camera) from None
    # Not at the top: decoders import torch, which takes seconds, and who mistyped an address should not wait for it.
    from streamd.probe.examine import examine  # noqa: PLC0415

    return examine(watched, shown=shown, live=camera.is_live)
