import sys
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from support.clips import ClipCache
from support.frames import packets_of

from streamd import decoders
from streamd.decoders import Choice, choose, nvdec
from streamd.decoders.cpu import CpuDecoder
from streamd.errors import DecoderUnavailable
from streamd.types import StreamInfo

CPU, CUDA, GPU_0 = torch.device("cpu"), torch.device("cuda"), torch.device("cuda", 0)
H264 = StreamInfo(codec="h264", width=1920, height=1080, time_base=Fraction(1, 90_000), pixel_format="yuv420p")
HIGH_10 = StreamInfo(codec="h264", width=1920, height=1080, time_base=Fraction(1, 90_000), pixel_format="yuv420p10le")


@pytest.fixture(autouse=True)
def _nothing_remembered():
    """What the GPU can do is asked once a process; each test here has its own GPU."""
    nvdec._library.cache_clear()
    nvdec.refusal.cache_clear()
    yield
    nvdec._library.cache_clear()
    nvdec.refusal.cache_clear()


@pytest.fixture
def capable(monkeypatch):
    """A stand-in for the library, whose GPU takes H.264 with 8 bits in 4:2:0 up to 4096x4096, and nothing else."""

    def caps(*, gpuid, codec, chromaformat, bitdepth):
        takes = (codec, chromaformat, bitdepth) == ("H264", "420", 8)
        limits = {"width_min": 48, "height_min": 16, "width_max": 4096, "height_max": 4096, "mb_num_max": 65536}
        return {"num_decoder_engines": 7 if takes else 0, **(limits if takes else dict.fromkeys(limits, 0))}

    names = ("H264", "HEVC", "VP8", "VP9", "AV1", "MPEG1", "MPEG2")
    library = SimpleNamespace(
        GetDecoderCaps=caps,
        cudaVideoCodec=SimpleNamespace(**{name: name for name in names}),
        cudaVideoChromaFormat=SimpleNamespace(__members__={name: name for name in ("Monochrome", "420", "422", "444")}),
    )
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", library)


@pytest.mark.parametrize("policy", ["auto", "cpu"])
def test_on_the_cpu_the_cpu_decodes_and_there_is_nothing_to_explain(policy):
    assert choose(H264, policy=policy, device=CPU) == Choice("cpu", None)


def test_nvdec_without_a_gpu_is_refused_with_a_sentence():
    with pytest.raises(DecoderUnavailable, match=r"^decoder: nvdec needs a GPU, and the engine runs on the CPU$"):
        choose(H264, policy="nvdec", device=CPU)


def test_the_cpu_may_be_asked_for_on_a_gpu(capable):
    assert choose(H264, policy="cpu", device=CUDA) == Choice("cpu", None)


@pytest.mark.parametrize("policy", ["auto", "nvdec"])
def test_nvdec_takes_what_it_can(capable, policy):
    assert choose(H264, policy=policy, device=CUDA) == Choice("nvdec", None)


REFUSED = [
    (HIGH_10, "this GPU's NVDEC does not take h264 with pixels of yuv420p10le"),
    (StreamInfo("h264", 1920, 1080, Fraction(1, 25), pixel_format="yuv422p"), "this GPU's NVDEC does not take h264 with pixels of yuv422p"),
    (StreamInfo("h264", 32, 16, Fraction(1, 25)), "32x16 is outside of what this GPU's NVDEC takes for h264, 48x16 to 4096x4096"),
    (StreamInfo("h264", 4112, 64, Fraction(1, 25)), "4112x64 is outside of what this GPU's NVDEC takes for h264, 48x16 to 4096x4096"),
    (StreamInfo("av1", 320, 240, Fraction(1, 25), pixel_format="yuv420p"), "this GPU's NVDEC does not take av1 with pixels of yuv420p"),
    (StreamInfo("mjpeg", 320, 240, Fraction(1, 25), pixel_format="yuvj422p"), "NVDEC does not take mjpeg with pixels of yuvj422p"),
    (StreamInfo("h264", 320, 240, Fraction(1, 25), pixel_format="gbrp"), "NVDEC does not take h264 with pixels of gbrp"),
]


@pytest.mark.parametrize(("info", "reason"), REFUSED, ids=lambda value: getattr(value, "codec", ""))
def test_what_nvdec_cannot_do_goes_to_the_cpu_with_the_reason(capable, info, reason):
    assert choose(info, policy="auto", device=CUDA) == Choice("cpu", reason)
    with pytest.raises(DecoderUnavailable) as caught:
        choose(info, policy="nvdec", device=CUDA)
    assert str(caught.value) == reason


def test_a_stream_whose_size_is_not_known_yet_may_try(capable):
    assert choose(StreamInfo("h264", 0, 0, Fraction(1, 25)), policy="auto", device=CUDA) == Choice("nvdec", None)


def test_without_the_library_the_cpu_decodes_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", None)
    chosen = choose(H264, policy="auto", device=CUDA)
    assert chosen == Choice("cpu", "PyNvVideoCodec is not installed; pip install 'streamd[gpu]'")
    with pytest.raises(DecoderUnavailable, match="not installed"):
        choose(H264, policy="nvdec", device=CUDA)


@pytest.mark.parametrize("library", ["libnvidia-encode.so.1", "libnvcuvid.so.1"])
def test_without_the_drivers_video_libraries_it_says_how_a_container_gets_them(monkeypatch, tmp_path, library):
    (tmp_path / "PyNvVideoCodec.py").write_text(f"raise ImportError('{library}: cannot open shared object file')\n")
    monkeypatch.delitem(sys.modules, "PyNvVideoCodec", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    chosen = choose(H264, policy="auto", device=CUDA)
    assert chosen.name == "cpu"
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility" in chosen.reason


def test_the_chosen_cpu_decoder_is_made(clip: ClipCache):
    info, packets = packets_of(clip(".mp4", frames=2))
    made = decoders.create(choose(info, policy="auto", device=CPU), info, device=CPU)
    assert isinstance(made, CpuDecoder)
    assert [frame.token for frame in made.decode(packets[0])] == [0]
    made.close()


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["auto", "nvdec"])
def test_on_a_gpu_nvdec_is_chosen_and_made(clip: ClipCache, policy):
    info, packets = packets_of(clip(".mp4", frames=2))
    choice = choose(info, policy=policy, device=GPU_0)
    assert choice == Choice("nvdec", None)
    with torch.cuda.stream(torch.cuda.Stream()):
        made = decoders.create(choice, info, device=GPU_0)
        assert made.name == "nvdec"
        assert [frame.y.device for frame in made.decode(packets[0])] == [GPU_0]
        made.close()


@pytest.mark.gpu
def test_on_a_gpu_the_cpu_decodes_the_rest_onto_the_gpu(clip: ClipCache):
    info, packets = packets_of(clip(".mov", codec="mjpeg", frames=2))
    choice = choose(info, policy="auto", device=GPU_0)
    assert choice.name == "cpu"
    assert "NVDEC does not take mjpeg" in choice.reason
    with torch.cuda.stream(torch.cuda.Stream()):
        made = decoders.create(choice, info, device=GPU_0)
        assert [frame.y.device for frame in made.decode(packets[0])] == [GPU_0]
        made.close()
