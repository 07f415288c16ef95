"""Records on disk: one SQLite file that all processes of a daemon share, each for the keys that are its own.

A row has no id until it is about to be sent, and keeps the one that it gets: so whoever finds it after a crash knows what may have
arrived already. Rows leave when Redis has them, when they are older than `max_age`, and, oldest first, when there is no more room.

Everything here blocks: call it from a thread. Raises SpoolError, after which the same call may be tried again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from streamd.errors import StreamdError

_BUSY_S = 5.0
"""How long to wait for another process that writes."""
ROW_BYTES = 100
"""What a row takes besides its data."""
_LARGE_BYTES = 16 * 1024 * 1024
"""A file that is empty and larger than this is made small."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    row INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, ms INTEGER, n INTEGER, at_s REAL NOT NULL, data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_key ON records (key, row);
"""

log = structlog.get_logger(__name__)


class SpoolError(StreamdError):
    """The file cannot be read or written now: a full disk, say."""


class Row(NamedTuple):
    """A record on disk."""

    row: int
    """Rows of a key are sent in this order."""
    entry_id: tuple[int, int] | None
    """The id under which it was or is about to be sent; None: it was never sent."""
    data: bytes


@dataclass(slots=True)
class Stored:
    """What the spool holds for one key."""

    rows: int = 0
    bytes: int = 0


class Spool:
    """One process's view of the file. Made anew when it is damaged: the old file is kept beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self.damaged = 0
        """How many times the file was found damaged, or gone: what it held is not there any more."""

    def stored(self) -> dict[str, Stored]:
        """What there is, by key."""
        with self._transaction(write=False) as connection:
            rows = connection.execute("SELECT key, count(*), sum(length(data)) FROM records GROUP BY key").fetchall()
        return {key: Stored(count, size + count * ROW_BYTES) for key, count, size in rows}

    def append(self, records: Sequence[tuple[str, tuple[int, int] | None, bytes]]) -> None:
        """Add records, each with its key and, if it was sent before, the id under which it was sent."""
        now_s = time.time()
        rows = [(key, *(entry_id or (None, None)), now_s, data) for key, entry_id, data in records]
        with self._transaction() as connection:
            connection.executemany("INSERT INTO records (key, ms, n, at_s, data) VALUES (?, ?, ?, ?, ?)", rows)

    def load(self, key: str, *, after: int, limit: int) -> list[Row]:
        """The next rows of a key, in order, behind the row `after`."""
        with self._transaction(write=False) as connection:
            query = "SELECT row, ms, n, data FROM records WHERE key = ? AND row > ? ORDER BY row LIMIT ?"
            found = connection.execute(query, (key, after, limit)).fetchall()
        return [Row(row, None if ms is None else (ms, n), data) for row, ms, n, data in found]

    def set_ids(self, ids: Sequence[tuple[int, tuple[int, int]]]) -> None:
        """Before rows are sent: keep the ids under which they will be."""
        with self._transaction() as connection:
            connection.executemany("UPDATE records SET ms = ?, n = ? WHERE row = ?", [(*entry_id, row) for row, entry_id in ids])

    def remove(self, rows: Sequence[int]) -> None:
        """Redis has these."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM records WHERE row = ?", [(row,) for row in rows])

    def expire(self, key: str, *, after: int, max_age_s: float) -> Stored:
        """Remove the rows of a key behind `after` that are older than `max_age_s`; returns what was removed."""
        return self._remove("key = ? AND row > ? AND at_s < ?", (key, after, time.time() - max_age_s))

    def drop_oldest(self, key: str, *, after: int, rows: int) -> Stored:
        """Remove the first `rows` rows of a key behind `after`; returns what was removed."""
        first = "row IN (SELECT row FROM records WHERE key = ? AND row > ? ORDER BY row LIMIT ?)"
        return self._remove(first, (key, after, rows))

    def shrink(self) -> None:
        """Give the disk's space back, if the file is empty."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size < _LARGE_BYTES:
                return
        with self._transaction(write=False) as connection:
            if connection.execute("SELECT 1 FROM records LIMIT 1").fetchone():
                return
        with self._errors():
            connection = self._open()
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """May be called again; the next call of another method opens the file anew."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _remove(self, where: str, values: tuple[object, ...]) -> Stored:
        with self._transaction() as connection:
            query = f"SELECT count(*), coalesce(sum(length(data) + {ROW_BYTES}), 0) FROM records WHERE {where}"  # noqa: S608 - `where` is ours
            removed = Stored(*connection.execute(query, values).fetchone())
            if removed.rows:
                connection.execute(f"DELETE FROM records WHERE {where}", values)  # noqa: S608
        return removed

    @contextlib.contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        with self._errors():
            connection = self._open()
            with connection:
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # full, locked, not to be opened: the file is as it was
            self.close()
            raise SpoolError(f"{self._path}: {error}") from None
        except sqlite3.DatabaseError as error:
            self.close()
            with self._locked():
                if self._inode_now() == self._inode:  # else another process was faster
                    self._set_aside(error)
            raise SpoolError(f"{self._path}: {error}") from None
        except OSError as error:
            raise SpoolError(f"{self._path}: {error.strerror or error}") from None

    def _open(self) -> sqlite3.Connection:
        """The connection to the file that is there now: another process may have set a damaged one aside."""
        if self._connection is not None and self._inode_now() != self._inode:
            self.close()
            self.damaged += 1
            raise SpoolError(f"{self._path}: is another file now")
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked():
                connection = self._connect()
                inode = self._inode_now()
            self._connection, self._inode = connection, inode
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        """Under the lock. A file that is no database is set aside."""
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_SCHEMA)
        except sqlite3.OperationalError:
            connection.close()
            raise
        except sqlite3.DatabaseError as error:
            connection.close()
            self._set_aside(error)
            return self._connect()
        return connection

    def _inode_now(self) -> int:
        try:
            return self._path.stat().st_ino
        except FileNotFoundError:
            return -1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time makes the file or sets it aside."""
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Under the lock."""
        aside = self._path.with_name(f"{self._path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}")
        self.damaged += 1
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").replace(f"{aside}{suffix}")
        log.error("spool_damaged", path=str(self._path), reason=str(error), kept_as=str(aside), hint="what it held is not replayed")
