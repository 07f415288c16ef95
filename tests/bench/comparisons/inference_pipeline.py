"""Roboflow's InferencePipeline with a model of one's own: a frame of each camera makes a batch, torch prepares it on the GPU.

It decodes with OpenCV, as it does unless told otherwise, and with NVDEC (`allow_tensor_frames`); the best setting counts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from common import Classifier, Count, TensorTransforms, best, frames_per_second
from streamvision.stream.configuration import StreamsConfiguration, configure_process
from task import Result, Task
from torch import Tensor

configure_process(StreamsConfiguration(enable_tensor_data_representation=True))  # before what follows: it is read at import

from streamvision.stream.pipeline import InferencePipeline, SinkMode  # noqa: E402

CAMERAS = (8, 16)


def measure(task: Task) -> Result:
    """Frames a second in the best setting."""
    logging.disable(logging.WARNING)  # without NVDEC each source says at length that it takes OpenCV
    classify = Classifier(task)
    prepare = TensorTransforms(task.device, classify.dtype)
    decoded_on: set[str] = set()

    def rate(cameras: int, *, nvdec: bool) -> float:
        def work(count: Count) -> None:
            def infer(frames: Sequence[Any]) -> list[Any]:
                try:
                    decoded_on.add("gpu" if isinstance(frames[0].image, Tensor) else "cpu")
                    classes: list[Any] = classify(prepare(pictures([frame.image for frame in frames], task.device)))
                except Exception as error:
                    count.fail(error)
                    raise
                count.add(len(frames))
                return classes

            pipeline = InferencePipeline.init_with_custom_logic(
                [task.clip] * cameras,
                on_video_frame=infer,
                on_prediction=lambda predictions, frames: None,
                video_processing_mode="every_frame",
                sink_mode=SinkMode.BATCH,
                allow_tensor_frames=nvdec,
            )
            pipeline.start(use_main_thread=False)
            count.over.wait()
            pipeline.terminate()
            pipeline.join()

        return frames_per_second(work, task, threads=1)

    settings = {f"{CAMERAS[-1]} cameras, OpenCV": partial(rate, CAMERAS[-1], nvdec=False)}
    if task.device == "cuda":
        settings |= {f"{cameras} cameras, NVDEC": partial(rate, cameras, nvdec=True) for cameras in CAMERAS}
    return best(settings) | {"decoded_on": sorted(decoded_on)}


def pictures(images: Sequence[Any], device: str) -> Tensor:
    """uint8 RGB [batch, 3, height, width] on the device; `images` are NVDEC's RGB [3, height, width] or OpenCV's BGR [height, width, 3]."""
    if isinstance(images[0], Tensor):
        return torch.stack(list(images))
    batch = torch.from_numpy(np.stack(images))
    return batch.to(device).permute(0, 3, 1, 2).flip(1)
