"""Measures one GPU in one command of at most 8 minutes: whether training is right, how fast it is
compared with a plain loop and the Trainer of transformers, and many small models at once.

    pip install accelerate
    python benchmarks/gpu.py --json gpu.json

It needs no study: tokens are random, of a vocabulary of 32,000. Each side is a process, which
builds its model, compiles it, says that it is ready, waits for the signal to start, and then trains
for 10 seconds or more. Up to five sides are made ready at once and then train in turn, so that
compiling all takes the time of one. Small models that share the GPU start at the same moment; they
share it better under NVIDIA's MPS (``nvidia-cuda-mps-control -d``). Sides for which no time is left
are left out, and the output says so. ``--dry-run`` runs all on a CPU in tiny sizes.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.core.params import Compute, Optimisation
from stages.core.seeding import torch_stream
from stages.models._backbone import MODELS, draw_weights
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import OBJECTIVES
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import Vocabulary
from stages.training.device import Device, resolve
from stages.training.loop import train
from stages.training.pretraining import PretrainingData

ROOT = Path(__file__).parents[1]
MINUTES = 8.0
# Peak FLOPs per second of dense products in bfloat16, from NVIDIA's data sheets.
PEAKS = {"H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12, "A100": 312e12}
OURS, PLAIN, TRAINER = "this project", "plain loop", "Trainer"
ARCHITECTURES = {"causal": "gpt2", "mlm": "bert", "span_corruption": "t5"}
CHECK_EVERY = 10  # steps; reading the clock waits for the GPU
RATE = 1e-4
PROFILED = 3  # steps after the measured ones, whose kernels are counted


@dataclass(frozen=True)
class Side:
    """A training to be timed."""

    name: str
    work: str = "causal"
    compile: bool = True
    layers: int = 12
    width: int = 768
    rows: int = 16
    length: int = 1024
    vocab_size: int = 32_000
    seconds: float = 10.0
    warmup: int = 10
    device: Literal["cuda", "cpu"] = "cuda"
    profile: bool = True

    @property
    def heads(self) -> int:
        return max(self.width // 64, 1)

    def on(self) -> Device:
        precision = "bfloat16" if self.device == "cuda" else "float32"
        return Device(self.device, precision, compile=self.compile, threads=1)


MASKED = Side(OURS, "mlm", rows=32, length=512)
SIDES = [  # the most important first; each group is made ready at once
    [Side(OURS), Side(PLAIN), Side(TRAINER)],
    [
        MASKED,
        replace(MASKED, name=TRAINER),
        replace(MASKED, work="span_corruption"),
        replace(MASKED, work="span_corruption", compile=False),
        Side(OURS, compile=False),
    ],
]
SMALL = Side(OURS, "mlm", compile=False, layers=4, width=256, rows=32, length=128, profile=False)
PRODUCT = 8192  # rows and columns of the matrices whose product is timed
AT_ONCE = (1, 4, 8)
PARTS = ("checks", "sides", "small")


def tiny(side: Side) -> Side:
    """Returns a tiny side for a CPU, to check that it runs."""
    changed = replace(side, compile=False, layers=1, width=64, rows=2, length=32, device="cpu")
    return replace(changed, vocab_size=512, seconds=0.1, warmup=1)


# A side, in a process of its own -----------------------------------------------------------------


class Clock:
    """Counts the steps of a side, from the signal to start until its time is over."""

    def __init__(self, side: Side) -> None:
        self._side, self._device = side, side.on()
        self._done, self._began = -side.warmup, 0.0
        self._profiler: torch.profiler.profile | None = None
        self.result: dict[str, Any] = {}

    def is_over(self) -> bool:
        """Counts a step; returns whether the time is over."""
        self._done += 1
        if self._done == 0:
            _wait_for(self._device)
            print("ready", flush=True)
            sys.stdin.readline()
            self._began = time.perf_counter()
        if self._profiler:
            return self._done == self.result["steps"] + PROFILED and self._end_profile()
        if self._done <= 0 or self._done % CHECK_EVERY:
            return False
        _wait_for(self._device)
        seconds = time.perf_counter() - self._began
        if seconds < self._side.seconds:
            return False
        on_gpu = self._device.device == "cuda"
        self.result = {
            "steps": self._done,
            "seconds": seconds,
            "tokens_per_s": self._done * self._side.rows * self._side.length / seconds,
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        }
        if not (on_gpu and self._side.profile):
            return True
        self._profiler = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True
        )
        self._profiler.start()
        return False

    def _end_profile(self) -> bool:
        """Notes what the GPU did in PROFILED steps."""
        assert self._profiler is not None
        _wait_for(self._device)
        self._profiler.stop()
        taken, number = Counter[str](), 0
        for event in self._profiler.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                taken[event.name] += event.device_time_total / 1e3 / PROFILED
                number += 1
        self.result |= {
            "kernels a step": number / PROFILED,  # copies and fills included
            "busy ms a step": sum(taken.values()),
            "most ms": [[name[:90], round(ms, 3)] for name, ms in taken.most_common(25)],
        }
        return True


def _wait_for(device: Device) -> None:
    if device.device == "cuda":
        torch.cuda.synchronize()


def corpus(side: Side) -> EncodedCorpus:
    """Random tokens in documents of 50 to 800."""
    rng = np.random.default_rng(0)
    regular = Vocabulary(side.vocab_size).regular_ids
    lengths = rng.integers(50, 800, 200 * side.rows * side.length // 425)
    starts = np.cumsum(lengths) - lengths
    tokens = rng.choice(regular, lengths.sum()).astype(np.uint16)
    return EncodedCorpus(tokens, starts, starts)


def run_ours(side: Side, clock: Clock) -> None:
    vocabulary, device = Vocabulary(side.vocab_size), side.on()
    sizes = {"d_model": side.width, "num_layers": side.layers, "num_heads": side.heads}
    settings: dict[str, Any] = {"name": ARCHITECTURES[side.work], **sizes, "d_ff": 4 * side.width}
    backbone = MODELS.build(settings, side.vocab_size, where="architecture")
    objective = OBJECTIVES.build({"name": side.work}, vocabulary, side.length, where="objective")
    objective.architecture = backbone.architecture
    draw_weights(backbone, seed=1)
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    packing = Packing(corpus(side), side.length, seed=1)
    rows = {"batch_rows": side.rows, "micro_batch_rows": side.rows}
    data = PretrainingData(packing, objective, **rows, seed=1)
    steps = train(
        model.to(device.torch),
        objective,
        data,
        Optimisation(lr=RATE),
        num_steps=10**6,
        seed=1,
        device=device,
    )
    flops = next(step.flops for step in steps if clock.is_over())
    clock.result["tflops"] = flops * clock.result["steps"] / clock.result["seconds"] / 1e12
    name = torch.cuda.get_device_name() if device.precision == "bfloat16" else ""
    peak = next((peak for part, peak in PEAKS.items() if part in name), None)
    clock.result["utilisation"] = peak and clock.result["tflops"] * 1e12 / peak


def random_rows(side: Side) -> Iterator[torch.Tensor]:
    """Yields a few rows again and again, so that they cost nothing."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(side.vocab_size, (64 * side.rows, side.length), generator=generator)
    while True:
        yield from rows


def run_plain(side: Side, clock: Clock) -> None:
    from benchmarks.peers import BETAS, MAX_NORM, WEIGHT_DECAY, Decoder

    device = side.on()
    torch.set_float32_matmul_precision("high")
    decoder = Decoder(sizes(side), side.vocab_size).to(device.torch)
    weights = [*decoder.parameters()]
    optimizer = torch.optim.AdamW(
        weights, lr=RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )
    loss_of = torch.compile(decoder) if side.compile else decoder
    rows = random_rows(side)
    while not clock.is_over():
        ids = torch.stack([next(rows) for _ in range(side.rows)])
        if side.device == "cuda":
            ids = ids.pin_memory().to(device.torch, non_blocking=True)
        with device.autocast():
            loss = loss_of(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, MAX_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def run_trainer(side: Side, clock: Clock) -> None:
    import transformers
    from torch.utils.data import IterableDataset

    from benchmarks.peers import bert, gpt2

    class Rows(IterableDataset[dict[str, torch.Tensor]]):
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            return ({"input_ids": row, "labels": row} for row in random_rows(side))

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = clock.is_over()

    if side.work == "causal":
        model = transformers.GPT2LMHeadModel(gpt2(sizes(side), side.vocab_size, 0.0))
    else:
        model = transformers.BertForMaskedLM(bert(sizes(side), side.vocab_size, 0.0))
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=side.rows,
            max_steps=10**6,
            learning_rate=RATE,
            use_cpu=side.device == "cpu",
            bf16=side.device == "cuda",
            torch_compile=side.compile,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        transformers.Trainer(model, settings, train_dataset=Rows(), callbacks=[Stop()]).train()


def sizes(side: Side) -> Any:
    """Returns the sizes in the form that the peers take."""
    from benchmarks.peers import Sizes

    return Sizes(side.width, side.layers, side.heads, side.length)


RUN = {OURS: run_ours, PLAIN: run_plain, TRAINER: run_trainer}


# All of it ---------------------------------------------------------------------------------------


def started(words: list[list[str]], until: float, *, in_turn: bool = False) -> list[dict[str, Any]]:
    """Returns what processes of this file print. When all are ready, they start their work at the
    same moment, or ``in_turn``, each when the one before has ended. The result of a process that
    failed or ran out of time says why it is left out."""
    if time.monotonic() > until:
        return [{"left out": "no time was left"}] * len(words)
    command = [sys.executable, "-m", "benchmarks.gpu"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*command, *each], cwd=ROOT, **pipes) for each in words]

    def end() -> None:
        for process in running:
            process.kill()

    alarm = threading.Timer(until - time.monotonic(), end)
    alarm.start()
    printed = list[str]()
    try:
        for process in running:
            while process.stdout.readline() not in ("ready\n", ""):
                pass
        for turn in [[process] for process in running] if in_turn else [running]:
            for process in turn:
                with suppress(BrokenPipeError):  # the process has ended
                    process.stdin.write("go\n")
                    process.stdin.flush()
            printed += [process.stdout.read() for process in turn]
        ended = [process.wait() for process in running]
    finally:
        alarm.cancel()
        end()
    late = "it took too long" if time.monotonic() > until else "it failed"
    return [
        {"left out": late} if code else json.loads(text.splitlines()[-1])
        for code, text in zip(ended, printed, strict=True)
    ]


def measured(sides: list[Side], until: float, *, in_turn: bool = False) -> list[dict[str, Any]]:
    """Returns what each of several sides measured, all at once or in turn."""
    has_trainer = importlib.util.find_spec("accelerate") is not None
    can = [side for side in sides if has_trainer or side.name != TRAINER]
    words = [["--side", json.dumps(asdict(side))] for side in can]
    results = iter(started(words, until, in_turn=in_turn))
    missing = {"left out": "accelerate is not installed"}
    return [asdict(side) | (next(results) if side in can else missing) for side in sides]


def product_tflops() -> float:
    """The speed of one large matrix product in bfloat16, which training is compared with."""
    a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda").bfloat16() for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * PRODUCT**3 / (time.perf_counter() - began) / 1e12


def shown(result: dict[str, Any]) -> str:
    about = f"{result['work']}, {result['name']}{', compiled' if result['compile'] else ''}"
    if "left out" in result:
        return f"{about}: left out, {result['left out']}"
    share, kernels = result.get("utilisation"), result.get("kernels a step")
    return (
        f"{about}: {result['tokens_per_s']:,.0f} tokens/s in {result['seconds']:.1f} s, "
        f"{result['peak_memory_bytes'] / 2**30:.1f} GiB"
        + ("" if share is None else f", {share:.0%} of the card's peak")
        + ("" if kernels is None else f", {kernels:,.0f} kernels a step")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where all results are written")
    parser.add_argument("--dry-run", action="store_true", help="tiny, on a CPU")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what to run (default: all)"
    )
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--check", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side = Side(**json.loads(options.side))
        if side.name == OURS:
            resolve(Compute(device=side.device), threads=1)  # chooses kernels as in a study
        RUN[side.name](side, clock := Clock(side))
        print(json.dumps(clock.result))
    elif options.check:
        from benchmarks import gpu_checks

        print("ready", flush=True)
        sys.stdin.readline()
        device, name = options.check.split()
        resolve(Compute(device=device), threads=1)
        checked = getattr(gpu_checks, name)
        print(json.dumps(checked(Device(device, "float32", compile=False, threads=1))))
    else:
        everything(options.json, options.parts, dry=options.dry_run)


def everything(file: Path | None, parts: Sequence[str], *, dry: bool) -> None:
    until = time.monotonic() + 60 * MINUTES
    device = "cpu" if dry else "cuda"
    report: dict[str, Any] = {
        "torch": torch.__version__,
        "device": "cpu" if dry else torch.cuda.get_device_name(),
    }

    def note(name: str, value: Any) -> None:
        report[name] = value
        if file:
            file.write_text(json.dumps(report, indent=1))

    if "checks" in parts:
        names = ("training", "fine_tuning")
        checked = started([["--check", f"{device} {name}"] for name in names], until)
        note("checks", dict(zip(names, checked, strict=True)))
        print(json.dumps(report["checks"], indent=1), flush=True)
    if "sides" in parts:
        for group in [[*map(tiny, SIDES[0])]] if dry else SIDES:
            results = measured(group, until, in_turn=True)
            note("sides", [*report.get("sides", []), *results])
            print(*map(shown, results), sep="\n", flush=True)
        if not dry:
            note("TFLOP/s of a large product", product_tflops())
            print(f"{report['TFLOP/s of a large product']:.0f} TFLOP/s of a large product")
    if "small" in parts:
        for number in (2,) if dry else AT_ONCE:
            results = measured([tiny(SMALL) if dry else SMALL] * number, until)
            note(f"{number} at once", results)
            total = sum(result.get("tokens_per_s", 0) for result in results)
            print(f"{number} small models at once: {total:,.0f} tokens/s together", flush=True)


if __name__ == "__main__":
    main()
