"""DALI reads and decodes the file on the GPU, resizes, crops and normalises there; each sequence is a batch for the model.

With several pipelines side by side and two lengths of sequences (60 is the clip's distance of key frames); the best setting counts.
"""

from __future__ import annotations

from functools import partial

import torch
from common import CROP, MEAN, RESIZE, STD, Classifier, Count, best, frames_per_second
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import feed_ndarray
from task import Result, Task, Unavailable

SETTINGS = ((1, 32), (4, 32), (8, 32), (8, 60))
"""Pipelines, frames a sequence."""


@pipeline_def(batch_size=1, num_threads=2, device_id=0, prefetch_queue_depth=2)
def reader(clip: str, frames: int) -> object:
    """[1, frames, 224, 224, 3] of fp16: channels last, as the model reads it."""
    sequence = fn.readers.video(
        device="gpu", filenames=[clip], sequence_length=frames, random_shuffle=False, image_type=types.RGB, dtype=types.UINT8, name="reader"
    )
    sequence = fn.resize(sequence, resize_shorter=RESIZE, antialias=True)
    return fn.crop_mirror_normalize(
        sequence,
        dtype=types.FLOAT16,
        output_layout="FHWC",
        crop=(CROP, CROP),
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
    )


def measure(task: Task) -> Result:
    """Frames a second in the best setting."""
    if task.device != "cuda":
        raise Unavailable("DALI's video reader needs a GPU")
    classify = Classifier(task)

    def rate(pipelines: int, frames: int) -> float:
        def work(count: Count) -> None:
            pipeline = reader(task.clip, frames)
            pipeline.build()
            stream = torch.cuda.Stream()
            pixels = torch.empty(1, frames, CROP, CROP, 3, dtype=torch.float16, device="cuda")
            with torch.cuda.stream(stream):
                while not count.over.is_set():
                    (out,) = pipeline.run()
                    feed_ndarray(out.as_tensor(), pixels, cuda_stream=stream)
                    classify.in_turn(pixels[0].permute(0, 3, 1, 2))
                    count.add(frames)

        return frames_per_second(work, task, threads=pipelines)

    return best({f"{pipelines} pipelines of {frames} frames": partial(rate, pipelines, frames) for pipelines, frames in SETTINGS})
