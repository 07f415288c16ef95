"""YAML text to located values: the meaning of YAML 1.2, and problems that never repeat a value."""

import math

import pytest

from streamd.config.yaml import parse, printable


def plain(text: str) -> object:
    tree, problems = parse(text, "door.yaml")
    assert problems == []
    assert tree is not None
    return tree.plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("12", 12),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("1.5e3", 1500.0),
        ("-.inf", -math.inf),
        ("12:30:00", "12:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("'5'", "5"),
        ("9" * 5000, "9" * 5000),
        ("1__0", "1__0"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(text, value):
    assert plain(f"key: {text}\n") == {"key": value}


def test_keys_are_texts_whatever_they_look_like():
    assert plain("5: a\non: b\nnull: c\n2024-01-01: d\n<<: e\n") == {"5": "a", "on": "b", "null": "c", "2024-01-01": "d", "<<": "e"}


def test_an_empty_text_is_null():
    assert plain("") is None
    assert plain("# a comment\n") is None


def test_each_value_knows_its_own_place_and_its_key_s():
    tree, _ = parse("a:\n  b: [x, y]\n  c:\n", "door.yaml")
    assert tree is not None
    assert isinstance(tree.value, dict)
    group = tree.value["a"]
    assert isinstance(group.value, dict)
    b, c = group.value["b"], group.value["c"]
    assert (b.place.line, b.place.column, b.key.line, b.key.column, b.path) == (2, 6, 2, 3, "a.b")
    assert (c.place.line, c.place.column) == (3, 3)  # an absent value stands at its key


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a:\n\tb: 1\n", "2:1: a tab; YAML is indented with spaces"),
        ("a: @hunter2\n", "1:4: a value cannot begin with this character; put the value in quotes"),
        ("a: %hunter2\n", "1:4: a value cannot begin with this character; put the value in quotes"),
        ("a: *hunter2\n", "1:4: `*` makes this an alias of an anchor; put the value in quotes"),
        (
            "a: &hunter2\n",
            "1:1: a: `&` makes this an anchor, and anchors are not supported; use camera_defaults, or put the value in quotes",
        ),
        ("a: !hunter2\n", "1:1: a: `!` makes this a tag, and tags are not supported; put the value in quotes"),
        ("a: !h!hunter2\n", "1:4: not readable as YAML from here; check indentation, quotes and brackets"),
        ("a: hunter2: b\n", "1:11: no place for a `:`; check the indentation, or put a value that holds `: ` in quotes"),
        ("a: 1\nb: 'hunter2\nc: 3\n", "2:4: this quote is never closed"),
        ('a: "\\hunter2"\n', r"1:6: no such escape; write \\ for a backslash, or use single quotes"),
        ('a: "\\UFFFFFFFF"\n', "1:1: not readable as YAML from here; check indentation, quotes and brackets"),
        ("a: [hunter2\n", "1:4: this bracket is never closed, or a `,` is missing in it"),
        ("a: 1\nb\nc: 2\n", "2:1: a `:` and a space are missing after the key"),
        ("a: 1\n}\n", "2:1: not in line with the keys above; check the indentation and the quotes"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document begins here; a file holds one"),
        ("a: 1\nb: x\x07\n", "2:5: a control character; remove it"),
        ('a: "\\0"\n', "1:4: a: holds a NUL or half a surrogate pair, which no text may"),
        ('a: "\\ud800"\n', "1:4: a: holds a NUL or half a surrogate pair, which no text may"),
        ("? [a]\n: b\n", "1:3: a key must be a plain word"),
        ("[" * 1000, "1:1: nested too deeply"),
        ("a: " + "[" * 50 + "]" * 50, "1:36: a: nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_problem_that_repeats_no_value(text, problem):
    _, problems = parse(text, "door.yaml")
    assert [str(p) for p in problems] == [f"door.yaml:{problem}"]
    assert "hunter2" not in str(problems)


def test_an_anchor_that_is_set_twice_is_two_problems_and_no_warning():
    _, problems = parse("a: &hunter2 1\nb: &hunter2 2\n", "door.yaml")
    assert [p.line for p in problems] == [1, 2]
    assert "hunter2" not in str(problems)


def test_a_second_key_is_a_problem_and_the_first_value_counts():
    tree, problems = parse("a: 1\na: 2\n", "door.yaml")
    assert tree is not None
    assert tree.plain() == {"a": 1}
    assert [str(p) for p in problems] == ["door.yaml:2:1: a: duplicate key; the first is in line 1"]


def test_printable_text_is_one_line_that_can_be_encoded():
    assert printable("Tür\n\udcff\x1b") == r"Tür\n\udcff\x1b"
    assert len(printable("x" * 1000)) == 203
