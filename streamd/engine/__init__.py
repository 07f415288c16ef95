"""The engine: preprocessed frames of many cameras become batches, batches become scores."""

from streamd.engine.engine import Engine
from streamd.engine.intake import Intake

__all__ = ["Engine", "Intake"]
