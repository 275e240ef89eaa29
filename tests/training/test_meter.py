"""Resource usage."""

import time
from pathlib import Path

import pytest

from stages.training import meter
from stages.training.device import Device
from stages.training.meter import Meter, hardware

CPU = Device("cpu", "float32", compile=False, threads=1)


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
    assert worked.peak_memory_bytes > 10_000_000


def test_hardware_names_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel\t\t: 85\nmodel name\t: A Processor @ 2 GHz\n\n" * 2)
    monkeypatch.setattr(meter, "CPUINFO", cpuinfo)
    assert hardware(CPU) == "A Processor @ 2 GHz"
    cpuinfo.write_text("processor : 0\n")  # as on ARM
    assert hardware(CPU)
