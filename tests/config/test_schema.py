"""The JSON Schemas: those in configs/schema/ are current, and they agree with the loader."""

import json
from pathlib import Path

import pytest
import ruamel.yaml
from jsonschema import Draft202012Validator

from streamd.config.schema import camera_schema, main_schema

CONFIGS = Path(__file__).parents[2] / "configs"


def read(file: Path) -> object:
    return json.loads(json.dumps(ruamel.yaml.YAML(typ="safe").load(file)))


@pytest.mark.parametrize("schema", [main_schema(), camera_schema()])
def test_the_schema_is_valid_and_explains_every_key(schema):
    Draft202012Validator.check_schema(schema)
    for group in (schema, *schema["$defs"].values()):
        assert all("description" in key for key in group.get("properties", {}).values())


def test_the_example_configuration_satisfies_the_schemas():
    assert Draft202012Validator(main_schema()).is_valid(read(CONFIGS / "streamd.yaml"))
    for file in (CONFIGS / "cameras").iterdir():
        assert Draft202012Validator(camera_schema()).is_valid(read(file))


@pytest.mark.parametrize(
    ("camera", "valid"),
    [
        ({"url": "x.mp4"}, True),
        ({"fps": 5}, False),
        ({"url": "x.mp4", "fps": "${FPS:-5}", "loop": "${LOOP}", "transport": "${T}", "max_age": "${A}", "rotate": "${R}"}, True),
        ({"url": "x.mp4", "fps": "five"}, False),
        ({"url": "x.mp4", "fps": 0}, False),
        ({"url": "x.mp4", "max_age": "500ms", "password": "${file:door}"}, True),
        ({"url": "x.mp4", "max_age": "soon"}, False),
        ({"url": "x.mp4", "wibble": 1}, False),
        ({"url": "x.mp4", "reconnect": "${R}"}, False),
        ({"url": "x.mp4", "reconnect": {"max": "${R}"}}, True),
    ],
)
def test_an_editor_takes_substitutions_where_the_loader_does(camera, valid):
    assert Draft202012Validator(camera_schema()).is_valid(camera) is valid


def test_the_main_file_has_defaults_for_cameras_and_no_cameras():
    schema = main_schema()
    assert schema["required"] == ["models"]
    assert "cameras" not in schema["properties"]
    assert "url" not in schema["$defs"]["CameraDefaults"]["properties"]


def test_yaml_files_name_a_schema_that_is_there():
    for file in (CONFIGS / "streamd.yaml", *(CONFIGS / "cameras").iterdir()):
        first = file.read_text().splitlines()[0]
        assert (file.parent / first.removeprefix("# yaml-language-server: $schema=")).is_file()
