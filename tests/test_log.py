"""Logging, seen from outside: small programs that log, and what arrives on their standard error."""

import json
import os
import pty
import re
import subprocess
import sys
import textwrap

import pytest


def run(program, *, level="info", as_json=None, stderr=subprocess.PIPE, **env):
    """Standard error of a program that configures logging first."""
    text = "import logging, threading, warnings, structlog\nfrom streamd import log\nfrom streamd.redact import add_secrets\n"
    text += f"log.configure(level={level!r}, json={as_json!r})\nlogger = structlog.get_logger()\n" + textwrap.dedent(program)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env}
    return subprocess.run([sys.executable, "-c", text], stderr=stderr, env=environment, text=True, timeout=30, check=False).stderr


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_each_event_is_one_json_object_with_a_utc_time_where_standard_error_is_no_terminal():
    (line,) = lines(run("logger.bind(camera='door', session='s1').info('camera up', fps=25)"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {"level": "info", "event": "camera up", "camera": "door", "session": "s1", "fps": 25}


def test_the_standard_library_and_warnings_take_the_same_way():
    first, second = lines(run("logging.getLogger('redis').error('lost %s', 'db'); warnings.warn('old')"))
    assert (first["event"], first["level"]) == ("lost db", "error")
    assert "UserWarning: old" in second["event"]


def test_lines_below_the_level_are_left_out():
    shown = lines(run("logger.info('a'); logger.warning('b'); logging.info('c'); logging.error('d')", level="warning"))
    assert [line["event"] for line in shown] == ["b", "d"]


def test_the_worker_is_on_each_line_of_every_thread():
    program = """
        log.configure(level='info', json=True, worker='w1')
        thread = threading.Thread(target=logger.info, args=('from a thread',)); thread.start(); thread.join()
        logging.warning('from a library')
    """
    assert [line["worker"] for line in lines(run(program))] == ["w1", "w1"]


CANARY = "S3cr%t/ä"
LEAKS = {
    "text": "logger.info('opening rtsp://cam:x%40y@door/1')",
    "known_value": f"logger.info('it was {CANARY}')",
    "known_value_encoded": "from urllib.parse import quote; logger.info(quote(secret, safe=''))",
    "field": "logger.info('x', url='rtsp://cam:x%40y@door/1')",
    "nested_field": "logger.info('x', config={'cameras': [{'url': 'rtsp://cam:x%40y@door/1'}], 'p': (secret,)})",
    "object": "logger.info('x', error=OSError('rtsp://cam:x%40y@door/1'), config=SimpleNamespace(a=secret))",
    "bytes": "logger.info('x', raw=b'rtsp://cam:x%40y@door/1')",
    "key": "logger.info('x', config={'password': 'x%40y'})",
    "argument": "logging.error('%s refused', 'rtsp://cam:x%40y@door/1')",
    "warning": "warnings.warn('rtsp://cam:x%40y@door/1')",
    "exception": "local = secret\ntry: raise OSError('rtsp://cam:x%40y@door/1', secret)\nexcept OSError: logger.exception('failed')",
    "uncaught": "raise OSError('rtsp://cam:x%40y@door/1', secret)",
    "uncaught_in_thread": "def f(): raise OSError('rtsp://cam:x%40y@door/1', secret)\nt = threading.Thread(target=f); t.start(); t.join()",
}


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("way", LEAKS)
def test_no_credential_is_logged(way, as_json):
    # The program learns its secret from the environment, so that a traceback that quotes its source proves nothing.
    program = "import os; from types import SimpleNamespace\nsecret = os.environ['CANARY']; add_secrets([secret])\n" + LEAKS[way]
    shown = run(program, as_json=as_json, CANARY=CANARY)
    assert "***" in shown
    assert not [leak for leak in (CANARY, "x%40y", "S3cr%25t%2F", "\\u00e4") if leak in shown]


def test_an_uncaught_exception_is_one_line_with_its_traceback():
    (line,) = lines(run("1 / 0"))
    assert line["level"] == "critical"
    assert line["exception"].endswith("ZeroDivisionError: division by zero")


def run_on(path, program, **options):
    with path.open("w") as stderr:
        status = os.fstat(stderr.fileno())
        run(program, stderr=stderr, JOURNAL_STREAM=f"{status.st_dev}:{status.st_ino}", **options)
    return path.read_text().splitlines()


def test_lines_to_the_journal_carry_their_priority(tmp_path):
    shown = run_on(tmp_path / "journal", "logger.info('a'); logger.warning('b'); logger.error('c'); logger.debug('d')", level="debug")
    assert [line[:4] for line in shown] == ["<6>{", "<4>{", "<3>{", "<7>{"]


def test_each_line_of_a_traceback_to_the_journal_carries_its_priority(tmp_path):
    shown = run_on(tmp_path / "journal", "1 / 0", as_json=False)
    assert len(shown) > 2
    assert {line[:3] for line in shown} == {"<2>"}


def test_standard_error_that_is_not_the_journal_gets_no_priority():
    assert run("logger.info('a')", JOURNAL_STREAM="1:1").startswith("{")


def test_a_terminal_gets_coloured_text():
    ours, theirs = pty.openpty()
    try:
        run("logger.info('camera up', camera='door')", stderr=theirs, TERM="xterm")
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "\x1b[" in shown
    assert "camera up" in shown
    assert not shown.startswith("{")
