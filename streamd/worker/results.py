"""From a model's scores to the record that consumers read. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from streamd.records import Label, Latency, Outcome, Result
from streamd.types import Scores


def result_of(scores: Scores, *, model: str, labels: Sequence[str], min_confidence: float, dropped: int) -> Result:
    """The result for one frame.

    Args:
        scores: best class first.
        model: its name in the configuration.
        labels: names of the model's classes.
        min_confidence: labels with a lower score are left out.
        dropped: frames of the camera without a result since its previous one.
    """
    ref = scores.ref
    ranked = [
        Label(label=labels[index], index=index, score=round(score, 6))
        for index, score in zip(scores.classes, scores.probabilities, strict=True)
        if score >= min_confidence
    ]
    return Result(
        camera=ref.camera,
        session=ref.session,
        sequence=ref.sequence,
        captured_ms=ref.captured_ns // 1_000_000,
        pts=ref.pts,
        time_base=f"{ref.time_base.numerator}/{ref.time_base.denominator}",
        model=model,
        outcome=Outcome.LABEL if ranked else Outcome.NO_CONFIDENT_LABEL,
        labels=ranked,
        latency_ms=Latency(
            decode=_ms(ref.received_ns, ref.decoded_ns),
            preprocess=_ms(ref.decoded_ns, scores.ready_ns),
            batch=_ms(scores.ready_ns, scores.batched_ns),
            infer=_ms(scores.batched_ns, scores.inferred_ns),
            total=_ms(ref.received_ns, scores.inferred_ns),
        ),
        dropped=dropped,
    )


def _ms(begin_ns: int, end_ns: int) -> float:
    return round((end_ns - begin_ns) / 1e6, 3)
