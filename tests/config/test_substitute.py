"""`${…}` in scalars: what is filled in, what is an error, and what is a secret."""

from pathlib import Path

import pytest

from streamd.config.substitute import Substitution
from streamd.config.yaml import Node, Place

PLACE = Place("door.yaml", 3, 7)


@pytest.fixture
def fill(tmp_path: Path) -> Substitution:
    """Knows USER=bob and EMPTY=; first folder `credentials`, second `secrets`."""
    for folder in ("credentials", "secrets"):
        (tmp_path / folder).mkdir()
    return Substitution(env={"USER": "bob", "EMPTY": ""}, folders=[tmp_path / "credentials", tmp_path / "secrets"])


def filled(substitution: Substitution, text: object) -> object:
    return substitution.fill(Node(text, PLACE, PLACE, "username")).value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${USER}", "bob"),
        ("${USER}@${USER}", "bob@bob"),
        ("${USER:-eve}", "bob"),
        ("${NOBODY:-eve}", "eve"),
        ("${NOBODY:-redis://h:6379/0}", "redis://h:6379/0"),
        ("${EMPTY:-eve}", "eve"),
        ("$${USER}", "${USER}"),
        ("$$${USER}", "$${USER}"),
        ("$USER $ 5$", "$USER $ 5$"),
        ("${EMPTY}", None),
        ("${NOBODY:-}", None),
        ("x${EMPTY}", "x"),
        (5, 5),
        (None, None),
    ],
)
def test_variables_are_filled_in_and_all_else_stays(fill, text, value):
    assert filled(fill, text) == value
    assert fill.problems == []


@pytest.mark.parametrize(
    "text", ["${}", "${1A}", "${A B}", "${A-b}", "${A:=b}", "${file:}", "${file:.}", "${file:..}", "${file:a/b}", "${USER"]
)
def test_what_cannot_be_filled_in_stays_and_is_a_problem_at_its_place(fill, text):
    assert filled(fill, text) == text
    (problem,) = fill.problems
    assert str(problem).startswith("door.yaml:3:7: username: ")


def test_a_file_comes_from_the_first_folder_that_has_it_without_its_last_line_break(fill, tmp_path):
    (tmp_path / "secrets/door").write_bytes(b"hunter2\n\n")
    assert filled(fill, "${file:door}") == "hunter2\n"
    (tmp_path / "credentials/door").write_bytes(b"hunter3\r\n")
    assert filled(fill, "user:${file:door}") == "user:hunter3"
    assert fill.secrets == {"hunter2\n", "hunter3"}


def test_an_empty_file_is_null_and_no_secret(fill, tmp_path):
    (tmp_path / "secrets/door").write_text("\n")
    assert filled(fill, "${file:door}") is None
    assert fill.secrets == set()


@pytest.mark.parametrize(("content", "words"), [(b"\xff", "is not UTF-8 text"), (b"a\0b", "holds a NUL")])
def test_a_file_that_is_no_text_is_a_problem(fill, tmp_path, content, words):
    (tmp_path / "secrets/door").write_bytes(content)
    filled(fill, "${file:door}")
    assert words in str(fill.problems)


def test_a_folder_in_place_of_a_secret_is_a_problem(fill, tmp_path):
    (tmp_path / "credentials/door").mkdir()
    filled(fill, "${file:door}")
    assert str(fill.problems[0]).endswith("credentials/door cannot be read: Is a directory")


def test_a_variable_that_is_not_utf_8_is_a_problem(tmp_path):
    substitution = Substitution(env={"USER": "\udcff"}, folders=[])
    filled(substitution, "${USER}")
    assert "not UTF-8" in str(substitution.problems)


def test_scalars_at_every_depth_are_filled_in_and_keys_are_not(fill):
    def node(value):
        return Node(value, PLACE, PLACE)

    tree = node({"${USER}": node([node("${USER}"), node({"a": node("${USER}")})])})
    assert fill.fill(tree).plain() == {"${USER}": ["bob", {"a": "bob"}]}
