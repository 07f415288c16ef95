"""Does the fast way say what the exact way says? The best label of streamd's decoder, preprocessing and fp16 engine, against a reference.

    python tests/gpu/agreement.py [--device cuda] [--media FOLDER] [--most 4000]

Real frames: the photographs of the demo, encoded and panned, and every video file of FOLDER that can be decoded. The reference: PyAV
decodes on the CPU, swscale converts at its most exact, torchvision resizes, and the model runs in fp32. The model is EfficientNet-lite0
with its published weights. Prints one JSON object; where the two differ it says how near the reference's two best labels were.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import av
import numpy as np
import torch
from PIL import Image
from support.frames import packets_of
from support.pictures import careful_rgb
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as transforms

from streamd import decoders, log, models, preprocess
from streamd.config.types import ModelConfig
from streamd.decoders.cpu import frame_from_av
from streamd.demo.photographs import PHOTOGRAPHS, path_of
from streamd.engine.cuda_runner import CudaRunner
from streamd.engine.runner import CpuRunner, Runner
from streamd.engine.slots import SlotPool
from streamd.errors import StreamdError
from streamd.preprocess.spec import InputSpec
from streamd.types import Batch, Frame, FrameRef, Packet, Sample, StreamInfo

BATCH = 32
PAN_FRAMES = 150
POOL = ThreadPoolExecutor(8)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--media", type=Path)
    parser.add_argument("--most", type=int, default=4000, help="Frames at most.")
    parser.add_argument("--file-frames", type=int, default=150, help="Frames of one file at most.")
    asked = parser.parse_args()
    log.configure(level="error", json=False)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    with tempfile.TemporaryDirectory() as name:
        files = [panned(photograph.name, path_of(photograph), Path(name)) for photograph in PHOTOGRAPHS]
        files += sorted(asked.media.iterdir()) if asked.media else []
        print(json.dumps(compare(files, torch.device(asked.device), asked)))


def panned(name: str, picture: Path, folder: Path) -> Path:
    """A photograph as a clip: a window of it that moves."""
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    height, width = pixels.shape[0] * 3 // 4 // 2 * 2, pixels.shape[1] * 3 // 4 // 2 * 2
    path = folder / f"{name}.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": "20"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(PAN_FRAMES):
            part = number / (PAN_FRAMES - 1)
            top, left = int(part * (pixels.shape[0] - height)), int((1 - abs(2 * part - 1)) * (pixels.shape[1] - width))
            window = np.ascontiguousarray(pixels[top : top + height, left : left + width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(window, format="rgb24")))
        container.mux(stream.encode(None))
    return path


class Fast:
    """streamd's own way, on its engine."""

    def __init__(self, device: torch.device, precision: str) -> None:
        self.device = device
        model = models.load("lite", ModelConfig(builtin="efficientnet-lite0"), device=device)
        model = replace(model, precision=precision)
        self.spec = model.input
        on_gpu = device.type == "cuda"
        dtype = torch.float16 if on_gpu and precision != "fp32" else torch.float32
        self.pool = SlotPool(BATCH, height=self.spec.crop[0], width=self.spec.crop[1], dtype=dtype, device=device)
        self.runner: Runner = CudaRunner(model, self.pool, top_k=5, max_batch=BATCH) if on_gpu else CpuRunner(model, self.pool, top_k=5)
        self.runner.warm_up()
        self.preprocess = preprocess.create(self.spec, device)

    def classes(self, samples: int) -> list[list[int]]:
        """The five best classes of the first `samples` slots."""
        ref = FrameRef("a", "s", 0, None, Fraction(1), 0, 0, 0)
        batch = Batch([Sample(ref, slot, 0, None) for slot in range(samples)], 0)
        return self.runner.collect(self.runner.launch(batch)).classes


def frames_of(info: StreamInfo, packets: list[Packet], device: torch.device) -> Iterator[Frame]:
    """In the order in which they come; each is valid until the next one is asked for."""
    choice = decoders.choose(info, policy="auto", device=device)
    decoder = decoders.create(choice, info, device=device)
    for packet in packets:
        yield from decoder.decode(packet)
    yield from decoder.drain()
    decoder.close()


def reference_input(picture: av.VideoFrame, spec: InputSpec, info: StreamInfo) -> Tensor:
    """[3, height, width] fp32, by swscale and torchvision."""
    tags = frame_from_av(picture, token=0, tags=info.color, rotation_deg=0)
    rgb = np.rot90(careful_rgb(picture, matrix=tags.matrix, full_range=tags.full_range), k=-info.rotation_deg // 90).copy()
    interpolation = InterpolationMode(spec.interpolation)
    image = transforms.center_crop(transforms.resize(Image.fromarray(rgb), spec.resize, interpolation), list(spec.crop))
    return transforms.normalize(transforms.to_tensor(image), list(spec.mean), list(spec.std))


def references(path: Path, info: StreamInfo, packets: list[Packet], spec: InputSpec, most: int) -> dict[int, Tensor]:
    """By token, the first `most` pictures."""
    context = av.CodecContext.create("libdav1d" if info.codec == "av1" else info.codec, "r")
    context.extradata = info.extradata or None
    context.reorder_depth = info.reorder_frames
    found: dict[int, Future[Tensor]] = {}
    for packet in [*packets, None]:
        encoded = None
        if packet is not None:
            encoded = av.Packet(len(packet.data))
            encoded.update(packet.data)
            encoded.pts = encoded.dts = packet.token
        for picture in context.decode(encoded):
            if picture.pts is not None:
                found[picture.pts] = POOL.submit(reference_input, picture, spec, info)
        if len(found) >= most:
            break
    return {token: future.result() for token, future in found.items()}


def compare(files: list[Path], device: torch.device, asked: argparse.Namespace) -> dict[str, Any]:
    """All files, the fast way in each precision against the reference."""
    ways = {precision: Fast(device, precision) for precision in (("fp16", "bf16") if device.type == "cuda" else ("fp32",))}
    spec = next(iter(ways.values())).spec
    exact = models.load("lite", ModelConfig(builtin="efficientnet-lite0"), device=device).module
    frames = 0
    agreed: Counter[str] = Counter()
    in_five: Counter[str] = Counter()
    margins: dict[str, list[float]] = {name: [] for name in ways}
    used: dict[str, int] = {}
    decoded_by: Counter[str] = Counter()
    for path in files:
        if frames >= asked.most:
            break
        try:
            info, packets = packets_of(path)
            expected = references(path, info, packets, spec, asked.file_frames)
        except (StreamdError, av.error.FFmpegError, ValueError):
            continue
        decoded_by[decoders.choose(info, policy="auto", device=device).name] += 1
        for chunk in batched(frames_of(info, packets, device), expected, ways):
            with torch.inference_mode():
                scores = exact(torch.stack([expected[token] for token in chunk]).to(device)).softmax(dim=1)
            best = scores.topk(2, dim=1)
            for name, way in ways.items():
                for classes, truth, two in zip(way.classes(len(chunk)), best.indices.tolist(), best.values.tolist(), strict=True):
                    agreed[name] += classes[0] == truth[0]
                    in_five[name] += truth[0] in classes
                    if classes[0] != truth[0]:
                        margins[name].append(round(two[0] - two[1], 4))
            frames += len(chunk)
            used[path.name] = used.get(path.name, 0) + len(chunk)
    first = next(iter(ways))
    return {
        "frames": frames,
        "files": len(used),
        "decoders": dict(decoded_by),
        "top1_agreement": round(agreed[first] / max(frames, 1), 5),
        **{f"top1_agreement_{name}": round(agreed[name] / max(frames, 1), 5) for name in ways},
        **{f"reference_in_top5_{name}": round(in_five[name] / max(frames, 1), 5) for name in ways},
        **{f"largest_margins_{name}": sorted(margins[name], reverse=True)[:5] for name in ways},
        "used": used,
    }


def batched(frames: Iterator[Frame], expected: dict[int, Tensor], ways: dict[str, Fast]) -> Iterator[list[int]]:
    """Tokens of up to 32 frames that have a reference, each in the slot of its place in all ways."""
    wanted = (frame for frame in frames if frame.token in expected)
    while True:
        tokens: list[int] = []
        for frame in itertools.islice(wanted, BATCH):
            for way in ways.values():
                way.preprocess(frame, way.pool.views[len(tokens)])
            tokens.append(frame.token)
        if not tokens:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        yield tokens


if __name__ == "__main__":
    main()
