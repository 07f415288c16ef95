"""Which texts of a configuration no log may show."""

from pathlib import Path

from streamd.config import Config, load, secrets
from streamd.config.redaction import reveal

MAIN = "models: {imagenet: {torchvision: resnet50}}\n"


def test_passwords_and_whatever_came_from_files_are_secrets_longest_first(write, folder):
    (folder / "secrets/path").write_text("token/7f3a\n")
    (folder / "secrets/redis").write_text("red is\n")
    write(
        MAIN + "redis: {password: '${file:redis}'}\ncamera_defaults: {password: default-pass}\n",
        **{"door.yaml": "url: http://h/${file:path}\nusername: viewer\n", "yard.yaml": "url: rtsp://h/\npassword: p@ss/1\n"},
    )
    config = load(Path("configs"))
    known = secrets(config)
    assert set(known) == {"token/7f3a", "token%2F7f3a", "red is", "red%20is", "default-pass", "p@ss/1", "p%40ss%2F1"}
    assert [len(text) for text in known] == sorted(map(len, known), reverse=True)
    assert not any(text in repr(config.redact) + repr(config.redis) for text in known)


def test_a_worker_that_is_given_the_revealed_configuration_knows_the_same_secrets(write, folder):
    (folder / "secrets/path").write_text("token")
    write(MAIN, **{"door.yaml": "url: http://h/${file:path}\npassword: hunter2\n"})
    config = load(Path("configs"))
    again = Config.model_validate(reveal(config))
    assert again == config
    assert secrets(again) == secrets(config) == ("hunter2", "token")


def test_a_configuration_without_passwords_has_no_secrets(write):
    write(MAIN, **{"door.yaml": "url: rtsp://h/\npassword: ${NOT_SET:-}\n"})
    assert secrets(load(Path("configs"))) == ()
