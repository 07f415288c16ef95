"""pydantic's errors in plain words."""

from typing import Annotated

import pytest
from pydantic import Field, SecretStr, ValidationError

from streamd.config.types import CameraConfig, Config, MainFile, Section
from streamd.config.words import either, keys_at, sentence, unknown


class Sample(Section):
    above: Annotated[int, Field(gt=0)] = 1
    least: Annotated[float, Field(ge=0.5, allow_inf_nan=False)] = 1
    most: Annotated[int, Field(le=65535)] = 1
    secret: SecretStr | None = None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"above": 0}, "must be greater than 0"),
        ({"above": 1.5}, "must be a whole number"),
        ({"above": None}, "must be a whole number"),
        ({"above": "x"}, "must be a whole number"),
        ({"above": "9" * 5000}, "must be a whole number"),
        ({"least": 0.25}, "must be at least 0.5"),
        ({"least": float("inf")}, "must be a finite number"),
        ({"least": []}, "must be a number"),
        ({"most": 65536}, "must be at most 65535"),
        ({"secret": ["hunter2"]}, "must be text; put it in quotes if it looks like something else"),
    ],
)
def test_each_kind_of_error_has_a_sentence(values, words):
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate(values)
    assert [sentence(error) for error in caught.value.errors()] == [words]


def test_the_closest_known_key_is_suggested_where_there_is_one():
    known = keys_at(CameraConfig, [])
    assert unknown("FPS", known) == "unknown key; did you mean `fps`?"
    assert unknown("wibble", known) == "unknown key"
    assert unknown("conect_timeout", known) == "unknown key; did you mean `connect_timeout`?"


def test_known_keys_are_those_of_the_section_at_hand():
    assert keys_at(MainFile, ["camera_defaults", "reconnect"]) == ["initial", "max", "healthy_after", "refused"]
    assert "top_k" in keys_at(MainFile, ["models", "reconnect"])
    assert "fps" in keys_at(Config, ["cameras", "door"])
    assert keys_at(MainFile, ["models", "imagenet", "top_k"]) == []


def test_the_members_of_a_union_make_one_sentence():
    assert either(["must be a whole number", "must be auto"]) == "must be a whole number or auto"
    assert either(["must be text", "must be text"]) == "must be text"
