"""Resource usage."""

import ctypes
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stages.training import meter
from stages.training.device import Device
from stages.training.meter import Meter, gpu_energy_j, hardware

CPU = Device("cpu", "float32", compile=False, threads=1)
CUDA = Device("cuda", "float32", compile=False, threads=1)


def test_meter_counts_no_processor_time_of_waiting() -> None:
    watch = Meter(CPU)
    time.sleep(0.3)
    waited = watch.read()
    assert waited.wall_time_s >= 0.3 > 0.15 > waited.processor_time_s
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    worked = watch.read()
    assert worked.processor_time_s - waited.processor_time_s >= 0.2
    assert worked.gpu_energy_j == 0 and worked.peak_memory_bytes > 10_000_000


def test_meter_reads_the_energy_of_a_gpu_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[float | None] = [1000.0, 1750.0]
    monkeypatch.setattr(meter, "gpu_energy_j", lambda: counts.pop(0))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5)
    taken = Meter(CUDA).read()
    assert (taken.gpu_energy_j, taken.peak_memory_bytes) == (750.0, 5)
    counts = [None, 3.0]
    assert Meter(CUDA).read().gpu_energy_j is None


class Driver:
    """A stub of NVML with one GPU."""

    def __init__(self, fault: int, processes: int = 1) -> None:
        self.fault, self.processes = fault, processes

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, gpu: Any) -> int:
        return 0 if uuid == b"GPU-7-7" else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: Any, millijoules: Any) -> int:
        millijoules._obj.value = 12_345
        return self.fault

    def nvmlDeviceGetComputeRunningProcesses_v3(self, gpu: Any, number: Any, list_: None) -> int:
        number._obj.value = self.processes
        return 7  # NVML_ERROR_INSUFFICIENT_SIZE


def test_gpu_energy_j_converts_millijoules(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(uuid="7-7")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(0))
    assert gpu_energy_j() == 12.345
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(3))  # NVML_ERROR_NOT_SUPPORTED
    assert gpu_energy_j() is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(0, processes=2))
    assert gpu_energy_j() is None  # the energy of both processes
    monkeypatch.undo()
    monkeypatch.setattr(meter, "NVML", "libthere-is-none.so")
    assert gpu_energy_j() is None


def test_hardware_names_the_processor_or_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hardware(CPU)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel\t\t: 85\nmodel name\t: A Processor @ 2 GHz\n\n" * 2)
    monkeypatch.setattr(meter, "CPUINFO", cpuinfo)
    assert hardware(CPU) == "A Processor @ 2 GHz"
    cpuinfo.write_text("processor : 0\n")  # as on ARM
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert hardware(CPU) == "aarch64"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    assert hardware(CUDA) == "A GPU"
