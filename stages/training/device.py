"""Device, precision and threads: the settings of ``compute:`` with ``auto`` resolved."""

import contextlib
from dataclasses import asdict, dataclass

import torch

from stages.core.artifacts import Json
from stages.core.params import Compute


@dataclass(frozen=True)
class Device:
    """The resolved settings of ``compute:`` and the threads of this process; every trained artifact
    records them."""

    device: str  # cpu or cuda
    precision: str  # float32 or bfloat16
    compile: bool
    threads: int

    @property
    def dtype(self) -> torch.dtype:
        """The precision of matrix products; weights stay in float32."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @property
    def torch(self) -> torch.device:
        return torch.device(self.device)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        return torch.autocast(
            self.device, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16
        )

    def describe(self) -> Json:
        return asdict(self)


def resolve(compute: Compute, *, threads: int) -> Device:
    """Replaces each ``auto`` of ``compute:``, by CUDA if available, and by bfloat16 if the hardware
    computes in it. Sets the number of threads of this process.

    Raises ValueError if CUDA is required but not available.
    """
    torch.set_num_threads(threads)
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("compute.device: cuda is not available here; valid: auto, cpu")
    device = "cuda" if torch.cuda.is_available() and compute.device != "cpu" else "cpu"
    if device == "cuda":
        # With a mask, cuDNN's attention gives NaN gradients for some shapes (pytorch#196678).
        torch.backends.cuda.enable_cudnn_sdp(False)
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        cpu = torch.cpu.get_capabilities()
        has_bfloat16 = bool(cpu.get("avx512_bf16") or cpu.get("amx_bf16"))
    fastest = "bfloat16" if has_bfloat16 else "float32"
    precision = fastest if compute.precision == "auto" else compute.precision
    return Device(device, precision, compute.compile, threads)


def side_by_side(compute: Compute) -> int:
    """The number of fine-tuning trials that run in parallel."""
    if resolve(compute, threads=compute.trial_threads).device != "cpu":
        return 1  # trials on one GPU would wait for each other
    return max(compute.threads // compute.trial_threads, 1)
