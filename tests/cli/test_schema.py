"""`streamd schema` prints schemas that the files in configs/schema/ equal and that real records satisfy."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from streamd.cli import app
from streamd.records import CameraState, Event, EventKind, Label, Latency, Outcome, Phase, Result, encode

FOLDER = Path(__file__).parents[2] / "configs/schema"
RESULT = Result(
    camera="door",
    session="a1",
    sequence=7,
    captured_ms=1_700_000_000_000,
    pts=None,
    time_base="1/90000",
    model="imagenet",
    outcome=Outcome.LABEL,
    labels=[Label(label="tabby", index=281, score=0.75)],
    latency_ms=Latency(decode=1, preprocess=1, batch=1, infer=1, total=4),
    dropped=0,
)
EVENT = Event(kind=EventKind.DOWN, camera="door", at_ms=1_700_000_000_000, reason="timeout")
STATE = CameraState(camera="door", phase=Phase.UP, since_ms=1_700_000_000_000)


def schema(subject: str) -> str:
    result = CliRunner().invoke(app, ["schema", subject])
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize(("subject", "file"), [("config", "streamd.schema.json"), ("camera", "camera.schema.json")])
def test_the_files_for_editors_are_what_the_command_prints(subject, file):
    assert (FOLDER / file).read_text() == schema(subject), f"streamd schema {subject} > configs/schema/{file}"


@pytest.mark.parametrize(("subject", "record"), [("result", RESULT), ("event", EVENT), ("state", STATE)])
def test_a_record_satisfies_its_schema_and_less_than_a_record_does_not(subject, record):
    rules = json.loads(schema(subject))
    assert rules["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(rules)
    data = json.loads(encode(record))
    assert list(Draft202012Validator(rules).iter_errors(data)) == []
    del data["camera" if subject != "event" else "kind"]
    assert not Draft202012Validator(rules).is_valid(data)


def test_an_unknown_subject_is_a_usage_error_that_names_the_known_ones():
    result = CliRunner().invoke(app, ["schema", "wibble"])
    assert result.exit_code != 0
    assert "config" in result.output
