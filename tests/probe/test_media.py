"""Files of every kind, healthy and broken: each gives a report or an error in words, quickly."""

import time
from pathlib import Path

import pytest
from support.require import media_files

from streamd.config import CameraConfig
from streamd.errors import DecoderUnavailable, SourceError
from streamd.probe import Limits, probe
from streamd.probe.words import lines


@pytest.mark.media
@pytest.mark.parametrize("path", media_files(), ids=lambda path: path.name)
def test_a_file_is_described_or_refused_in_words(path: Path):
    started_s = time.monotonic()
    try:
        said = lines(probe(CameraConfig(url=str(path)), Limits()))
    except (SourceError, DecoderUnavailable) as error:
        said = [str(error)]
    assert str(path) in said[0]
    assert time.monotonic() - started_s < 20
