"""Resource usage (time, memory) and the name of the hardware."""

import platform
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from stages.training.device import Device

CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Usage:
    """Resource usage of this process since a Meter was made; peak memory since it began."""

    wall_time_s: float
    processor_time_s: float  # of all threads
    peak_memory_bytes: int


class Meter:
    """Measures the resource usage of this process since the meter was made."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wall, self._processor = time.monotonic(), time.process_time()

    def read(self) -> Usage:
        is_gpu = self._device.device == "cuda"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return Usage(
            wall_time_s=time.monotonic() - self._wall,
            processor_time_s=time.process_time() - self._processor,
            peak_memory_bytes=torch.cuda.max_memory_allocated() if is_gpu else peak,
        )


def hardware(device: Device) -> str:
    """The name of the GPU or, without one, of the processor; its architecture if the system gives
    no name."""
    if device.device == "cuda":
        return torch.cuda.get_device_name()
    named = CPUINFO.exists() and re.search(r"^model name\s*: *(.+)$", CPUINFO.read_text(), re.M)
    return named[1].strip() if named else platform.processor() or platform.machine()
