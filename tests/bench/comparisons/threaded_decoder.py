"""PyNvVideoCodec's ThreadedDecoder gives RGB frames on the GPU, torch resizes and normalises them, and batches go to the model.

With several decoders side by side; the best setting counts.
"""

from __future__ import annotations

from functools import partial

import PyNvVideoCodec
import torch
from common import Classifier, Count, TensorTransforms, best, frames_per_second
from task import Result, Task, Unavailable
from torch.utils.dlpack import from_dlpack

DECODERS = (1, 4, 8)


def measure(task: Task) -> Result:
    """Frames a second in the best setting."""
    if task.device != "cuda":
        raise Unavailable("PyNvVideoCodec needs a GPU")
    classify = Classifier(task)
    prepare = TensorTransforms("cuda", classify.dtype)

    def work(count: Count) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            while not count.over.is_set():
                decoder = PyNvVideoCodec.ThreadedDecoder(
                    task.clip,
                    2 * task.batch,
                    gpu_id=0,
                    cuda_stream=stream.cuda_stream,
                    use_device_memory=True,
                    output_color_type=PyNvVideoCodec.OutputColorType.RGBP,
                )
                # The frames of a call are the decoder's again with the next one: by then the classes are on the host.
                while not count.over.is_set() and (frames := decoder.get_batch_frames(task.batch)):
                    classify.in_turn(prepare(torch.stack([from_dlpack(frame) for frame in frames])))
                    count.add(len(frames))
                decoder.end()

    settings = {f"{decoders} decoders": partial(frames_per_second, work, task, threads=decoders) for decoders in DECODERS}
    return best(settings, batch=task.batch)
