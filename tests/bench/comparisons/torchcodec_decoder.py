"""torchcodec's VideoDecoder on the GPU gives batches of RGB frames, torch resizes and normalises them.

With several decoders side by side; the best setting counts. torchcodec looks for FFmpeg's shared libraries by their plain names.
"""

from __future__ import annotations

import contextlib
from functools import partial

import torch
from common import Classifier, Count, TensorTransforms, best, frames_per_second
from task import Result, Task
from torchcodec.decoders import VideoDecoder

DECODERS = (1, 4, 8)


def measure(task: Task) -> Result:
    """Frames a second in the best setting."""
    classify = Classifier(task)
    prepare = TensorTransforms(task.device, classify.dtype)

    def work(count: Count) -> None:
        stream = torch.cuda.stream(torch.cuda.Stream()) if task.device == "cuda" else contextlib.nullcontext()
        with stream:
            decoder = VideoDecoder(task.clip, device=task.device, seek_mode="approximate")
            if decoder.cpu_fallback:
                raise RuntimeError(str(decoder.cpu_fallback))
            while not count.over.is_set():
                for start in range(0, len(decoder) - task.batch + 1, task.batch):
                    classify.in_turn(prepare(decoder.get_frames_in_range(start, start + task.batch).data))
                    count.add(task.batch)
                    if count.over.is_set():
                        return

    numbers = DECODERS if task.device == "cuda" else (task.threads,)
    settings = {f"{decoders} decoders": partial(frames_per_second, work, task, threads=decoders) for decoders in numbers}
    return best(settings, batch=task.batch)
