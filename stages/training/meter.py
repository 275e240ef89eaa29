"""Resource usage (time, memory, energy) and the name of the hardware."""

import ctypes
import math
import platform
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from stages.training.device import Device
from stages.training.ranks import Ranks

CPUINFO = Path("/proc/cpuinfo")
NVML = "libnvidia-ml.so.1"  # a library of NVIDIA's driver


@dataclass(frozen=True)
class Usage:
    """Resource usage since a Meter was made; peak memory since the process began."""

    wall_time_s: float
    processor_time_s: float  # of all threads of this process
    peak_memory_bytes: int
    gpu_energy_j: float | None  # 0 without a GPU; None if its counter cannot be read


class Meter:
    """Measures the resource usage of this process since the meter was made, and of the processes
    that ``add_others`` adds."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wall, self._processor = time.monotonic(), time.process_time()
        self._gpu = self._gpu_energy_j()
        self._others = {"processor_time_s": 0.0, "gpu_energy_j": 0.0}

    def read(self) -> Usage:
        """Returns the usage so far. Memory is that of this process only; added processes use about
        as much on their own devices."""
        gpu = self._gpu_energy_j()
        known = gpu is not None and self._gpu is not None
        return Usage(
            wall_time_s=time.monotonic() - self._wall,
            processor_time_s=time.process_time()
            - self._processor
            + self._others["processor_time_s"],
            peak_memory_bytes=self._peak_memory_bytes(),
            gpu_energy_j=gpu - self._gpu + self._others["gpu_energy_j"]  # type: ignore[operator]
            if known
            else None,
        )

    def add_others(self, ranks: Ranks) -> None:
        """Adds the usage of the other processes of a training so far. All processes call this."""
        usage = self.read()
        mine = {
            "processor_time_s": usage.processor_time_s,
            "gpu_energy_j": math.nan if usage.gpu_energy_j is None else usage.gpu_energy_j,
        }
        self._others = ranks.total(dict.fromkeys(mine, 0.0) if ranks.is_first else mine)

    def _peak_memory_bytes(self) -> int:
        if self._device.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return peak_memory_bytes()

    def _gpu_energy_j(self) -> float | None:
        return gpu_energy_j() if self._device.device == "cuda" else 0.0


def peak_memory_bytes() -> int:
    """The peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gpu_energy_j() -> float | None:
    """The energy in joules that the GPU has used since its driver was loaded (NVML's
    nvmlDeviceGetTotalEnergyConsumption, from Volta on); None if it cannot be read, or if several
    processes compute on the GPU, each of which would count the others' energy as its own."""
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}".encode()
    gpu, millijoules, processes = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_uint(0)
    failed = (
        nvml.nvmlInit_v2()
        or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(gpu))
        or nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(millijoules))
    )
    if failed:
        return None
    # Without room for a list this call sets the number of processes, and fails if there are any.
    nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, ctypes.byref(processes), None)
    return None if processes.value > 1 else millijoules.value / 1000


def hardware(device: Device) -> str:
    """The name of the GPU or, without one, of the processor."""
    return torch.cuda.get_device_name() if device.device == "cuda" else processor()


def processor() -> str:
    """The name of the processor; its architecture if the system gives no name."""
    named = CPUINFO.exists() and re.search(r"^model name\s*: *(.+)$", CPUINFO.read_text(), re.M)
    return named[1].strip() if named else platform.processor() or platform.machine()
