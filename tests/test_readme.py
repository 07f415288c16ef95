"""The README says what is so: its commands, options, keys, fields, tables, links and programs are held against the code."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from support.records import event, result, state
from support.redis import redis_binary

import streamd.cli
from streamd.cli.schema import Subject
from streamd.config import load
from streamd.config.types import CameraConfig, MainFile
from streamd.errors import SourceError
from streamd.records import Event, EventKind, Label, Latency, Phase, Result, encode
from streamd.sinks.lanes import StreamLane

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "streamd/README.md")]
REDIS_URL = "redis://127.0.0.1:6379/0"
PATIENCE_S = 30


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> list[list[str]]:
    """Each command of the shell blocks and of code within the text, as words."""
    shell = "\n".join(blocks("sh", text)).replace("\\\n", " ").splitlines()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`((?:streamd|make|pip|redis-cli) [^`]+)`", prose)
    commands = []
    for line in [*shell, *inline]:
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            commands.append(words[:end])
            words = words[end + 1 :]
    return commands


def calls_of(program: str, text: str = README) -> list[list[str]]:
    """The arguments of each call of `program`, whatever folder and variables stand before it."""
    calls = []
    for words in command_lines(text):
        rest = words
        while rest and re.fullmatch(r"\w+=.*", rest[0]):
            rest = rest[1:]
        if rest and Path(rest[0]).name == program:
            calls.append(rest[1:])
    return calls


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is called, a command's own command where it has some, and what is left of the words."""
    command = typer.main.get_command(streamd.cli.app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def commands() -> dict[str, Any]:
    return typer.main.get_command(streamd.cli.app).commands


def option_names(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def first_column(heading: str) -> set[str]:
    """The code in the first column of the table whose head begins with `heading`."""
    table = README.split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


# --- commands


def test_every_streamd_command_and_option_exists():
    for call in calls_of("streamd"):
        command, words = command_of(call)
        assert words != call or words[0].startswith("-"), f"no such command: {call}"
        assert not getattr(command, "commands", {}) or words[0].startswith("-"), f"no such command: {call}"
        assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= option_names(command), call


def test_every_command_is_shown():
    assert {"demo", *(call[0] for call in calls_of("streamd"))} >= set(commands())


def test_every_schema_is_named_and_no_other():
    assert {call[1] for call in calls_of("streamd") if call[0] == "schema"} == set(Subject)


def test_every_target_of_make_exists():
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"demo", "test"} <= {call[0] for call in calls_of("make")} <= targets
    assert {"demo", "test", "lint", "lock"} <= {call[0] for call in calls_of("make", CONTRIBUTING)} <= targets


def test_the_options_that_make_passes_to_the_demo_exist():
    passed = [shlex.split(argument.removeprefix("ARGS=")) for target, *rest in calls_of("make") if target == "demo" for argument in rest]
    assert passed
    for words in passed:
        assert {word for word in words if word.startswith("--")} <= option_names(commands()["demo"])


def test_the_direction_of_imports_is_that_of_the_contract():
    (contract,) = [entry for entry in PYPROJECT["tool"]["importlinter"]["contracts"] if entry["type"] == "layers"]
    layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    written = re.search(r"Imports point down: `(.*?)`", CONTRIBUTING, flags=re.DOTALL)
    assert written
    assert [re.findall(r"\w+", layer) for layer in written[1].split(">")] == layers


def test_every_extra_and_requirements_file_that_pip_is_given_exists():
    extras = PYPROJECT["project"]["optional-dependencies"]
    named = {
        extra for words in calls_of("pip") for word in words for group in re.findall(r"^\.\[(.*)\]$", word) for extra in group.split(",")
    }
    assert named == {"gpu", "uvloop", "demo"}
    assert named <= set(extras)
    files = {words[words.index("-r") + 1] for words in calls_of("pip") if "-r" in words}
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_every_target_of_the_dockerfile_exists():
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"--target (\w+)", README))
    assert named == {"cuda", "cpu"}
    assert named <= stages


# --- configuration


def test_every_example_of_the_configuration_loads(tmp_path, monkeypatch):
    monkeypatch.delenv("DOOR_PASSWORD", raising=False)
    examples = [(re.match(r"# configs/(\S+)\n", text), text) for text in blocks("yaml")]
    assert len(examples) >= 4
    for number, (heading, text) in enumerate(examples):
        assert heading, f"the first line must say which file it is:\n{text}"
        folder = tmp_path / str(number)
        (folder / "cameras").mkdir(parents=True)
        (folder / "streamd.yaml").write_text("models: {imagenet: {torchvision: resnet50}}\n")
        (folder / "cameras" / "any.yaml").write_text("url: rtsp://192.0.2.10/stream1\n")
        assert (folder / heading[1]).parent.is_dir()
        (folder / heading[1]).write_text(text)
        load(folder)


def test_every_dotted_key_in_the_text_exists():
    sections = {name: field.annotation for name, field in MainFile.model_fields.items()} | {
        "reconnect": CameraConfig.model_fields["reconnect"].annotation
    }
    for section, key in re.findall(r"`(redis|engine|reconnect)\.(\w+)(?:: \w+)?`", README):
        kinds = [kind for kind in (sections[section], *getattr(sections[section], "__args__", ())) if hasattr(kind, "model_fields")]
        assert key in kinds[0].model_fields, f"{section}.{key}"


# --- records


def test_the_tables_of_events_and_states_are_complete():
    assert first_column("event `kind`") == set(EventKind)
    assert first_column("state `phase`") == set(Phase)


def test_the_table_of_a_result_has_all_its_fields():
    table = README.split("\n| field | meaning |", 1)[1].split("\n\n", 1)[0]
    assert first_column("field") == set(Result.__struct_fields__)
    assert {*Label.__struct_fields__, *Latency.__struct_fields__} <= set(re.findall(r"`(\w+)`", table))


def test_the_reasons_are_those_of_the_errors():
    listed = re.search(r"`reason` is one word for programs \((.*?)\)", README, flags=re.DOTALL)
    assert listed
    reasons = {error.reason for error in SourceError.__subclasses__()} | {EventKind.WORKER_DIED.value}
    assert set(re.findall(r"`(\w+)`", listed[1])) == reasons


@pytest.mark.parametrize("record", [result("door"), event("door")], ids=["result", "event"])
def test_the_table_of_keys_has_the_fields_that_are_written(record):
    lane = StreamLane("key", max_entries=10)
    lane._last = (0, 0)
    lane.put(record, at_ns=1)
    (attempt,) = lane.take(1)
    fields = attempt.command[6::2]
    key = "{prefix}:events" if isinstance(record, Event) else "{prefix}:results:{camera}"
    row = next(line for line in README.splitlines() if line.startswith(f"| `{key}`"))
    assert set(re.findall(r"`(\w+)`", row.split("|")[3])) == set(fields)


def test_every_exit_code_that_a_command_names_is_explained():
    named = {int(code) for command in commands().values() for code in re.findall(r"\b(?:0|6\d|7\d)\b", command.help or "")}
    table = README.split("\n| exit code |", 1)[1].split("\n\n", 1)[0]
    explained = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, flags=re.MULTILINE) for code in row.split(",")}
    assert explained == named | {os.EX_USAGE}


# --- programs


@pytest.fixture
def filled(redis_server):
    """A Redis with two results, an event and a state, as the daemon writes them."""
    client = redis_server.client()
    for sequence in (1, 2):
        record = result("door", sequence)
        fields = {"label": "cat", "score": 0.75, "data": encode(record)}
        client.xadd("streamd:results:door", fields, id=f"{record.captured_ms}-0")
    client.xadd("streamd:events", {"kind": "up", "camera": "door", "data": encode(event("door"))})
    client.hset("streamd:cameras", "door", encode(state("door")))
    return redis_server


def test_every_line_with_redis_cli_finds_something(filled):
    calls = calls_of("redis-cli")
    assert len(calls) >= 4
    for words in calls:
        shown = subprocess.run(
            [redis_binary("redis-cli") or "redis-cli", "-p", str(filled.port), *(word.replace("5000", "1") for word in words)],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()
        if "BLOCK" in words:
            assert shown == "", "nothing new comes here"
        else:
            assert shown, words
            assert not re.match("ERR|WRONGTYPE|0$", shown), words


def lines_of(program: str, count: int) -> list[str]:
    """The first `count` lines that the program prints; it is ended then."""
    with subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout
        output, deadline = b"", time.monotonic() + PATIENCE_S
        try:
            while output.count(b"\n") < count and select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                more = os.read(process.stdout.fileno(), 65536)
                if not more:
                    break
                output += more
        finally:
            process.kill()
    return output.decode().splitlines()


def test_the_example_with_the_client_prints_what_is_there(filled):
    (program,) = [text for text in blocks("python") if "streamd.client" in text]
    assert REDIS_URL in program
    lines = lines_of(program.replace(REDIS_URL, filled.url), 3)
    assert lines[0].split() == ["door", "up"]
    assert [line.split()[1:] for line in lines[1:]] == [["door", "cat", "23.0"]] * 2


def test_the_example_with_redis_py_prints_each_result_once_whoever_runs_it_again(filled):
    (program,) = [text for text in blocks("python") if "xreadgroup" in text]
    assert REDIS_URL in program
    lines = lines_of(program.replace(REDIS_URL, filled.url), 2)
    assert [line.split()[1:] for line in lines] == [["door", "cat", "0.75"]] * 2
    client = filled.client()
    record = result("door", 3)
    client.xadd("streamd:results:door", {"label": "dog", "score": 0.5, "data": encode(record)}, id=f"{record.captured_ms}-0")
    pending = {entry["message_id"] for entry in client.xpending_range("streamd:results:door", "alarms", "-", "+", 10)}
    again = lines_of(program.replace(REDIS_URL, filled.url), len(pending) + 1)
    assert [line.split()[0] for line in again] == [*sorted(pending), f"{record.captured_ms}-0"]


# --- links and size


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(document):
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    relative = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert [link for link in relative if not (document.parent / link).exists()] == []


def test_the_readme_can_be_read_at_one_sitting():
    assert len(README.splitlines()) <= 400
    assert max(map(len, README.splitlines())) <= 160
