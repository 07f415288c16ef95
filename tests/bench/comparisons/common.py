"""What the compared programs share: the model, torch's own transforms, and one way to count frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torchvision
from task import Result, Task
from torch import Tensor, nn
from torch.nn import functional
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RESIZE, CROP = 232, 224
_STOP_TIMEOUT_S = 10.0


class Classifier:
    """The model as people run it: eager, on a GPU in fp16 and channels_last. Random weights: they do not change the speed."""

    def __init__(self, task: Task) -> None:
        on_gpu = task.device == "cuda"
        torch.backends.cudnn.benchmark = True
        module: nn.Module = torchvision.models.get_model(task.model, weights=None).eval().requires_grad_(requires_grad=False)
        module = module.to(task.device)
        self._module = module.half().to(memory_format=torch.channels_last) if on_gpu else module
        self._turn = threading.Lock()
        self.dtype = torch.float16 if on_gpu else torch.float32

    def __call__(self, pixels: Tensor) -> Any:
        """The five best classes of [batch, 3, 224, 224] of `dtype`, on the host."""
        return self._launch(pixels).tolist()

    def in_turn(self, pixels: Tensor) -> Any:
        """The same, one thread after the other: threads that launch at once take the GIL from each other, and all are slower."""
        with self._turn:
            classes = self._launch(pixels)
        return classes.tolist()

    def _launch(self, pixels: Tensor) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = self._module(pixels.contiguous(memory_format=torch.channels_last))
            return logits.softmax(dim=1).topk(5).indices


def picture_transforms() -> transforms.Compose:
    """PIL's picture to [3, 224, 224], as torchvision documents it for these weights."""
    return transforms.Compose(
        [transforms.Resize(RESIZE), transforms.CenterCrop(CROP), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    )


class TensorTransforms:
    """The same with torch's operators, for a batch that is on the device already."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self._mean, self._std = (255 * torch.tensor(values, device=device, dtype=dtype).view(1, 3, 1, 1) for values in (MEAN, STD))

    def __call__(self, pictures: Tensor) -> Tensor:
        """[batch, 3, height, width] of RGB in 0..255 becomes [batch, 3, 224, 224]."""
        height, width = pictures.shape[-2:]
        scale = RESIZE / min(height, width)
        size = (int(height * scale), int(width * scale))
        pixels = functional.interpolate(pictures.to(self._mean.dtype), size=size, mode="bilinear", antialias=True)
        top, left = (size[0] - CROP) // 2, (size[1] - CROP) // 2
        return (pixels[..., top : top + CROP, left : left + CROP] - self._mean) / self._std


class Count:
    """Frames classified, by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.frames = 0
        self.over = threading.Event()
        self.failure: BaseException | None = None

    def add(self, frames: int) -> None:
        with self._lock:
            self.frames += frames

    def fail(self, error: BaseException) -> None:
        """End the measurement: it raises `error`."""
        self.failure = error
        self.over.set()


def frames_per_second(work: Callable[[Count], None], task: Task, *, threads: int, patience_s: float = 60.0) -> float:
    """Run `work` in threads, each until `count.over`; the rate from the end of the warm-up, which begins with the first frame.

    Raises what `work` raises, and RuntimeError when no frame comes for `patience_s`.
    """
    count = Count()

    def run() -> None:
        try:
            work(count)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the measurement must end with it
            count.fail(error)

    def await_frames(beyond: int) -> None:
        deadline_s = time.monotonic() + patience_s
        while count.frames <= beyond and not count.over.wait(0.01):
            if time.monotonic() > deadline_s:
                count.fail(RuntimeError(f"no frame was classified in {patience_s:g} s"))

    workers = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    await_frames(beyond=0)
    count.over.wait(task.warm_up_s)
    before, began_s = count.frames, time.monotonic()
    count.over.wait(task.seconds)
    await_frames(beyond=before)
    frames, seconds = count.frames - before, time.monotonic() - began_s
    count.over.set()
    for worker in workers:
        worker.join(_STOP_TIMEOUT_S)
    if count.failure is not None:
        raise count.failure
    return round(frames / seconds, 1)


def best(settings: Mapping[str, Callable[[], float]], **more: object) -> Result:
    """The result of a program that is measured in several settings: the fastest counts. A setting that fails is told as `failed`.

    Raises RuntimeError when all fail.
    """
    rates, failures = {}, {}
    for name, rate in settings.items():
        try:
            rates[name] = rate()
        except Exception as error:  # noqa: BLE001 - the other settings count nevertheless
            failures[name] = f"{type(error).__name__}: {error}"
    if not rates:
        raise RuntimeError(str(failures))
    return {"fps": max(rates.values()), "by_setting": rates, **more} | ({"failed": failures} if failures else {})
