"""Preprocessing against torchvision's transforms of the same decoded frames. Differences are in levels, of 255, before normalisation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import av
import numpy as np
import pytest
import torch
from PIL import Image
from support.pictures import as_video, careful_rgb, photograph
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms._presets import ImageClassification

from streamd.decoders.cpu import frame_from_av
from streamd.preprocess.spec import InputSpec
from streamd.preprocess.torch_ops import TorchPreprocessor
from streamd.types import ColorTags, Frame, Matrix

# Measured: a mean of 0.09 to 0.28; the reference rounds four times on its way, we once. The largest differences, at the edges of saturated
# colours, come from the reference's clamping before the resize instead of after it; the smaller the picture, the more such pixels.
MEAN_LEVELS = 0.35
P999_LEVELS = 10.0

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
LITE = {"mean": (127 / 255,) * 3, "std": (128 / 255,) * 3}
RESNET50 = InputSpec(resize=232, crop=(224, 224), interpolation="bilinear", **IMAGENET)
LITE0 = InputSpec(resize=256, crop=(224, 224), interpolation="bicubic", **LITE)
SPECS = [pytest.param(RESNET50, id="bilinear"), pytest.param(LITE0, id="bicubic")]
YCBCR = [matrix for matrix in Matrix if matrix is not Matrix.IDENTITY]


def preprocessed(frame: Frame, spec: InputSpec) -> Tensor:
    out = torch.full((3, *spec.crop), torch.nan)
    TorchPreprocessor(spec, "cpu")(frame, out)
    return out


def reference(rgb: np.ndarray, spec: InputSpec) -> Tensor:
    transforms = ImageClassification(
        crop_size=spec.crop[0],
        resize_size=spec.resize,
        mean=spec.mean,
        std=spec.std,
        interpolation=InterpolationMode(spec.interpolation),
    )
    return transforms(Image.fromarray(rgb))


def levels(a: Tensor, b: Tensor, spec: InputSpec) -> Tensor:
    return (a - b).abs() * torch.tensor(spec.std).view(3, 1, 1) * 255


def assert_equal_pictures(a: Tensor, b: Tensor, spec: InputSpec, *, mean: float = MEAN_LEVELS, p999: float = P999_LEVELS) -> None:
    difference = levels(a, b, spec)
    assert difference.mean() <= mean
    assert difference.flatten().quantile(0.999) <= p999


def untouched(picture: av.VideoFrame, *, rotation_deg: int = 0) -> Frame:
    return frame_from_av(picture, token=0, tags=ColorTags(), rotation_deg=rotation_deg)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("size", [(1920, 1080), (1280, 720), (640, 360), (320, 180), (96, 128)])
@pytest.mark.parametrize("name", ["chelsea.png", "coffee.png"])
def test_h264_frames_become_what_torchvision_makes_of_them(name, size, spec):
    matrix = Matrix.BT601 if size[1] < 720 else Matrix.BT709
    picture = as_video(photograph(name, size), matrix=matrix)
    assert_equal_pictures(
        preprocessed(untouched(picture), spec), reference(careful_rgb(picture, matrix=matrix, full_range=False), spec), spec
    )


@pytest.mark.parametrize("full_range", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize("matrix", YCBCR)
def test_each_tagged_matrix_and_range_is_followed(matrix, full_range):
    picture = as_video(photograph("coffee.png", (640, 360)), matrix=matrix, full_range=full_range)
    expected = reference(careful_rgb(picture, matrix=matrix, full_range=full_range), RESNET50)
    assert_equal_pictures(preprocessed(untouched(picture), RESNET50), expected, RESNET50)


@pytest.mark.parametrize(("height", "matrix", "other"), [(718, Matrix.BT601, Matrix.BT709), (720, Matrix.BT709, Matrix.BT601)])
def test_untagged_video_is_bt601_below_720_lines_and_bt709_from_there_on(height, matrix, other):
    picture = as_video(photograph("coffee.png", (960, height)), matrix=matrix, tagged=False)
    result = preprocessed(untouched(picture), RESNET50)
    assert_equal_pictures(result, reference(careful_rgb(picture, matrix=matrix, full_range=False), RESNET50), RESNET50)
    wrong = reference(careful_rgb(picture, matrix=other, full_range=False), RESNET50)
    assert levels(result, wrong, RESNET50).mean() > 3


@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv422p", "yuv444p", "yuv440p", "yuv420p10le", "yuv422p10le", "yuv444p12le"])
# swscale stretches the 321 chroma samples of an odd row over its 641 luma samples, so that the last ones lie half a sample off.
@pytest.mark.parametrize(("size", "mean"), [((640, 360), MEAN_LEVELS), ((641, 361), 1.0)], ids=["even", "odd"])
def test_each_subsampling_and_depth_is_followed(pixel_format, size, mean):
    picture = as_video(photograph("chelsea.png", size), matrix=Matrix.BT709, pixel_format=pixel_format, encoder=None)
    expected = reference(careful_rgb(picture, matrix=Matrix.BT709, full_range=False), LITE0)
    assert_equal_pictures(preprocessed(untouched(picture), LITE0), expected, LITE0, mean=mean)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("rotation_deg", [90, 180, 270])
@pytest.mark.parametrize(("size", "pixel_format"), [((640, 360), "yuv420p"), ((360, 640), "yuv420p"), ((361, 641), "yuv444p")])
def test_a_turned_picture_equals_the_upright_one(size, pixel_format, rotation_deg, spec):
    picture = as_video(photograph("coffee.png", size), matrix=Matrix.BT601, pixel_format=pixel_format, encoder=None)
    upright = np.rot90(careful_rgb(picture, matrix=Matrix.BT601, full_range=False), -rotation_deg // 90)
    result = preprocessed(replace(untouched(picture), rotation_deg=rotation_deg), spec)
    assert_equal_pictures(result, reference(upright.copy(), spec), spec)


def test_planes_of_green_blue_and_red_are_taken_as_they_are():
    rgb = photograph("coffee.png", (640, 360))
    picture = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format="gbrp")
    assert_equal_pictures(preprocessed(untouched(picture), RESNET50), reference(rgb, RESNET50), RESNET50)


@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize(("depth", "shift"), [(8, 0), (10, 0), (10, 6)])
def test_a_grey_picture_equals_one_with_neutral_chroma(full_range, depth, shift):
    samples = torch.from_numpy(photograph("coffee.png", (320, 240))[:, :, 1].astype(np.uint16) << (depth - 8 + shift))
    y = samples.to(torch.uint8 if depth == 8 else torch.uint16)
    neutral = torch.full((120, 160), 1 << (depth - 1 + shift), dtype=torch.int32).to(y.dtype)
    colored = Frame(
        token=0, y=y, u=neutral, v=neutral, bit_depth=depth, shift=shift, matrix=Matrix.BT709, full_range=full_range, rotation_deg=0
    )
    result = preprocessed(replace(colored, u=None, v=None), RESNET50)
    assert_equal_pictures(result, preprocessed(colored, RESNET50), RESNET50, mean=0.01, p999=1)
    assert levels(result, preprocessed(replace(colored, full_range=not full_range), RESNET50), RESNET50).mean() > 3


def test_semi_planar_left_aligned_surfaces_equal_planes():
    planar = untouched(as_video(photograph("coffee.png", (640, 360)), matrix=Matrix.BT709, pixel_format="yuv420p10le", encoder=None))
    assert planar.u is not None
    assert planar.v is not None
    surface = np.zeros((360 + 180, 1024), np.uint16)  # P010: rows of pitch 1024, samples in the upper 10 bits
    surface[:360, :640] = planar.y.numpy() << 6
    surface[360:, 0:640:2] = planar.u.numpy() << 6
    surface[360:, 1:640:2] = planar.v.numpy() << 6
    whole = torch.from_numpy(surface)
    frame = replace(planar, y=whole[:360, :640], u=whole[360:, 0:640:2], v=whole[360:, 1:640:2], shift=6)
    assert_equal_pictures(preprocessed(frame, LITE0), preprocessed(planar, LITE0), LITE0, mean=0.01, p999=1)


@pytest.mark.parametrize("size", [(640, 360), (360, 640), (100, 100)])
def test_what_a_small_picture_does_not_cover_is_black(size):
    spec = replace(RESNET50, resize=150)
    picture = as_video(photograph("coffee.png", size), matrix=Matrix.BT601, encoder=None)
    expected = reference(careful_rgb(picture, matrix=Matrix.BT601, full_range=False), spec)
    assert_equal_pictures(preprocessed(untouched(picture), spec), expected, spec)


def test_the_result_is_written_in_place_whatever_the_layout_and_type():
    frame = untouched(as_video(photograph("coffee.png", (640, 360)), matrix=Matrix.BT601, encoder=None))
    pool = torch.full((3, 224, 224, 3), -9.0, dtype=torch.float16)
    TorchPreprocessor(RESNET50, "cpu")(frame, pool[1].permute(2, 0, 1))
    assert torch.allclose(pool[1].permute(2, 0, 1).float(), preprocessed(frame, RESNET50), atol=2e-3)
    assert (pool[[0, 2]] == -9.0).all()


def test_kinds_of_pictures_alternate_without_mixing():
    frames = [
        untouched(as_video(photograph("coffee.png", size), matrix=matrix, encoder=None), rotation_deg=rotation_deg)
        for size in ((640, 360), (320, 240))
        for matrix in (Matrix.BT601, Matrix.BT709)
        for rotation_deg in (0, 90)
    ]
    expected = [preprocessed(frame, RESNET50) for frame in frames]
    shared = TorchPreprocessor(RESNET50, "cpu")

    def run(index: int) -> bool:
        out = torch.empty(3, 224, 224)
        shared(frames[index], out)
        return torch.equal(out, expected[index])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, [index % len(frames) for index in range(64)]))


def test_an_output_of_another_shape_is_refused():
    frame = untouched(as_video(photograph("coffee.png", (64, 64)), matrix=Matrix.BT601, encoder=None))
    with pytest.raises(ValueError, match=r"\(3, 224, 200\)"):
        TorchPreprocessor(RESNET50, "cpu")(frame, torch.empty(3, 224, 200))


@pytest.mark.parametrize("size", [(1280, 720), (640, 360)])
@pytest.mark.parametrize("name", ["chelsea.png", "coffee.png", "motorcycle_left.png"])
def test_the_model_sees_the_same_class(name, size, lite0):
    matrix = Matrix.BT601 if size[1] < 720 else Matrix.BT709
    picture = as_video(photograph(name, size), matrix=matrix)
    ours = preprocessed(untouched(picture), lite0.input)
    theirs = reference(careful_rgb(picture, matrix=matrix, full_range=False), lite0.input)
    plain = reference(picture.to_ndarray(format="rgb24", src_colorspace=5 if size[1] < 720 else 1, dst_color_range=2), lite0.input)
    with torch.inference_mode():
        scores = lite0.module(torch.stack([ours, theirs, plain])).softmax(dim=1)
    assert scores.argmax(dim=1).unique().numel() == 1
    assert (scores[0] - scores[1]).abs().max() < 0.02


def test_pictures_made_by_pyav_alone_are_darker_by_no_more_than_two_levels():
    # Not a flaw here: swscale's fast way from 4:2:0 to RGB, which `to_ndarray` takes, cuts fractions off.
    picture = as_video(photograph("coffee.png", (1280, 720)), matrix=Matrix.BT709)
    plain = reference(picture.to_ndarray(format="rgb24", src_colorspace=1, dst_color_range=2), RESNET50)
    assert_equal_pictures(preprocessed(untouched(picture), RESNET50), plain, RESNET50, mean=2)


@pytest.mark.media
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "name",
    [
        "intel__bottle-detection.mp4",
        "vpf__test.mp4",
        "torchcodec__nasa_13013.mp4",
        "torchcodec__nasa_13013_hdr.mp4",
        "exo__bear-vp9.webm",
        "exo__sample.mp4",
        "imageio__cockatoo_yuv420.mp4",
        "gen__h264_high422_10bit.mp4",
        "gen__mjpeg_full_range.avi",
    ],
)
def test_real_files_become_what_torchvision_makes_of_them(name, spec, media):
    with av.open(media / name) as container:
        picture = next(container.decode(video=0))
    frame = untouched(picture)
    expected = reference(careful_rgb(picture, matrix=frame.matrix, full_range=frame.full_range), spec)
    assert_equal_pictures(preprocessed(frame, spec), expected, spec)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature:UserWarning")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("rotation_deg", [0, 90])
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv420p10le", "gray"])
def test_the_gpu_gives_the_cpus_picture_without_waiting(pixel_format, rotation_deg, spec):
    on_cpu = untouched(
        as_video(photograph("coffee.png", (1280, 720)), matrix=Matrix.BT709, pixel_format=pixel_format, encoder=None),
        rotation_deg=rotation_deg,
    )
    u, v = (None if plane is None else plane.cuda() for plane in (on_cpu.u, on_cpu.v))
    on_gpu = replace(on_cpu, y=on_cpu.y.cuda(), u=u, v=v)
    preprocess = TorchPreprocessor(spec, "cuda")
    out = torch.full((3, 224, 224), torch.nan, device="cuda")
    preprocess(on_gpu, out)
    out.fill_(torch.nan)
    torch.cuda.set_sync_debug_mode("error")
    try:
        preprocess(on_gpu, out)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_equal_pictures(out.cpu(), preprocessed(on_cpu, spec), spec, mean=0.01, p999=1)
