"""What work takes of the machine, and which machine it is."""

import ctypes
import platform
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from stages.training.device import Device

CPUINFO = Path("/proc/cpuinfo")
NVML = "libnvidia-ml.so.1"  # of NVIDIA's driver


@dataclass(frozen=True)
class Usage:
    wall_time_s: float
    processor_time_s: float  # of all threads of this process
    peak_memory_bytes: int  # since the process began
    gpu_energy_j: float | None  # 0 without a GPU; None if it does not tell


class Meter:
    """Counts from when it is made."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wall, self._processor = time.monotonic(), time.process_time()
        self._gpu = self._gpu_energy_j()

    def read(self) -> Usage:
        gpu = self._gpu_energy_j()
        return Usage(
            wall_time_s=time.monotonic() - self._wall,
            processor_time_s=time.process_time() - self._processor,
            peak_memory_bytes=self._peak_memory_bytes(),
            gpu_energy_j=None if gpu is None or self._gpu is None else gpu - self._gpu,
        )

    def _peak_memory_bytes(self) -> int:
        if self._device.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return peak_memory_bytes()

    def _gpu_energy_j(self) -> float | None:
        return gpu_energy_j() if self._device.device == "cuda" else 0.0


def peak_memory_bytes() -> int:
    """The most that this process had in memory, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gpu_energy_j() -> float | None:
    """What the GPU has drawn since its driver was loaded, whoever used it (NVML's
    nvmlDeviceGetTotalEnergyConsumption, from Volta on); None if that cannot be read."""
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
    gpu, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
    failed = (
        nvml.nvmlInit_v2()
        or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(gpu))
        or nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(millijoules))
    )
    return None if failed else millijoules.value / 1000


def hardware(device: Device) -> str:
    """The name of the GPU or, where there is none, of the processor."""
    return torch.cuda.get_device_name() if device.device == "cuda" else processor()


def processor() -> str:
    """Its name; where the system does not tell, its kind."""
    named = CPUINFO.exists() and re.search(r"^model name\s*: *(.+)$", CPUINFO.read_text(), re.M)
    return named[1].strip() if named else platform.processor() or platform.machine()
