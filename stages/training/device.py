"""Where and how numbers are computed: settings of ``compute:`` made definite, once."""

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

import torch

from stages.core.params import Compute


@dataclass(frozen=True)
class Device:
    """A resolved ``compute:``; written into every trained artifact."""

    device: str  # cpu or cuda
    precision: str  # float32 or bfloat16
    compile: bool
    threads: int

    @property
    def torch(self) -> torch.device:
        return torch.device(self.device)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Matrix products in bfloat16 if that is the precision; weights stay in float32."""
        return torch.autocast(
            self.device, dtype=torch.bfloat16, enabled=self.precision == "bfloat16"
        )

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def resolve(compute: Compute, *, threads: int) -> Device:
    """``auto`` is CUDA if it is there, and bfloat16 where the processor computes in it.

    Sets the number of threads of this process. Raises ValueError if what is asked for is not
    there.
    """
    torch.set_num_threads(threads)
    has_cuda = torch.cuda.is_available()
    if compute.device == "cuda" and not has_cuda:
        raise ValueError("compute.device: cuda is not there; valid here: auto, cpu")
    device = "cuda" if has_cuda and compute.device != "cpu" else "cpu"
    precision = compute.precision
    if precision == "auto":
        precision = "bfloat16" if _computes_in_bfloat16(device) else "float32"
    return Device(device, precision, compute.compile, threads)


def _computes_in_bfloat16(device: str) -> bool:
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def side_by_side(compute: Compute) -> int:
    """How many fine-tuning trials run at once."""
    if resolve(compute, threads=compute.trial_threads).device != "cpu":
        return 1  # trials on one GPU would only wait for each other
    return max(compute.threads // compute.trial_threads, 1)
