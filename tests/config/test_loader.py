"""What `load` makes of files: the configuration, or every problem with its place."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamd.config import Config, load, loader
from streamd.errors import ConfigError, ConfigNotFound

MAIN = "models:\n  imagenet:\n    torchvision: resnet50\n"
TWO_MODELS = MAIN + "  plants:\n    torchvision: resnet18\n"
CAMERA = "url: rtsp://192.0.2.10/stream\n"

NAME_RULE = "must be 1 to 64 letters, digits, `_`, `.` or `-`, and begin with a letter or digit"
ONE_KIND = "give exactly one of `torchvision` (a model's name, resnet50 say) and `builtin`"
NO_USER_NAME = "holds a user name; write it under `username:` and `password:`, where nothing needs escaping"
DURATION = "must be a duration: a number of seconds, or a text such as 500ms, 10s, 5m, 1h"
NOT_SET = "environment variable NO_SUCH_VARIABLE is not set; set it, or write ${NO_SUCH_VARIABLE:-default}"
FILE_RULE = "${file:NAME} takes the name of a file without folders: letters, digits, `_`, `.`, `-`, `@`"
NO_FILE = "there is no file redis in secrets; put the secret there, or set $CREDENTIALS_DIRECTORY to its folder"


def problems(**kwargs) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(Path("configs"), **kwargs)
    return str(caught.value).splitlines()


BROKEN = {
    "a number out of range": (
        MAIN,
        CAMERA + "fps: 0\nreconnect:\n  max: 0s\n",
        [
            "configs/cameras/door.yaml:2:6: fps: must be greater than 0",
            "configs/cameras/door.yaml:4:8: reconnect.max: must be greater than 0",
        ],
    ),
    "unknown keys": (
        MAIN + "redis:\n  pasword: hunter2\n",
        CAMERA + "transprot: udp\nwibble: 1\n",
        [
            "configs/cameras/door.yaml:2:1: transprot: unknown key; did you mean `transport`?",
            "configs/cameras/door.yaml:3:1: wibble: unknown key",
            "configs/streamd.yaml:5:3: redis.pasword: unknown key; did you mean `password`?",
        ],
    ),
    "an unknown key of a model": (
        MAIN + "    topk: 3\n",
        CAMERA,
        ["configs/streamd.yaml:4:5: models.imagenet.topk: unknown key; did you mean `top_k`?"],
    ),
    "duplicate keys, every one of them": (
        MAIN + "models: {}\n",
        CAMERA + "fps: 5\nfps: 6\nfps: 7\n",
        [
            "configs/cameras/door.yaml:3:1: fps: duplicate key; the first is in line 2",
            "configs/cameras/door.yaml:4:1: fps: duplicate key; the first is in line 2",
            "configs/streamd.yaml:4:1: models: duplicate key; the first is in line 1",
        ],
    ),
    "wrong types": (
        MAIN + "redis:\n  max_entries: lots\n  pubsub: maybe\n  password: 12345\nengine: fast\n",
        CAMERA + "fps: true\nusername: 007\nmax_age: soon\nreconnect: [1]\n",
        [
            "configs/cameras/door.yaml:2:6: fps: must be a number, not true or false",
            "configs/cameras/door.yaml:3:11: username: must be text; put it in quotes if it looks like something else",
            f"configs/cameras/door.yaml:4:10: max_age: {DURATION}",
            "configs/cameras/door.yaml:5:12: reconnect: must be a group of keys, one a line, indented below this one",
            "configs/streamd.yaml:5:16: redis.max_entries: must be a whole number",
            "configs/streamd.yaml:6:11: redis.pubsub: must be true or false",
            "configs/streamd.yaml:7:13: redis.password: must be text; put it in quotes if it looks like something else",
            "configs/streamd.yaml:8:9: engine: must be a group of keys, one a line, indented below this one",
        ],
    ),
    "choices": (
        MAIN + "engine:\n  workers: many\n  decode_threads: 0\n",
        CAMERA + "transport: http\nrotate: 45\n",
        [
            "configs/cameras/door.yaml:2:12: transport: must be one of tcp, udp",
            "configs/cameras/door.yaml:3:9: rotate: must be one of auto, 0, 90, 180, 270",
            "configs/streamd.yaml:5:12: engine.workers: must be a whole number or auto",
            "configs/streamd.yaml:6:19: engine.decode_threads: must be greater than 0 or auto",
        ],
    ),
    "groups without keys": (
        "models:\nengine:\n",
        CAMERA,
        [
            "configs/streamd.yaml:1:1: models: is empty; give it keys, or leave it out",
            "configs/streamd.yaml:2:1: engine: is empty; give it keys, or leave it out",
        ],
    ),
    "keys that must be given": (
        "models: {}\n",
        "fps: 5\n",
        [
            "configs/cameras/door.yaml:1:1: url: must be given",
            "configs/streamd.yaml:1:9: models: must have at least one entry",
        ],
    ),
    "rules about several keys, at one of them": (
        "redis: null\n" + MAIN + "    builtin: efficientnet-lite0\nengine:\n  max_batch: 64\n  slots: 100\n",
        CAMERA + "loop: true\n",
        [
            "configs/cameras/door.yaml:2:7: `realtime` and `loop` are for files; a live camera has its own pace and no end",
            f"configs/streamd.yaml:4:18: models.imagenet: {ONE_KIND}",
            "configs/streamd.yaml:8:10: engine: `slots` must be at least twice `max_batch`, so at least 128",
        ],
    ),
    "results that go nowhere": (
        MAIN + "redis: null\n",
        CAMERA,
        ["configs/streamd.yaml:4:8: neither `redis` nor `jsonl` is given: results would go nowhere"],
    ),
    "addresses, without a word of theirs": (
        MAIN + "redis:\n  url: redis://:hunter2@redis/0\n",
        "url: rtsp://admin:hunter2@192.0.2.10/\n",
        [
            f"configs/cameras/door.yaml:1:6: url: {NO_USER_NAME}",
            "configs/streamd.yaml:5:8: redis.url: holds a password; write it under `password:` instead, best as ${file:redis-password}",
        ],
    ),
    "a model that is not there": (
        MAIN,
        CAMERA + "model: resnet50\n",
        ["configs/cameras/door.yaml:2:8: model: no such model; `models` has imagenet"],
    ),
    "a choice among models left open": (
        TWO_MODELS,
        CAMERA,
        ["configs/cameras/door.yaml:1:1: model: must be given, since there are several models: imagenet, plants"],
    ),
    "a model's bad name": (
        'models:\n  "image net": {torchvision: resnet50}\n',
        CAMERA,
        [
            f"configs/streamd.yaml:2:3: models.image net: {NAME_RULE}",
        ],
    ),
    "variables and secrets that are not there": (
        MAIN + "redis:\n  password: ${file:redis}\n",
        CAMERA + "username: ${NO_SUCH_VARIABLE}\npassword: ${file:../etc/shadow}\nfps: ${\n",
        [
            f"configs/cameras/door.yaml:2:11: username: {NOT_SET}",
            f"configs/cameras/door.yaml:3:11: password: {FILE_RULE}",
            "configs/cameras/door.yaml:4:6: fps: `${` without `}`; write `$${` for a literal `${`",
            f"configs/streamd.yaml:5:13: redis.password: {NO_FILE}",
        ],
    ),
    "YAML that cannot be read, in both files": (
        "models:\n  imagenet\n    torchvision: resnet50\n",
        "url: rtsp://192.0.2.10/stream\n\tfps: 5\n",
        [
            "configs/cameras/door.yaml:2:1: a tab; YAML is indented with spaces",
            "configs/streamd.yaml:3:16: no place for a `:`; check the indentation, or put a value that holds `: ` in quotes",
        ],
    ),
    "empty files": (
        "# nothing yet\n",
        "",
        [
            "configs/cameras/door.yaml:1:1: is empty; write keys with values, `url: rtsp://HOST/PATH` to begin with",
            "configs/streamd.yaml:1:1: is empty; write keys with values, `models: {imagenet: {torchvision: resnet50}}` to begin with",
        ],
    ),
    "a list, and a word": (
        "models\n",
        "- url: rtsp://192.0.2.10/stream\n",
        [
            "configs/cameras/door.yaml:1:1: is no mapping; write keys with values, `url: rtsp://HOST/PATH` to begin with",
            "configs/streamd.yaml:1:1: is no mapping; write keys with values, `models: {imagenet: {torchvision: resnet50}}` to begin with",
        ],
    ),
    "another encoding": (
        MAIN,
        b"url: rtsp://192.0.2.10/stream\nusername: K\xc3\xa4se \xfcber\n",
        ["configs/cameras/door.yaml:2:16: not UTF-8 text; save the file as UTF-8"],
    ),
    "no main file": (
        None,
        CAMERA + "fps: 0\n",
        ["configs/cameras/door.yaml:2:6: fps: must be greater than 0", "configs/streamd.yaml: does not exist"],
    ),
}


@pytest.mark.parametrize(("main", "camera", "lines"), BROKEN.values(), ids=BROKEN)
def test_each_problem_is_one_line_with_file_line_column_and_what_to_do(write, main, camera, lines):
    write(main, **{"door.yaml": camera})
    assert problems() == lines
    assert "hunter2" not in "".join(lines)


def test_a_configuration_is_main_file_and_one_file_a_camera_in_lexical_order(write):
    write(MAIN, **{"yard.yaml": CAMERA, "door.yml": CAMERA, "Door.yaml": CAMERA})
    config = load(Path("configs"))
    assert list(config.cameras) == ["Door", "door", "yard"]
    assert config.model_of("yard") == "imagenet"
    assert config.cameras["door"].url == "rtsp://192.0.2.10/stream"


def test_hidden_files_backups_and_other_files_are_no_cameras(write):
    broken = "{"
    write(MAIN, **{"door.yaml": CAMERA, ".door.yaml": broken, "door.yaml~": broken, "~door.yaml": broken, "notes.txt": broken})
    assert list(load(Path("configs")).cameras) == ["door"]


def test_two_files_of_one_name_are_a_problem(write):
    write(MAIN, **{"door.yaml": CAMERA, "door.yml": CAMERA})
    assert problems() == ["configs/cameras/door.yml: a second camera door, after door.yaml; rename or remove one"]


def test_a_file_name_that_is_no_camera_name_is_a_problem(write):
    write(MAIN, **{"front door.yaml": CAMERA, "line\nbreak.yaml": CAMERA, "\udcff.yaml": CAMERA})
    rule = f"the file's name is the camera's: it {NAME_RULE}"
    names = [r"\udcff.yaml", "front door.yaml", r"line\nbreak.yaml"]
    assert problems() == [f"configs/cameras/{name}: {rule}" for name in names]


def test_no_camera_file_is_a_problem_that_says_how_to_make_one(write, folder):
    write()
    (folder / "configs/cameras/door.yaml").unlink()
    line = "configs/cameras: no cameras: add a file configs/cameras/NAME.yaml; streamd probe URL --write writes one"
    assert problems() == [line]
    (folder / "configs/cameras").rmdir()
    assert problems() == [line]


def test_a_disabled_camera_is_checked_and_left_out(write):
    off = CAMERA + "enabled: false\n"
    write(MAIN, **{"door.yaml": CAMERA, "yard.yaml": off})
    assert list(load(Path("configs")).cameras) == ["door"]
    write(MAIN, **{"door.yaml": off, "yard.yaml": off + "fps: x\n"})
    assert problems() == ["configs/cameras/yard.yaml:3:6: fps: must be a number"]
    write(MAIN, **{"yard.yaml": off})
    assert problems() == ["configs/cameras: all cameras have `enabled: false`; enable one, or add one"]


def test_what_is_no_file_or_cannot_be_opened_is_a_problem_and_never_a_hang(write, folder):
    write()
    cameras = folder / "configs/cameras"
    os.mkfifo(cameras / "fifo.yaml")
    (cameras / "folder.yaml").mkdir()
    (cameras / "gone.yaml").symlink_to("nowhere")
    (cameras / "loop.yaml").symlink_to("loop.yaml")
    assert problems() == [
        "configs/cameras/fifo.yaml: cannot be read: not a file",
        "configs/cameras/folder.yaml: cannot be read: not a file",
        "configs/cameras/gone.yaml: does not exist",
        "configs/cameras/loop.yaml: cannot be read: Too many levels of symbolic links",
    ]


def test_cameras_that_is_no_folder_is_a_problem(write, folder):
    write()
    (folder / "configs/cameras/door.yaml").unlink()
    (folder / "configs/cameras").rmdir()
    (folder / "configs/cameras").write_text(CAMERA)
    assert problems() == ["configs/cameras: cannot be read: Not a directory"]


def test_a_byte_order_mark_and_windows_line_ends_are_fine(write):
    write(MAIN, **{"door.yaml": b"\xef\xbb\xbfurl: rtsp://192.0.2.10/stream\r\nfps: 5\r\n"})
    assert load(Path("configs")).cameras["door"].fps == 5


def test_defaults_lie_beneath_each_camera_at_every_depth(write):
    main = MAIN + "camera_defaults:\n  fps: 5\n  transport: udp\n  reconnect:\n    initial: 2s\n    max: 20s\n"
    write(main, **{"door.yaml": CAMERA + "fps: 1\nreconnect:\n  max: 1m\n", "yard.yaml": CAMERA + "fps: null\n"})
    door, yard = load(Path("configs")).cameras.values()
    assert (door.fps, door.transport, door.reconnect.initial, door.reconnect.max) == (1, "udp", 2, 60)
    assert (yard.fps, yard.transport, yard.reconnect.max, yard.reconnect.refused) == (None, "udp", 20, 300)


def test_a_default_s_problem_is_reported_once_where_the_default_stands(write):
    main = MAIN + "camera_defaults:\n  fps: 0\n  model: birds\n  wibble: 1\n  enabled: false\n  reconnect:\n    max: x\n"
    write(main, **{"door.yaml": CAMERA, "yard.yaml": CAMERA, "own.yaml": CAMERA + "fps: 2\nmodel: imagenet\n"})
    assert problems() == [
        "configs/streamd.yaml:5:8: camera_defaults.fps: must be greater than 0",
        "configs/streamd.yaml:6:10: camera_defaults.model: no such model; `models` has imagenet",
        "configs/streamd.yaml:7:3: camera_defaults.wibble: unknown key",
        "configs/streamd.yaml:8:3: camera_defaults.enabled: unknown key",
        f"configs/streamd.yaml:10:10: camera_defaults.reconnect.max: {DURATION}",
    ]


def test_a_default_that_does_not_fit_one_camera_is_that_camera_s_problem(write):
    write(MAIN + "camera_defaults:\n  loop: true\n", **{"clip.yaml": "url: clip.mp4\n", "door.yaml": CAMERA})
    assert problems() == [
        "configs/cameras/door.yaml:1:1: `realtime` and `loop` are for files; a live camera has its own pace and no end",
    ]


def test_relative_paths_are_relative_to_the_file_they_stand_in(write, folder):
    main = MAIN + "    weights_file: ../net.pt\n    labels_file: /abs/labels.txt\njsonl: {path: out.jsonl}\n"
    urls = {"a": "../../clips/a.mp4", "b": "/abs/b.mp4", "c": "file:///abs/c%20c.mp4"}
    write(main, **{f"{name}.yaml": f"url: {url}\n" for name, url in urls.items()})
    config = load(Path("configs"))
    assert [camera.url for camera in config.cameras.values()] == [f"{folder}/clips/a.mp4", "/abs/b.mp4", "/abs/c c.mp4"]
    assert config.models["imagenet"].weights_file == folder / "net.pt"
    assert config.models["imagenet"].labels_file == Path("/abs/labels.txt")
    assert config.jsonl is not None
    assert config.jsonl.path == f"{folder}/configs/out.jsonl"


def test_standard_output_is_no_relative_path(write):
    write(MAIN + "jsonl: {}\n")
    config = load(Path("configs"))
    assert config.jsonl is not None
    assert config.jsonl.path == "-"


def test_files_that_are_named_must_exist_only_where_the_caller_asks(write, folder):
    (folder / "secrets/clip").write_text("hunter2.mp4")
    main = MAIN + "    weights_file: net.pt\n    labels_file: cameras\n"
    write(main, **{"clip.yaml": "url: ${file:clip}\n", "off.yaml": "url: x.mp4\nenabled: false\n"})
    assert list(load(Path("configs")).cameras) == ["clip"]
    assert problems(require_files=True) == [
        f"configs/cameras/clip.yaml:1:6: url: {folder}/configs/cameras/*** does not exist",
        f"configs/streamd.yaml:4:19: models.imagenet.weights_file: {folder}/configs/net.pt does not exist",
        f"configs/streamd.yaml:5:18: models.imagenet.labels_file: {folder}/configs/cameras is a folder, not a file",
    ]


def test_a_path_may_be_the_folder_or_the_main_file_in_it(write, folder):
    write()
    assert load(Path("configs")) == load(Path("configs/streamd.yaml")) == load(folder / "configs")


def test_without_a_path_the_variable_comes_first_then_the_current_folder_then_etc(write, folder, monkeypatch):
    write(MAIN, **{"door.yaml": CAMERA})
    etc = folder / "etc"
    (folder / "configs").rename(etc)
    write_again = folder / "configs/cameras"
    write_again.mkdir(parents=True)
    monkeypatch.setattr(loader, "SEARCH_PATH", (Path("configs"), etc))
    assert list(load().cameras) == ["door"]  # ./configs holds no streamd.yaml: it is somebody else's folder
    write(MAIN, **{"here.yaml": CAMERA})
    assert list(load().cameras) == ["here"]
    monkeypatch.setenv("STREAMD_CONFIG", str(etc))
    assert list(load().cameras) == ["door"]


def test_a_configuration_that_is_nowhere_is_an_error_of_its_own(folder, monkeypatch):
    monkeypatch.setattr(loader, "SEARCH_PATH", (Path("configs"), Path("etc")))
    with pytest.raises(ConfigNotFound, match=r"^streamd.yaml: not found in configs/ or etc/; name its folder"):
        load()
    with pytest.raises(ConfigNotFound, match=r"^nowhere: does not exist$"):
        load(Path("nowhere"))
    monkeypatch.setenv("STREAMD_CONFIG", "nowhere")
    with pytest.raises(ConfigNotFound, match=r"^nowhere: does not exist; \$STREAMD_CONFIG names it$"):
        load()


def test_numbers_and_choices_may_come_from_variables(write, monkeypatch):
    monkeypatch.setenv("TURN", "90")
    write(
        MAIN + "redis:\n  max_entries: ${ENTRIES:-77}\n  password: ${REDIS_PASSWORD:-}\nengine:\n  workers: ${WORKERS:-2}\n",
        **{
            "door.yaml": CAMERA
            + "fps: ${FPS:-5}\nrotate: ${TURN}\nmax_age: ${AGE:-250ms}\nsilence_timeout: ${SILENCE:-7}\nenabled: ${ON:-yes}\n"
        },
    )
    config = load(Path("configs"))
    door = config.cameras["door"]
    assert (door.fps, door.rotate, door.max_age, door.silence_timeout, config.engine.workers) == (5, 90, 0.25, 7, 2)
    assert config.redis is not None
    assert (config.redis.max_entries, config.redis.password) == (77, None)


def test_what_is_filled_in_is_never_read_as_yaml(write, monkeypatch):
    monkeypatch.setenv("NAME", "x\nurl: rtsp://elsewhere/ # {[*&!")
    write(MAIN, **{"door.yaml": CAMERA + "username: ${NAME}\n"})
    door = load(Path("configs")).cameras["door"]
    assert door.username == "x\nurl: rtsp://elsewhere/ # {[*&!"
    assert door.url == "rtsp://192.0.2.10/stream"


VALID_MAIN = (
    "redis: {url: 'redis://127.0.0.1:6379/0', password: \"${P:-x}\"}\njsonl:\n  path: '-'\n"
    + MAIN
    + "engine:\n  max_wait: 10ms\n  workers: auto\ncamera_defaults:\n  fps: 5.5\n  reconnect: {max: 1m}\n"
)
VALID_CAMERA = 'url: "rtsp://192.0.2.10/\\x41"\nusername: ${U:-viewer}\npassword: >-\n  folded\n  text\nrotate: 0x5a\nenabled: true\n'
CHARACTERS = st.sampled_from(
    [*" \t\n\r:-#'\"[]{}!&*|>%@`,?~$\\\0\x07\x85\ud800", "\u2028", "\ufeff", "é", "1e9", ".inf", ".nan", "0o17", "null"]
)
EDITS = st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(0, 4), CHARACTERS | st.text(max_size=3)), min_size=1, max_size=4)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EDITS)
def test_whatever_the_text_the_outcome_is_a_configuration_or_a_config_error(write, edits):
    texts = [VALID_MAIN, VALID_CAMERA]
    for which, position, removed, inserted in edits:
        text = texts[which]
        at = position % (len(text) + 1)
        texts[which] = text[:at] + inserted + text[at + removed :]
    main, camera = (text.encode("utf-8", "surrogatepass") for text in texts)
    write(main, **{"door.yaml": camera})
    outcome = load_or_error()
    if not isinstance(outcome, Config):
        lines = str(outcome).split("\n")
        assert len(lines) == len(outcome.problems) > 0
        assert all(line.startswith("configs/") and line.isprintable() for line in lines), lines


def load_or_error() -> Config | ConfigError:
    try:
        return load(Path("configs"))
    except ConfigError as error:
        return error
