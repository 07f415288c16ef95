"""The usage meter, with the real processors and a GPU that says what it is told to."""

from __future__ import annotations

import itertools
import time

import pytest
from support.wait import wait_until

from streamd.bench import usage
from streamd.bench.usage import UsageMeter


class Gpu:
    def __init__(self):
        self.samples = 0

    def utilization(self):
        self.samples += 1
        return (0.5, 0.25) if self.samples % 2 else (1.0, 0.75)

    def memory_mb(self):
        return 1234.5


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(usage, "_nvml_device", lambda: None)


def test_a_busy_processor_is_seen(no_gpu):
    meter = UsageMeter()
    meter.start()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    assert 0 < meter.stop().cpu <= 1


def test_idle_and_total_ticks_become_a_fraction(no_gpu, monkeypatch):
    ticks = iter([(1000, 4000), (1300, 5000)])
    monkeypatch.setattr(usage, "_cpu_times", lambda: next(ticks))
    meter = UsageMeter()
    meter.start()
    assert meter.stop().cpu == 0.7


def test_ticks_of_proc_count_waiting_for_disks_as_idle_and_guests_once(monkeypatch):
    text = "cpu  10 1 5 100 20 2 3 4 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    monkeypatch.setattr(usage.Path, "read_text", lambda self: text)
    assert usage._cpu_times() == (120, 145)


def test_without_a_gpu_its_figures_are_none(no_gpu):
    meter = UsageMeter()
    meter.start()
    result = meter.stop()
    assert (result.decoder, result.gpu, result.gpu_memory_mb) == (None, None, None)


def test_the_gpus_figures_are_means_over_the_samples(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(usage, "_nvml_device", lambda: gpu)
    monkeypatch.setattr(usage, "_INTERVAL_S", 0.001)
    meter = UsageMeter()
    meter.start()
    wait_until(lambda: gpu.samples >= 4, what="four samples")
    result = meter.stop()
    told = list(itertools.islice(itertools.cycle([(0.5, 0.25), (1.0, 0.75)]), gpu.samples))
    assert result.decoder == pytest.approx(sum(decoder for decoder, _ in told) / len(told), abs=1e-3)
    assert result.gpu == pytest.approx(sum(multiprocessors for _, multiprocessors in told) / len(told), abs=1e-3)
    assert result.gpu_memory_mb == 1234.5


def test_a_time_too_short_for_a_sample_has_no_figures_but_the_memory(monkeypatch):
    monkeypatch.setattr(usage, "_nvml_device", Gpu)
    monkeypatch.setattr(usage, "_INTERVAL_S", 60)
    meter = UsageMeter()
    meter.start()
    result = meter.stop()
    assert (result.decoder, result.gpu, result.gpu_memory_mb) == (None, None, 1234.5)
