"""The progress line of a training, on a terminal."""

import shutil

import torch
from tqdm import tqdm

from stages.training.device import Device

# Peak FLOPs per second of dense products in bfloat16, in units of 10^12, from NVIDIA's data sheets.
# The first key that is a part of the card's name counts.
PEAKS = {
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "H200": 989.0,
    "B200": 2250.0,
    "A100": 312.0,
    "L40S": 362.0,
    "A10G": 70.0,
    "L4": 121.0,
}


def peak_flops(device: Device) -> float | None:
    """Returns the GPU's peak FLOPs per second in bfloat16, or None if they are unknown or another
    precision is used."""
    if device.device != "cuda" or device.precision != "bfloat16":
        return None
    name = torch.cuda.get_device_name()
    return next((peak * 1e12 for part, peak in PEAKS.items() if part in name), None)


def line(
    description: str,
    *,
    done: int,
    num_steps: int,
    loss: float,
    gradient_norm: float,
    tokens_per_s: float,
    utilisation: float | None,
    seconds_left: float,
    width: int,
) -> str:
    """Returns the progress line. If there is too little room, only the description is cut."""
    numbers = f"{done}/{num_steps} loss {loss:.3f} norm {gradient_norm:.2f} "
    numbers += f"{tqdm.format_sizeof(tokens_per_s)} tok/s "
    if utilisation is not None:
        numbers += f"MFU {utilisation:.0%} "
    numbers += f"{tqdm.format_interval(seconds_left)} left"
    room = max(width - len(numbers) - 1, 0)
    shown = description if len(description) <= room else description[: max(room - 1, 0)] + "…"
    return f"{shown} {numbers}"


class Progress:
    """A context that shows the progress line of a training, unless ``description`` is None or
    stderr is no terminal."""

    def __init__(
        self, description: str | None, *, num_steps: int, start: int, device: Device, num_ranks: int
    ) -> None:
        hidden = True if description is None else None  # tqdm's None: hidden off a terminal
        self._bar = tqdm(
            total=num_steps, initial=start, desc=description, bar_format="{desc}", disable=hidden
        )
        self._description = description or ""
        peak = None if self._bar.disable else peak_flops(device)
        self._peak = None if peak is None else peak * num_ranks

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def update(self, *, loss: float, gradient_norm: float, tokens: int, flops: int) -> None:
        """Shows the numbers of a completed step; ``tokens`` and ``flops`` count all ranks."""
        bar = self._bar
        if bar.disable:
            return
        known = bar.format_dict
        done = known["n"] + 1
        # tqdm's rate is a moving average; before there is one, the mean rate is shown.
        rate = known["rate"] or (done - known["initial"]) / max(known["elapsed"], 1e-9)
        shown = line(
            self._description,
            done=done,
            num_steps=known["total"],
            loss=loss,
            gradient_norm=gradient_norm,
            tokens_per_s=tokens * rate,
            utilisation=None if self._peak is None else flops * rate / self._peak,
            seconds_left=(known["total"] - done) / rate,
            width=shutil.get_terminal_size().columns - 1,
        )
        bar.set_description_str(shown, refresh=False)
        bar.update()
