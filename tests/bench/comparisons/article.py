"""A batch of decoded 1080p frames to ResNet-50's result: milliseconds a batch, the four ways of the articles on input pipelines.

1. `cpu_transforms`: PIL pictures through torchvision's transforms in one thread, then a plain copy to the GPU.
2. `dataloader`: the same transforms in a DataLoader's worker processes, pinned memory and non_blocking copies.
3. `dali`: raw frames are copied to the GPU, resized and normalised there; `dali_on_gpu`: they are there already.
4. `streamd`: NV12 surfaces on the GPU, where NVDEC leaves them, through streamd's kernel and its CUDA graph; `streamd_from_host`: they are
   copied there first.

1 to 3 begin with RGB frames in host memory, but for `dali_on_gpu`. The model is the same in fp16, eager in 1 to 3. All end with the classes
on the host.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import CROP, MEAN, RESIZE, STD, Classifier, picture_transforms
from numpy.typing import NDArray
from PIL import Image
from task import Result, Task
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from streamd import models, preprocess
from streamd.bench import models as bench_models
from streamd.config.types import ModelConfig
from streamd.engine.cuda_runner import CudaRunner
from streamd.engine.runner import CpuRunner
from streamd.engine.slots import SlotPool
from streamd.types import Batch, Frame, FrameRef, Matrix, Sample

Pictures = list[NDArray[np.uint8]]


def measure(task: Task) -> Result:
    """Milliseconds a batch: medians, for the DataLoader the mean of its steady state."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 256, (task.height, task.width, 3), dtype=np.uint8) for _ in range(task.batch)]
    classify = Classifier(task)
    found: Result = {
        "cpu_transforms_ms": milliseconds(on_cpu(pictures, classify, task.device), rounds=task.rounds),
        "dataloader_ms": through_dataloader(pictures, classify, task),
        **with_dali(pictures, classify, task),
        "streamd_ms": milliseconds(through_streamd(task, from_host=False), rounds=10 * task.rounds),
        "streamd_from_host_ms": milliseconds(through_streamd(task, from_host=True), rounds=10 * task.rounds),
    }
    return {**found, "article_over_cpu": round(found["cpu_transforms_ms"] / found["streamd_ms"], 1), "batch": task.batch}


def milliseconds(batch: Callable[[], object], *, rounds: int) -> float:
    """The median time of a batch, from frames to classes on the host."""
    times = []
    for _ in range(3 + rounds):
        began_s = time.perf_counter()
        batch()
        times.append((time.perf_counter() - began_s) * 1000)
    return round(sorted(times[3:])[rounds // 2], 3)


def on_cpu(pictures: Pictures, classify: Classifier, device: str) -> Callable[[], object]:
    prepare = picture_transforms()

    def batch() -> object:
        pixels = torch.stack([prepare(Image.fromarray(picture)) for picture in pictures])
        return classify(pixels.to(device, classify.dtype))

    return batch


class Prepared(Dataset[Tensor]):
    """`length` pictures, the given ones again and again, through the transforms."""

    def __init__(self, pictures: Pictures, length: int) -> None:
        self._pictures = pictures
        self._length = length
        self._prepare = picture_transforms()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Tensor:
        pixels: Tensor = self._prepare(Image.fromarray(self._pictures[number % len(self._pictures)]))
        return pixels


def through_dataloader(pictures: Pictures, classify: Classifier, task: Task) -> float:
    """Each worker has as many batches ready as it may when the measurement begins, and when it ends."""
    warm_up, measured = 3 * task.workers, 8 * task.rounds
    length = task.batch * (warm_up + measured + 2 * task.workers)
    on_gpu = task.device == "cuda"
    batches = iter(DataLoader(Prepared(pictures, length), task.batch, num_workers=task.workers, pin_memory=on_gpu, prefetch_factor=2))
    for _ in range(warm_up):
        classify(next(batches).to(task.device, non_blocking=True).to(classify.dtype))
    began_s = time.perf_counter()
    for _ in range(measured):
        classify(next(batches).to(task.device, non_blocking=True).to(classify.dtype))
    return round((time.perf_counter() - began_s) * 1000 / measured, 3)


def with_dali(pictures: Pictures, classify: Classifier, task: Task) -> Result:
    """`dali_ms` and `dali_on_gpu_ms`, or why there are none: the other ways are measured nevertheless."""
    if task.device != "cuda":
        return {"dali_skipped": "needs a GPU"}
    on_gpu = [torch.from_numpy(picture).cuda() for picture in pictures]
    try:
        return {
            "dali_ms": milliseconds(through_dali(pictures, classify, "cpu"), rounds=5 * task.rounds),
            "dali_on_gpu_ms": milliseconds(through_dali(on_gpu, classify, "gpu"), rounds=5 * task.rounds),
        }
    except ImportError as error:
        return {"dali_skipped": str(error)}
    except Exception as error:  # noqa: BLE001 - DALI raises many types
        return {"dali_failed": f"{type(error).__name__}: {error}"}


def through_dali(pictures: list[Any], classify: Classifier, where: str) -> Callable[[], object]:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import feed_ndarray

    @pipeline_def(batch_size=len(pictures), num_threads=8, device_id=0, prefetch_queue_depth=2)
    def pipeline() -> object:
        raw = fn.external_source(source=lambda: pictures, device=where, layout="HWC", no_copy=True)
        raw = fn.resize(raw.gpu() if where == "cpu" else raw, resize_shorter=RESIZE, antialias=True)
        return fn.crop_mirror_normalize(
            raw,
            dtype=types.FLOAT16,
            output_layout="HWC",
            crop=(CROP, CROP),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
        )

    built = pipeline()
    built.build()
    pixels = torch.empty(len(pictures), CROP, CROP, 3, dtype=torch.float16, device="cuda")

    def batch() -> object:
        (out,) = built.run()
        feed_ndarray(out.as_tensor(), pixels, cuda_stream=torch.cuda.current_stream())
        return classify(pixels.permute(0, 3, 1, 2))

    return batch


def through_streamd(task: Task, *, from_host: bool) -> Callable[[], object]:
    device = torch.device(task.device)
    on_gpu = device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        config = ModelConfig.model_validate(bench_models.of_name(task.model, Path(folder)))
        model = models.load(task.model, config, device=device)
    pool = SlotPool(task.batch, height=CROP, width=CROP, dtype=torch.float16 if on_gpu else torch.float32, device=device)
    runner = CudaRunner(model, pool, top_k=5, max_batch=task.batch) if on_gpu else CpuRunner(model, pool, top_k=5)
    runner.warm_up()
    write = preprocess.create(model.input, device)
    host = torch.randint(0, 256, (task.batch, task.height * 3 // 2, task.width), dtype=torch.uint8, pin_memory=on_gpu)
    surfaces = host.to(device)
    frames = [nv12(surface, task.height) for surface in surfaces]
    slots = list(range(task.batch))
    ref = FrameRef("camera", "session", 0, None, Fraction(1), 0, 0, 0)
    work = Batch([Sample(ref, slot, 0, None) for slot in slots], 0)

    def batch() -> object:
        if from_host:
            surfaces.copy_(host, non_blocking=True)
        write.many(frames, pool.views)
        pool.mark_filled(slots)
        return runner.collect(runner.launch(work))

    return batch


def nv12(surface: Tensor, height: int) -> Frame:
    """A frame whose planes lie in [height * 3 / 2, width]."""
    return Frame(
        token=0,
        y=surface[:height],
        u=surface[height:, 0::2],
        v=surface[height:, 1::2],
        bit_depth=8,
        shift=0,
        matrix=Matrix.BT709,
        full_range=False,
        rotation_deg=0,
    )
