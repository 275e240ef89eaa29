"""The device of a process."""

import pytest
import torch

from stages.core.params import Compute
from stages.training.device import resolve


def test_resolve_turns_off_cudnns_attention_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's gradients of masked attention have been NaN (pytorch#196678)."""
    calls = list[bool]()
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", calls.append)
    threads = torch.get_num_threads()
    resolve(Compute(device="cpu"), threads=threads)
    assert calls == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    resolve(Compute(), threads=threads)
    assert calls == [False]
