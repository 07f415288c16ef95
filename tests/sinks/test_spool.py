"""The file that records wait in."""

from __future__ import annotations

import sqlite3

import pytest
from structlog.testing import capture_logs

from streamd.sinks.spool import ROW_BYTES, Spool, SpoolError, Stored


@pytest.fixture(name="path")
def _path(tmp_path):
    return tmp_path / "deep" / "spool.sqlite3"


@pytest.fixture(name="spool")
def _spool(path):
    spool = Spool(path)
    yield spool
    spool.close()


def fill(spool: Spool, key: str, *numbers: int) -> None:
    spool.append([(key, None, b"%d" % number) for number in numbers])


def read(spool: Spool, key: str) -> list[int]:
    return [int(row.data) for row in spool.load(key, after=0, limit=10_000)]


def test_rows_of_a_key_come_back_in_order(spool):
    fill(spool, "a", 1, 2)
    fill(spool, "b", 10)
    fill(spool, "a", 3)
    assert (read(spool, "a"), read(spool, "b"), read(spool, "c")) == ([1, 2, 3], [10], [])
    first, second = spool.load("a", after=0, limit=2)
    assert [int(row.data) for row in spool.load("a", after=second.row, limit=5)] == [3]
    assert first.entry_id is None
    assert spool.stored() == {"a": Stored(3, 3 + 3 * ROW_BYTES), "b": Stored(1, 2 + ROW_BYTES)}


def test_ids_are_kept_by_the_row(spool):
    spool.append([("a", (7, 1), b"1"), ("a", None, b"2")])
    known, unknown = spool.load("a", after=0, limit=5)
    spool.set_ids([(unknown.row, (8, 0))])
    assert [row.entry_id for row in spool.load("a", after=0, limit=5)] == [(7, 1), (8, 0)]
    spool.remove([known.row])
    assert read(spool, "a") == [2]


def test_another_process_finds_what_one_that_was_killed_left(path, spool):
    fill(spool, "a", 1, 2, 3)  # and never closed
    assert read(Spool(path), "a") == [1, 2, 3]


def test_what_is_too_old_and_what_has_no_room_is_removed_oldest_first(spool, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("streamd.sinks.spool.time.time", lambda: clock[0])
    fill(spool, "a", 1, 2)
    clock[0] = 1010.0
    fill(spool, "a", 3, 4, 5)
    first = spool.load("a", after=0, limit=1)[0]
    assert spool.expire("a", after=first.row, max_age_s=5).rows == 1  # the first one is on its way
    assert spool.drop_oldest("a", after=first.row, rows=2) == Stored(2, 2 + 2 * ROW_BYTES)
    assert read(spool, "a") == [1, 5]


def test_a_clock_that_jumps_back_removes_nothing(spool, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("streamd.sinks.spool.time.time", lambda: clock[0])
    fill(spool, "a", 1)
    clock[0] = -3600.0
    assert spool.expire("a", after=0, max_age_s=5).rows == 0
    assert read(spool, "a") == [1]


def test_a_file_that_is_no_database_is_set_aside_with_a_line_in_the_log(path, spool):
    path.parent.mkdir()
    path.write_bytes(b"not a database at all, but something long enough to be read as a header" * 50)
    with capture_logs() as logs:
        fill(spool, "a", 1)
    assert read(spool, "a") == [1]
    assert [entry["event"] for entry in logs] == ["spool_damaged"]
    assert len(list(path.parent.glob("*.damaged-*"))) == 1
    assert spool.damaged == 1


def test_a_file_damaged_while_it_is_open_is_set_aside_and_both_processes_go_on(path, spool):
    other = Spool(path)
    for number in range(200):
        fill(spool, "a", number)
    fill(other, "b", 1)
    spool.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with capture_logs() as logs, pytest.raises(SpoolError, match="malformed"):
        spool.stored()
    assert "spool_damaged" in [entry["event"] for entry in logs]
    fill(spool, "a", 5)
    assert read(spool, "a") == [5]
    with pytest.raises(SpoolError, match="another file"):
        fill(other, "b", 2)
    fill(other, "b", 3)
    assert (read(other, "b"), other.damaged, spool.damaged) == ([3], 1, 1)
    other.close()


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpoolError, match=r"file/spool\.sqlite3"):
        Spool(tmp_path / "file" / "spool.sqlite3").stored()


def test_a_full_disk_loses_nothing_that_is_there(spool):
    fill(spool, "a", 1)
    pages = spool._open().execute("PRAGMA page_count").fetchone()[0]
    spool._open().execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own way of having no room
    with pytest.raises(SpoolError, match="full"):
        spool.append([("a", None, b"x" * 100_000)])
    assert read(spool, "a") == [1]
    fill(spool, "a", 2)  # the file was opened anew: there is room again
    assert read(spool, "a") == [1, 2]


def test_an_empty_file_gives_its_space_back(path, spool):
    spool.append([("a", None, b"x" * 1_000_000) for _ in range(40)])
    spool.shrink()
    assert spool.stored()["a"].rows == 40
    spool.remove([row.row for row in spool.load("a", after=0, limit=100)])
    spool.shrink()
    spool.close()
    assert path.stat().st_size < 100_000
