"""The life-cycle contract of streamd/daemon/daemon.py, clause by clause: a real daemon, real processes, real signals, fake workers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from streamd.daemon import daemon as module
from streamd.errors import ConfigError

# 1


def test_a_configuration_that_cannot_be_used_is_an_error_before_anything_starts(tmp_path, monkeypatch):
    (tmp_path / "streamd.yaml").write_text("models: {}\n")
    monkeypatch.setattr(module, "Daemon", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(ConfigError):
        module.run(tmp_path, log_level="info", log_json=True)


# 2


def test_each_worker_is_a_process_of_its_own_with_the_whole_configuration_and_its_share_of_the_cameras(start_daemon):
    daemon = start_daemon("steady-1", "steady-2", "steady-3", workers=2)
    first, second = sorted(daemon.wait_for_lives(2), key=lambda life: life["worker"])
    assert (first["cameras"], second["cameras"]) == (["steady-1", "steady-3"], ["steady-2"])
    assert len({first["pid"], second["pid"], daemon.process.pid}) == 3
    assert first["config"]["cameras"]["steady-2"]["password"] == "S3cr@t"


def test_the_parent_imports_neither_torch_nor_av():
    program = "import sys; import streamd.daemon.daemon; print(*{'torch', 'torchvision', 'av'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout == "\n"


# 3


def test_a_camera_begins_with_the_event_started_and_the_state_connecting(start_daemon):
    daemon = start_daemon("steady-1")
    daemon.wait_until_phase("up", "steady-1")
    assert daemon.events("steady-1")[:2] == ["started", "up"]
    assert daemon.phases("steady-1")[:2] == ["connecting", "up"]
    first = daemon.records("CameraState")[0]
    assert (first["source"], first["model"]) == ("rtsp://door.example/1", "imagenet")


# 4


def test_systemd_hears_ready_once_and_only_when_every_worker_said_so(start_daemon, systemd):
    daemon = start_daemon("steady-1", "slow-1", workers=2, env={"NOTIFY_SOCKET": systemd.address})
    daemon.wait_until_phase("up", "steady-1")
    assert "READY=1" not in systemd.messages
    (daemon.folder / "go").touch()
    systemd.wait_for("READY=1")
    systemd.wait_for("STATUS=2 of 2 cameras up")
    os.kill(daemon.lives[0]["pid"], signal.SIGKILL)
    daemon.wait_for_lives(3)
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0
    assert systemd.messages.count("READY=1") == 1
    assert "STOPPING=1" in systemd.messages


# 5


def test_what_a_worker_says_of_a_camera_goes_to_the_sink_without_credentials(start_daemon):
    daemon = start_daemon("leaks-1")
    daemon.wait_until_phase("down", "leaks-1")
    (event,) = [record for record in daemon.records("Event") if record["kind"] == "down"]
    assert event["detail"] == daemon.records("CameraState")[-1]["detail"] == "rtsp://***@door/1 refused, ***"
    daemon.wait_for_log("camera down")
    assert "S3cr" not in (daemon.folder / "log").read_text()


# 6


def test_a_worker_that_dies_is_replaced_and_its_cameras_come_back(start_daemon):
    daemon = start_daemon("steady-1", "steady-2", "ends-1", workers=1)
    daemon.wait_until_phase("up", "steady-1", "steady-2")
    daemon.wait_until_phase("ended", "ends-1")
    os.kill(daemon.lives[0]["pid"], signal.SIGKILL)
    daemon.wait_until_phase("up", "steady-1", "steady-2", times=2)
    assert daemon.lives[1]["cameras"] == ["steady-1", "steady-2"]
    assert daemon.phases("steady-2")[:4] == ["connecting", "up", "down", "up"]
    assert daemon.events("steady-2")[:4] == ["started", "up", "worker_died", "up"]
    assert daemon.phases("ends-1") == ["connecting", "up", "ended"]
    down = next(record for record in daemon.records("CameraState", "steady-1") if record["phase"] == "down")
    assert (down["reason"], down["detail"], down["retry_in_s"]) == ("worker_died", "worker w0: killed by SIGKILL", 0.05)


def test_the_other_workers_do_not_notice(start_daemon):
    daemon = start_daemon("steady-1", "steady-2", workers=2)
    daemon.wait_until_phase("up", "steady-1", "steady-2")
    victim = next(life for life in daemon.lives if life["worker"] == "w0")
    os.kill(victim["pid"], signal.SIGKILL)
    daemon.wait_until_phase("up", "steady-1", times=2)
    assert daemon.phases("steady-2") == ["connecting", "up"]
    assert len(daemon.wait_for_lives(1, "w1")) == 1


def test_the_wait_before_a_new_process_doubles_up_to_its_limit(start_daemon):
    daemon = start_daemon("crashes-1", timing={"first_wait": 0.02, "longest_wait": 0.05})
    daemon.wait_for_lives(5)
    waits = [line["retry_in_s"] for line in daemon.log if line["event"] == "worker died"]
    assert waits[:4] == [0.02, 0.04, 0.05, 0.05]


def test_the_wait_starts_again_after_a_healthy_time(start_daemon):
    daemon = start_daemon("crashes-1", timing={"first_wait": 0.02, "healthy_after": 0.0})
    daemon.wait_for_lives(4)
    assert {line["retry_in_s"] for line in daemon.log if line["event"] == "worker died"} == {0.02}


def test_a_worker_that_says_why_it_goes_is_quoted(start_daemon):
    daemon = start_daemon("complains-1")
    daemon.wait_for_lives(2)
    assert daemon.wait_for_log("worker died")["detail"] == "worker w0: the GPU fell off the bus"


def test_a_worker_that_sends_garbage_is_replaced(start_daemon):
    daemon = start_daemon("garbage-1")
    daemon.wait_for_lives(2)
    assert "no message" in daemon.wait_for_log("worker died")["detail"]


# 7


def test_a_worker_that_falls_silent_is_killed_and_replaced(start_daemon, eventually, is_gone):
    daemon = start_daemon("silent-1", timing={"silence": 0.3})
    first = daemon.wait_for_lives(1)[0]
    daemon.wait_for_lives(2)
    eventually(lambda: is_gone(first["pid"]), "the silent worker gone")
    assert daemon.wait_for_log("worker died")["detail"] == "worker w0: silent for 0.3 s"


def test_a_worker_that_still_loads_its_models_may_be_silent(start_daemon):
    daemon = start_daemon("slow-1", "steady-1", timing={"silence": 0.1}, workers=2)
    daemon.wait_until_phase("up", "steady-1")
    time.sleep(0.3)  # three times the limit: the absence of a kill has no event to wait for
    (daemon.folder / "go").touch()
    daemon.wait_until_phase("up", "slow-1")
    assert len(daemon.wait_for_lives(1, "w0")) == 1


# 8


def test_the_watchdog_is_fed_at_a_third_of_its_deadline(start_daemon, systemd):
    start_daemon("steady-1", env={"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "300000"})
    systemd.wait_for("WATCHDOG=1")
    begin = time.monotonic()
    systemd.wait_for("WATCHDOG=1", times=6)
    assert 0.35 < time.monotonic() - begin < 3


def test_the_watchdog_starves_while_a_silent_worker_cannot_be_got_rid_of(start_daemon, systemd, eventually, is_gone):
    env = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "150000"}
    daemon = start_daemon("silent-1", timing={"silence": 0.2}, env=env, killable=False)
    systemd.wait_for("READY=1")
    time.sleep(0.5)
    fed = systemd.messages.count("WATCHDOG=1")
    time.sleep(0.3)  # six times the interval: what does not come cannot be waited for
    assert systemd.messages.count("WATCHDOG=1") == fed
    assert len(daemon.lives) == 1
    daemon.signal(signal.SIGKILL)
    daemon.exit_code()
    eventually(lambda: is_gone(daemon.lives[0]["pid"]), "the worker gone")


# 9


def test_a_worker_that_no_restart_can_help_ends_the_daemon(start_daemon):
    daemon = start_daemon("steady-1", "refuses-1", workers=2)
    assert daemon.exit_code() == os.EX_UNAVAILABLE
    (line,) = [line for line in daemon.log if line["level"] == "error"]
    assert line["reason"] == "model resnet51 does not exist"
    assert len(daemon.lives) == 2


# 10


def test_when_every_file_has_ended_the_daemon_exits_with_0(start_daemon):
    daemon = start_daemon("ends-1", "ends-2", "ends-3", workers=2)
    assert daemon.exit_code() == 0
    assert daemon.records()[-1] == {"type": "closed"}
    assert daemon.phases("ends-3")[-1] == "ended"
    assert "stopped" not in daemon.events()


def test_while_one_camera_goes_on_the_end_of_the_others_ends_nothing(start_daemon):
    daemon = start_daemon("ends-1", "steady-1")
    daemon.wait_until_phase("ended", "ends-1")
    daemon.wait_until_phase("up", "steady-1")
    assert daemon.process.poll() is None


def test_when_a_file_could_not_be_used_the_exit_code_says_so(start_daemon):
    daemon = start_daemon("ends-1", "fails-1")
    assert daemon.exit_code() == os.EX_NOINPUT


# 11


@pytest.mark.parametrize("sink", ["breaks", "breaks later"])
def test_an_error_of_our_own_ends_the_daemon_with_70(start_daemon, sink):
    daemon = start_daemon("steady-1", sink=sink)
    assert daemon.exit_code() == os.EX_SOFTWARE
    assert "the sink is broken" in daemon.wait_for_log("internal error")["exception"]


# 12


def wait_for_event(daemon, eventually, kind, times=1):
    return eventually(
        lambda: len(found := [event for event in daemon.records("Event") if event["kind"] == kind]) >= times and found[-1],
        f"event {kind}; log: {daemon.log}",
    )


def test_cameras_come_and_go_while_the_others_are_not_touched(start_daemon, eventually):
    daemon = start_daemon("steady-1", "steady-2", "steady-3")
    daemon.wait_until_phase("up", "steady-1", "steady-2", "steady-3")
    daemon.write_camera("steady-4")
    daemon.wait_until_phase("up", "steady-4")
    daemon.write_camera("steady-2", fps=2)
    assert wait_for_event(daemon, eventually, "reloaded", times=2)["detail"] == "0 added, 1 changed, 0 removed"
    daemon.camera_file("steady-3").unlink()
    assert wait_for_event(daemon, eventually, "reloaded", times=3)["detail"] == "0 added, 0 changed, 1 removed"
    eventually(lambda: daemon.records("CameraRemoved", "steady-3"), "the state deleted")
    assert daemon.events("steady-3") == ["started", "up", "stopped"]
    assert daemon.events("steady-4") == ["started", "up"]
    assert daemon.phases("steady-1") == ["connecting", "up"]
    assert daemon.updates[-1]["cameras"] == ["steady-1", "steady-2", "steady-4"]
    assert daemon.updates[-1]["config"]["cameras"]["steady-2"]["fps"] == 2
    assert len(daemon.lives) == 1


def test_a_worker_that_dies_later_is_given_the_new_configuration(start_daemon, eventually):
    daemon = start_daemon("steady-1")
    daemon.wait_until_phase("up", "steady-1")
    daemon.write_camera("steady-2")
    daemon.wait_until_phase("up", "steady-2")
    os.kill(daemon.lives[0]["pid"], signal.SIGKILL)
    assert daemon.wait_for_lives(2)[1]["cameras"] == ["steady-1", "steady-2"]


def test_the_link_that_kubernetes_swaps_is_seen(start_daemon, eventually):
    daemon = start_daemon("steady-1", "steady-2")
    daemon.wait_until_phase("up", "steady-1")
    cameras = daemon.folder / "configs" / "cameras"
    text = daemon.camera_file("steady-1").read_text()
    for number, url in enumerate(("door.example/1", "door.example/2")):
        (cameras / f"..{number}").mkdir()
        (cameras / f"..{number}" / "steady-1.yaml").write_text(text.replace("door.example/1", url))
    (cameras / "..data").symlink_to("..0")
    daemon.camera_file("steady-1").unlink()
    daemon.camera_file("steady-1").symlink_to("..data/steady-1.yaml")
    daemon.wait_for_log("the configuration did not change")
    (cameras / "..next").symlink_to("..1")
    (cameras / "..next").rename(cameras / "..data")
    assert wait_for_event(daemon, eventually, "reloaded")["detail"] == "0 added, 1 changed, 0 removed"


def test_a_new_model_is_loaded_by_a_worker_of_its_own(start_daemon, eventually):
    daemon = start_daemon("steady-1")
    daemon.wait_until_phase("up", "steady-1")
    main = json.loads((daemon.folder / "configs" / "streamd.yaml").read_text())
    main["models"]["other"] = {"torchvision": "resnet18"}
    main["camera_defaults"] = {"model": "imagenet"}
    daemon.write_main(main)
    daemon.write_camera("steady-2", model="other")
    daemon.wait_until_phase("up", "steady-2")
    assert [life["cameras"] for life in daemon.lives] == [["steady-1"], ["steady-2"]]
    assert daemon.phases("steady-1") == ["connecting", "up"]


# 13


def test_a_configuration_that_cannot_be_used_changes_nothing(start_daemon, eventually):
    daemon = start_daemon("steady-1")
    daemon.wait_until_phase("up", "steady-1")
    daemon.write_camera("steady-1", fps="many")
    event = wait_for_event(daemon, eventually, "reload_failed")
    assert event["camera"] is None
    assert "steady-1.yaml:1" in event["detail"]
    line = daemon.wait_for_log("the changed configuration cannot be used; the one before stays in effect")
    assert "steady-1.yaml:1" in line["detail"]
    assert daemon.updates == []
    assert daemon.events("steady-1") == ["started", "up"]


# 14


def test_what_needs_a_restart_is_named_and_the_rest_takes_effect(start_daemon, eventually):
    daemon = start_daemon("steady-1")
    daemon.wait_until_phase("up", "steady-1")
    main = json.loads((daemon.folder / "configs" / "streamd.yaml").read_text())
    daemon.write_main({**main, "engine": {**main["engine"], "max_batch": 4}, "camera_defaults": {"fps": 2}})
    event = wait_for_event(daemon, eventually, "reloaded")
    assert event["detail"] == "0 added, 1 changed, 0 removed; restart streamd to apply: engine"
    assert daemon.wait_for_log("a part of the new configuration is not in effect")["sections"] == ["engine"]
    eventually(lambda: daemon.updates, "the worker was told")
    assert daemon.updates[0]["config"]["engine"]["max_batch"] == "auto"


# 15


def test_an_added_worker_that_refuses_does_not_end_the_daemon(start_daemon, eventually):
    daemon = start_daemon("steady-1")
    daemon.wait_until_phase("up", "steady-1")
    main = json.loads((daemon.folder / "configs" / "streamd.yaml").read_text())
    main["models"]["other"] = {"torchvision": "resnet51"}
    main["camera_defaults"] = {"model": "imagenet"}
    daemon.write_main(main)
    daemon.write_camera("refuses-1", model="other")
    daemon.wait_until_phase("failed", "refuses-1")
    assert daemon.records("CameraState", "refuses-1")[-1]["detail"] == "model resnet51 does not exist"
    assert daemon.process.poll() is None
    assert daemon.phases("steady-1") == ["connecting", "up"]


# 16


def test_systemd_hears_of_a_reload_and_is_asked_for_time_while_models_load(start_daemon, systemd, eventually):
    daemon = start_daemon("slow-1", env={"NOTIFY_SOCKET": systemd.address})
    systemd.wait_for("EXTEND_TIMEOUT_USEC=15000000")
    (daemon.folder / "go").touch()
    systemd.wait_for("READY=1")
    before_us = time.monotonic_ns() // 1000
    daemon.signal(signal.SIGHUP)
    systemd.wait_for("READY=1", times=2)
    (said,) = [message for message in systemd.messages if message.startswith("RELOADING=1")]
    assert before_us <= int(said.partition("MONOTONIC_USEC=")[2]) <= time.monotonic_ns() // 1000


# 17


def test_a_worker_that_speaks_but_brings_no_frame_further_is_replaced(start_daemon):
    daemon = start_daemon("stuck-1", timing={"stuck": 0.3})
    daemon.wait_for_lives(2)
    assert daemon.wait_for_log("worker died")["detail"] == "worker w0: decoded nothing for 0.3 s while frames came in"


# 18


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_workers_and_exits_with_0(start_daemon, systemd, number, is_gone):
    daemon = start_daemon("steady-1", "steady-2", workers=2, env={"NOTIFY_SOCKET": systemd.address})
    daemon.wait_until_phase("up", "steady-1", "steady-2")
    daemon.signal(number)
    assert daemon.exit_code() == 0
    assert "STOPPING=1" in systemd.messages
    assert sorted(stop["worker"] for stop in daemon.stops) == ["w0", "w1"]
    assert all(0 < stop["timeout_s"] < 5 for stop in daemon.stops)
    assert all(is_gone(life["pid"]) for life in daemon.lives)
    assert len(daemon.lives) == 2


def test_a_worker_that_does_not_stop_in_time_is_killed(start_daemon, is_gone):
    daemon = start_daemon("deaf-1", "steady-1", workers=2, shutdown_timeout=0.3)
    daemon.wait_until_phase("up", "deaf-1")
    begin = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0
    assert 0.3 <= time.monotonic() - begin < 3
    assert all(is_gone(life["pid"]) for life in daemon.lives)


def test_a_signal_while_a_worker_waits_for_its_next_process_ends_the_wait(start_daemon):
    daemon = start_daemon("crashes-1", timing={"first_wait": 60.0})
    daemon.wait_for_log("worker died")
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0
    assert len(daemon.lives) == 1


def test_a_signal_while_models_load_stops_the_worker(start_daemon):
    daemon = start_daemon("slow-1")
    daemon.wait_for_lives(1)
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0
    assert len(daemon.stops) == 1


# 19


def test_at_the_end_unfinished_cameras_are_stopped_and_the_sink_is_flushed(start_daemon):
    daemon = start_daemon("steady-1", "ends-1")
    daemon.wait_until_phase("up", "steady-1")
    daemon.wait_until_phase("ended", "ends-1")
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0
    assert (daemon.events("steady-1")[-1], daemon.phases("steady-1")[-1]) == ("stopped", "stopped")
    assert daemon.phases("ends-1")[-1] == "ended"
    closing, closed = daemon.records()[-2:]
    assert (closing["type"], closed["type"]) == ("closing", "closed")
    assert 1.0 <= closing["timeout_s"] <= 5.0


# 20


def test_a_second_signal_kills_the_workers_and_leaves_at_once(start_daemon, eventually, is_gone):
    daemon = start_daemon("deaf-1", "deaf-2", workers=2, shutdown_timeout=60)
    daemon.wait_until_phase("up", "deaf-1", "deaf-2")
    daemon.signal(signal.SIGTERM)
    eventually(lambda: len(daemon.stops) == 2, "both workers asked to stop")
    daemon.signal(signal.SIGINT)
    assert daemon.exit_code() == 128 + signal.SIGINT
    eventually(lambda: all(is_gone(life["pid"]) for life in daemon.lives), "workers gone")
    assert not daemon.records("closing")


def test_a_second_signal_does_not_wait_for_a_flush_either(start_daemon, eventually):
    daemon = start_daemon("steady-1", sink="hangs")
    daemon.wait_until_phase("up", "steady-1")
    daemon.signal(signal.SIGTERM)
    eventually(lambda: daemon.records("closing"), "the flush began")
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 128 + signal.SIGTERM


# 21


def test_a_killed_parent_takes_its_workers_with_it(start_daemon, eventually, is_gone):
    daemon = start_daemon("steady-1", "deaf-1", workers=2)
    daemon.wait_until_phase("up", "steady-1", "deaf-1")
    daemon.signal(signal.SIGKILL)
    assert daemon.exit_code() == -signal.SIGKILL
    eventually(lambda: all(is_gone(life["pid"]) for life in daemon.lives), "workers gone")
    assert len(daemon.orphans) == 2


# The numbers above are the contract's.


def test_the_clauses_are_numbered_without_a_gap():
    numbers = [int(number) for number in re.findall(r"^ ?(\d+)\. ", module.__doc__, re.MULTILINE)]
    assert numbers[0] == 1
    assert all(after == before + 1 for before, after in pairwise(numbers))
    own = Path(__file__).read_text()
    assert [int(number) for number in re.findall(r"^# (\d+)$", own, re.MULTILINE)] == numbers
