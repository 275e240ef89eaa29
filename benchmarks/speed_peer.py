"""The other side: models of transformers and their Trainer, for ``speed_sides.py``."""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset

from benchmarks.peers import Sizes
from stages.text.batch import IGNORE_INDEX
from stages.training.device import Device

RATE = 1e-4  # of both sides
RECIPE = "nanoGPT's recipe"


def now() -> float:
    """Returns the seconds of a clock, once the GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Asked(Sizes):
    """What is to be timed."""

    work: str  # an objective, or a task of the study
    peer: str  # a set of the Trainer's settings, RECIPE, or empty: this project
    compile: bool
    threads: int
    warmup: int  # steps before those that are timed
    steps: int
    rows: int  # of a step: sequences, or labelled examples
    run: str  # whose checkpoint is fine-tuned


def of_timed_steps(asked: Asked, times: list[float]) -> list[float]:
    """Returns the seconds of each step after the warm-up, from the times when steps ended."""
    return [b - a for a, b in zip(times[asked.warmup - 1 :], times[asked.warmup :], strict=False)]


class Rows(Dataset[dict[str, Any]]):
    """Rows in memory, which cost the peer nothing to read."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """The rows of a step of the peer, as its own collators pad them."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    ids = columns.pop("input_ids")
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    wanted = {
        name: pad(each, padding_value=IGNORE_INDEX) if each[0].ndim else torch.stack(each)
        for name, each in columns.items()
    }
    mask = pad([torch.ones_like(each) for each in ids])
    return {"input_ids": pad(ids), "attention_mask": mask} | wanted


def seconds_of_steps(asked: Asked, peer: tuple[Any, list[Any], Any], device: Device) -> list[float]:
    model, rows, collate = peer
    times: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            times.append(now())

    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=asked.rows,
            max_steps=asked.warmup + asked.steps,
            learning_rate=RATE,
            weight_decay=0.01,
            use_cpu=device.device == "cpu",
            bf16=device.precision == "bfloat16" and "bf16" in asked.peer,
            torch_compile=asked.compile,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=1,
        )
        transformers.Trainer(
            model, settings, train_dataset=Rows(rows), data_collator=collate, callbacks=[Clock()]
        ).train()
    return of_timed_steps(asked, times)


def seconds_of_predictions(
    asked: Asked, peer: tuple[Any, list[Any], Any], device: Device
) -> list[float]:
    """Returns seconds up to the logits. At its best the peer has weights in bfloat16 and batches of
    texts of similar length."""
    model, rows, collate = peer
    best = "best" in asked.peer
    if best:
        rows = sorted(rows, key=lambda row: len(row["input_ids"]))
    times = []
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            folder,
            per_device_eval_batch_size=asked.rows,
            use_cpu=device.device == "cpu",
            bf16_full_eval=best and device.precision == "bfloat16",
            torch_compile=asked.compile,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, settings, data_collator=collate)
        for _ in range(asked.warmup + asked.steps):
            began = now()
            trainer.predict(Rows(rows))
            times.append(now() - began)
    return times[asked.warmup :]
