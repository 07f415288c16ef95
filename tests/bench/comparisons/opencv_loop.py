"""A thread a camera: cv2.VideoCapture, PIL, torchvision's transforms, and the model frame by frame. What most people write first."""

from __future__ import annotations

import cv2
import torch
from common import Classifier, Count, frames_per_second, picture_transforms
from PIL import Image
from task import Result, Task


def measure(task: Task) -> Result:
    """Frames a second of all threads together."""
    torch.set_num_threads(1)
    classify = Classifier(task)
    prepare = picture_transforms()

    def camera(count: Count) -> None:
        capture = cv2.VideoCapture(task.clip)
        while not count.over.is_set():
            is_read, picture = capture.read()
            if not is_read:
                capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
                continue
            image = Image.fromarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))
            classify(prepare(image)[None].to(task.device, classify.dtype))
            count.add(1)
        capture.release()

    return {"fps": frames_per_second(camera, task, threads=task.threads), "threads": task.threads, "batch": 1}
