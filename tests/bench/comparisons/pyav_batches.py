"""PyAV decodes on the CPU, torchvision transforms tensors there, and batches go to the model through pinned memory. A thread a file."""

from __future__ import annotations

from collections.abc import Iterator

import av
import torch
from common import CROP, MEAN, RESIZE, STD, Classifier, Count, frames_per_second
from task import Result, Task
from torch import Tensor
from torchvision.transforms import v2


def measure(task: Task) -> Result:
    """Frames a second of all threads together."""
    torch.set_num_threads(1)
    classify = Classifier(task)
    prepare = v2.Compose(
        [v2.Resize(RESIZE, antialias=True), v2.CenterCrop(CROP), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    )

    def camera(count: Count) -> None:
        batch: list[Tensor] = []
        for picture in pictures(task.clip):
            batch.append(prepare(picture))
            if len(batch) == task.batch:
                classify.in_turn(to_device(torch.stack(batch), task.device, classify.dtype))
                count.add(len(batch))
                batch = []
            if count.over.is_set():
                return

    return {"fps": frames_per_second(camera, task, threads=task.threads), "threads": task.threads, "batch": task.batch}


def pictures(clip: str) -> Iterator[Tensor]:
    """The clip's frames as uint8 RGB [3, height, width], for ever."""
    while True:
        with av.open(clip) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1  # the files keep all cores busy
            for frame in container.decode(stream):
                yield torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)


def to_device(pixels: Tensor, device: str, dtype: torch.dtype) -> Tensor:
    if device != "cuda":
        return pixels.to(dtype)
    return pixels.pin_memory().to(device, non_blocking=True).to(dtype)
