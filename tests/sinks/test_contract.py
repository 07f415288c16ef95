"""What every sink promises (streamd/sinks/base.py), to whatever it writes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.records import event, result, state
from support.redis import RedisServer
from support.wait import wait_until_async

from streamd.config.types import JsonlConfig, RedisConfig
from streamd.records import Event, Result
from streamd.sinks import jsonl
from streamd.sinks.base import Sink
from streamd.sinks.jsonl import JsonlSink
from streamd.sinks.redis import RedisSink


class IntoRedis:
    """A Redis of the test's own that can be away."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def sink(self, told, *, max_queue: int) -> Sink:
        config = RedisConfig(url=self._server.url, max_queue=max_queue)
        return RedisSink(config, written=told.on_written, dropped=told.on_dropped, lost=told.on_lost, found=told.on_found)

    def go_away(self) -> None:
        self._server.kill()

    def come_back(self) -> None:
        self._server.start()

    def records(self) -> list[dict]:
        client = self._server.client()
        keys = [*sorted(client.scan_iter("streamd:results:*")), "streamd:events"]
        streamed = [json.loads(fields["data"]) for key in keys for _, fields in client.xrange(key)]
        return streamed + [json.loads(data) for data in client.hvals("streamd:cameras")]


class IntoFile:
    """A file whose folder can be missing."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self._file = folder / "out/records.jsonl"
        self._file.parent.mkdir()
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(jsonl, "RETRY_S", 0.05)

    def sink(self, told, *, max_queue: int) -> Sink:
        self._monkeypatch.setattr(jsonl, "MAX_QUEUE", max_queue)
        return JsonlSink(JsonlConfig(path=str(self._file)), written=told.on_written, dropped=told.on_dropped)

    def go_away(self) -> None:
        self._file.parent.rmdir()

    def come_back(self) -> None:
        self._file.parent.mkdir()

    def records(self) -> list[dict]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        return [{key: value for key, value in json.loads(line).items() if key != "type"} for line in lines]


@pytest.fixture(params=["redis", "jsonl"])
def end(request, tmp_path, monkeypatch):
    """Where records go."""
    if request.param == "redis":
        return IntoRedis(request.getfixturevalue("own_redis"))
    return IntoFile(tmp_path, monkeypatch)


@pytest.fixture
async def sink(end, told):
    """With room for 1000 records; not started."""
    sink = end.sink(told, max_queue=1000)
    yield sink
    await sink.close(timeout_s=0)


async def all_written(told, count: int) -> None:
    await wait_until_async(lambda: len(told.written) >= count, what=f"{count} records are written")


async def test_every_kind_of_record_arrives_and_is_reported(sink, end, told):
    await sink.start()
    records = [result(), event(), state()]
    before_ns = time.monotonic_ns()
    for record in records:
        sink.put(record)
    await all_written(told, 3)
    assert sorted(told.written, key=repr) == sorted(records, key=repr)
    waited_ns = [waited for waited in told.waited_ns if waited is not None]  # of states nobody asks
    assert len(waited_ns) >= 2
    assert all(0 < waited <= time.monotonic_ns() - before_ns for waited in waited_ns)
    found = end.records()
    assert len(found) == 3
    assert {(data.get("sequence"), data.get("kind"), data.get("phase")) for data in found} == {
        (0, None, None),
        (None, "up", None),
        (None, None, "up"),
    }


async def test_results_of_a_camera_keep_their_order(sink, end, told):
    await sink.start()
    for sequence in range(700):
        sink.put(result(("door", "yard")[sequence % 2], sequence))
    await all_written(told, 700)
    found = [(data["camera"], data["sequence"]) for data in end.records()]
    for camera, first in (("door", 0), ("yard", 1)):
        assert [sequence for name, sequence in found if name == camera] == list(range(first, 700, 2))


async def test_what_is_put_before_the_start_is_written_after_it(sink, told):
    sink.put(result())
    assert sink.queued == 1
    await sink.start()
    await all_written(told, 1)
    assert sink.queued == 0


async def test_close_writes_what_is_queued(sink, end, told):
    await sink.start()
    for sequence in range(300):
        sink.put(result(sequence=sequence))
    assert await sink.close(timeout_s=10) == 0
    assert told.written_sequences == list(range(300))
    assert len(end.records()) == 300


async def test_close_of_an_idle_sink_is_quick(sink):
    await sink.start()
    began_s = time.monotonic()
    assert await sink.close(timeout_s=10) == 0
    assert time.monotonic() - began_s < 1


async def test_close_without_a_start_tells_what_was_not_written(sink):
    sink.put(result())
    assert await sink.close(timeout_s=1) == 1


async def test_after_close_records_are_dropped_and_reported(sink, told):
    await sink.start()
    await sink.close(timeout_s=1)
    sink.put(result(sequence=3))
    assert told.dropped_sequences == [3]


async def test_while_the_other_end_is_away_records_wait(sink, end, told):
    end.go_away()
    await sink.start()
    for sequence in range(20):
        sink.put(result(sequence=sequence))
    assert await sink.close(timeout_s=0.3) == 20
    assert (told.written, told.dropped) == ([], [])


async def test_when_the_other_end_comes_back_all_that_waits_is_written_once(sink, end, told):
    end.go_away()
    await sink.start()
    for sequence in range(20):
        sink.put(result(sequence=sequence))
    end.come_back()
    await all_written(told, 20)
    assert [data["sequence"] for data in end.records()] == told.written_sequences == list(range(20))


async def test_a_full_queue_drops_the_oldest_results_first_and_keeps_events_and_states(end, told):
    sink = end.sink(told, max_queue=10)
    end.go_away()
    await sink.start()
    for record in (event(), state(), *(result(sequence=sequence) for sequence in range(20))):
        sink.put(record)
    assert sink.queued == 10
    assert told.dropped_sequences == list(range(12))
    end.come_back()
    await all_written(told, 10)
    assert told.written_sequences == list(range(12, 20))
    assert {type(record) for record in told.written if not isinstance(record, Result)} == {Event, type(state())}
    await sink.close(timeout_s=1)


async def test_text_that_is_no_unicode_does_not_stop_the_others(sink, end, told):
    await sink.start()
    sink.put(event(detail="clips/caf\udce9.mp4: No such file"))
    sink.put(result(labels=("\udce9t\u00e9",)))
    await all_written(told, 2)
    assert "clips/caf?.mp4: No such file" in [data.get("detail") for data in end.records()]
