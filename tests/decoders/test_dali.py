"""DALI's own: what it is not asked for, what its samples are. How a camera uses it is in tests/camera/test_backlog.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from support.clips import ClipCache

from streamd import color, decoders
from streamd.decoders import dali
from streamd.decoders.dali import DaliReader, Recipe, normalised
from streamd.errors import DecodeError, DecoderUnavailable
from streamd.preprocess.spec import InputSpec
from streamd.preprocess.torch_ops import TorchPreprocessor
from streamd.sources.file import FileSource
from streamd.types import Frame, Matrix, StreamInfo

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
H264 = StreamInfo(codec="h264", width=1920, height=1080, time_base=Fraction(1, 90_000), pixel_format="yuv420p")
SPEC = InputSpec(resize=256, crop=(224, 224), interpolation="bilinear", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@pytest.fixture
def installed(monkeypatch):
    """As if the library were there, where it is asked no more than that."""
    monkeypatch.setattr(dali, "_library", lambda: None)


def recipe_of(spec: InputSpec, height: int, width: int, *, dtype: torch.dtype = torch.float32) -> Recipe:
    place = spec.geometry(height, width, rotation_deg=0)
    origin = (place.rows.start - place.top, place.cols.start - place.left)
    return Recipe(spec.resized(height, width), origin, spec.crop, spec.interpolation, spec.mean, spec.std, dtype)


def opened(path: Path) -> StreamInfo:
    source = FileSource(path, loop=False)
    try:
        return source.open()
    finally:
        source.close()


def levels(samples: torch.Tensor, spec: InputSpec) -> torch.Tensor:
    """Normalised samples [..., 3] on the scale 0..255."""
    return (samples.float().cpu() * torch.tensor(spec.std) + torch.tensor(spec.mean)) * 255


# --- what is refused


def test_without_the_library_the_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with pytest.raises(
        DecoderUnavailable, match=r"^NVIDIA DALI is not installed; pip install 'streamd\[dali\]', or take another `decoder`$"
    ):
        dali._library.__wrapped__()


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg"])
def test_upright_pictures_in_420_of_the_codecs_that_dali_knows_are_taken(installed, codec):
    assert dali.refusal(replace(H264, codec=codec), CUDA) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"codec": "mpeg2video"}, "DALI does not take mpeg2video with pixels of yuv420p; `decoder: auto` does"),
        ({"pixel_format": "yuv444p"}, "DALI does not take h264 with pixels of yuv444p; `decoder: auto` does"),
        ({"rotation_deg": 90}, "DALI does not turn pictures, and this file is to be turned by 90 degrees; `decoder: auto` does"),
    ],
)
def test_other_files_are_refused_with_what_to_do(installed, change, reason):
    assert dali.refusal(replace(H264, **change), CUDA) == reason


def test_on_the_cpu_it_is_refused_whether_it_is_installed_or_not():
    assert dali.refusal(H264, CPU) == "decoder: dali needs a GPU, and the engine runs on the CPU"


# --- how the library is asked, with a stand-in for it

TOLD = """Critical error in pipeline:
Error in GPU operator `nvidia.dali.fn.experimental.readers.video`,
which was used in the pipeline definition with the following traceback:

  File "dali.py", line 1, in __init__

encountered:

Assert on "caps.bIsSupported" failed: Codec configuration not supported on this GPU.
C++ context: [/opt/dali/dali/operators/video/frames_decoder_gpu.cc:146]
Current pipeline object is no longer valid."""


class FakePipeline:
    """Gives 5 frames in runs of 2, each sample its frame's number. Two runs are under way after the first `schedule_run`."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.scheduled = self.given = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def set_outputs(self, *_):
        pass

    def schedule_run(self) -> None:
        self.scheduled += 1 if self.scheduled else 2

    def outputs(self):
        assert self.given < self.scheduled, "it would wait for ever"
        if self.given == self.fails_at:
            raise RuntimeError(TOLD)
        first = 2 * self.given
        self.given += 1
        frames = torch.tensor([[frame if frame < 5 else -1 for frame in (first, first + 1)]])
        samples = frames.view(1, 2, 1, 1, 1).expand(1, 2, 4, 4, 3).float()
        return [SimpleNamespace(as_tensor=lambda made=made: made) for made in (samples, frames, frames / 25)]

    def reader_meta(self, _):
        return {"epoch_size": 3}


@pytest.fixture
def reader_over(monkeypatch):
    """`reader_over(pipeline)`: a reader whose library makes that pipeline."""

    def new(pipeline: FakePipeline) -> DaliReader:
        library = dali._Library(fn=MagicMock(), types=MagicMock(), pipeline=lambda **_: pipeline)
        library.fn.experimental.readers.video.return_value = (MagicMock(), MagicMock(), MagicMock())
        monkeypatch.setattr(dali, "_library", lambda: library)
        return DaliReader(Path("film.mp4"), H264, recipe_of(SPEC, 1080, 1920), device=CUDA)

    return new


def test_padding_is_cut_off_and_no_run_is_made_for_another_round(reader_over):
    pipeline = FakePipeline()
    runs = list(reader_over(pipeline).runs())
    assert [run.frames for run in runs] == [(0, 1), (2, 3), (4,)]
    assert [time for run in runs for time in run.times_s] == pytest.approx([0, 0.04, 0.08, 0.12, 0.16])
    assert [run.samples.mean().item() for run in runs] == [0.5, 2.5, 4.0]
    assert pipeline.scheduled == pipeline.given == 3


def test_a_file_that_cannot_be_begun_is_refused_in_one_sentence(reader_over):
    with pytest.raises(DecoderUnavailable, match=r"^DALI cannot take film\.mp4: Codec configuration not supported on this GPU$"):
        next(reader_over(FakePipeline(fails_at=0)).runs())


def test_a_file_that_cannot_be_read_to_its_end_is_an_error_after_the_frames_before(reader_over):
    runs = reader_over(FakePipeline(fails_at=2)).runs()
    assert [next(runs).frames, next(runs).frames] == [(0, 1), (2, 3)]
    with pytest.raises(DecodeError, match=r"^DALI cannot decode film\.mp4: Codec configuration not supported on this GPU$"):
        next(runs)


# --- with the library, on the CPU


@pytest.fixture
def library():
    pytest.importorskip("nvidia.dali")
    return dali._library()


def through(library, pictures: np.ndarray, recipe: Recipe, to_rgb: color.ToRgb) -> torch.Tensor:
    """What the pipeline makes of pictures [frames, height, width, 3]."""
    pipeline = library.pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        given = library.fn.external_source(source=[[pictures]], layout="FHWC", cycle=True)
        pipeline.set_outputs(normalised(given, recipe, to_rgb))
    (made,) = pipeline.run()
    return torch.from_numpy(np.array(made[0]))


@pytest.mark.comparison
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("matrix", [Matrix.BT601, Matrix.BT709, Matrix.BT2020])
@pytest.mark.parametrize(
    ("size", "spec"),
    [
        ((240, 320), SPEC),
        ((240, 320), replace(SPEC, interpolation="bicubic")),
        ((101, 77), replace(SPEC, interpolation="bicubic", resize=(150, 170), crop=(128, 130))),
        ((90, 160), replace(SPEC, resize=(72, 224))),
    ],
    ids=["bilinear", "bicubic", "larger", "padded"],
)
def test_the_samples_are_those_of_our_own_preprocessing(library, matrix, full_range, size, spec):
    rng = np.random.default_rng(1)
    coarse = rng.integers(0, 256, (2, 12, 12, 3), dtype=np.uint8)
    pictures = np.ascontiguousarray(coarse.repeat(-(-size[0] // 12), 1).repeat(-(-size[1] // 12), 2)[:, : size[0], : size[1]])
    made = through(library, pictures, recipe_of(spec, *size), color.to_rgb(matrix, full_range=full_range, bit_depth=8, shift=0))
    preprocessor = TorchPreprocessor(spec, "cpu")
    for picture, sample in zip(torch.from_numpy(pictures), made, strict=True):
        y, u, v = picture.unbind(2)
        frame = Frame(0, y, u, v, bit_depth=8, shift=0, matrix=matrix, full_range=full_range, rotation_deg=0)
        expected = torch.empty(3, *spec.crop)
        preprocessor(frame, expected)
        apart = (levels(sample, spec) - levels(expected.permute(1, 2, 0), spec)).abs()
        assert apart.max() < 1.01, "a level, where the two are rounded apart"
        assert (apart > 0.01).float().mean() < 0.01


@pytest.mark.comparison
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_reader_gives_each_frame_once_with_its_number_and_time(library, clip: ClipCache, dtype):
    path = clip(".mkv", codec="vp9", frames=37, fps=25)
    info = opened(path)
    reader = DaliReader(path, info, recipe_of(SPEC, info.height, info.width, dtype=dtype), device=CPU)
    runs = list(reader.runs())
    reader.close()
    assert [len(run.samples) for run in runs] == [16, 16, 5]
    assert [frame for run in runs for frame in run.frames] == list(range(37))
    assert [time for run in runs for time in run.times_s] == pytest.approx([number / 25 for number in range(37)])
    assert {run.samples.dtype for run in runs} == {dtype}
    assert runs[0].samples.shape == (16, 224, 224, 3)
    assert len({run.samples[0].double().sum().item() for run in runs}) == 3, "runs that were given before are not overwritten"


@pytest.mark.comparison
def test_a_file_that_dali_does_not_take_is_refused_without_its_stack(library, clip: ClipCache):
    path = clip(".mp4")  # H.264, which DALI decodes on a GPU only
    reader = DaliReader(path, opened(path), recipe_of(SPEC, 240, 320), device=CPU)
    with pytest.raises(DecoderUnavailable) as caught:
        next(reader.runs())
    reader.close()
    assert str(caught.value) == f"DALI cannot take {path}: it finds no video there that it can decode"


@pytest.mark.comparison
def test_a_file_that_is_cut_off_gives_the_frames_that_are_there(library, clip: ClipCache, tmp_path: Path):
    whole, path = clip(".mkv", codec="vp9", frames=37).read_bytes(), tmp_path / "cut.mkv"
    path.write_bytes(whole[: len(whole) // 2])
    reader = DaliReader(path, opened(path), recipe_of(SPEC, 240, 320), device=CPU)
    frames = [frame for run in reader.runs() for frame in run.frames]
    reader.close()
    assert frames == list(range(len(frames)))
    assert 10 < len(frames) < 25


# --- on a GPU


def by_nvdec(path: Path, spec: InputSpec) -> Iterator[torch.Tensor]:
    """Samples [height, width, 3] in display order."""
    source, info = FileSource(path, loop=False), opened(path)
    choice = decoders.choose(info, policy="nvdec", device=CUDA)
    decoder = decoders.create(choice, info, device=CUDA, low_latency=False)
    preprocessor = TorchPreprocessor(spec, CUDA)
    source.open()
    for packet in [*source.packets(), None]:
        for frame in decoder.drain() if packet is None else decoder.decode(packet):
            sample = torch.empty(3, *spec.crop, device=CUDA)
            preprocessor(frame, sample)
            yield sample.permute(1, 2, 0)
    source.close()
    decoder.close()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        (".mp4", {"codec": "h264"}),
        (".mp4", {"codec": "h264", "b_frames": 2}),
        (".mp4", {"codec": "h264", "size": (1920, 1080), "matrix": "bt709", "frames": 20}),
        (".mp4", {"codec": "h264", "full_range": True}),
        (".mp4", {"codec": "hevc", "b_frames": 2}),
        (".mkv", {"codec": "h264", "b_frames": 2}),
        (".mkv", {"codec": "hevc", "pixel_format": "yuv420p10le"}),
        (".ts", {"codec": "h264"}),
        (".mkv", {"codec": "vp9"}),
        (".mkv", {"codec": "av1"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_on_a_gpu_its_samples_are_those_of_nvdec_and_our_preprocessing(library, clip: ClipCache, suffix, options):
    path = clip(suffix, **{"frames": 37, **options})
    info = opened(path)
    assert dali.refusal(info, CUDA) is None
    reader = DaliReader(path, info, recipe_of(SPEC, info.height, info.width), device=CUDA)
    ours = [sample for run in reader.runs() for sample in run.samples.cpu()]
    reader.close()
    theirs = list(by_nvdec(path, SPEC))
    assert len(ours) == len(theirs) == options.get("frames", 37)
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        apart = (levels(our, SPEC) - levels(their, SPEC)).abs()
        assert apart.mean() < 1.0, f"frame {number}"
        assert apart.max() < 30, f"frame {number}"
