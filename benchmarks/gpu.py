"""One GPU in one command of at most 8 minutes: whether training is right there, how fast it is
beside a plain loop and the Trainer of transformers, and many small models at once.

    pip install accelerate
    python benchmarks/gpu.py --json gpu.json

It needs no study: tokens are random, of a vocabulary of 32,000. Each side is a process, which
builds its model, compiles it, says that it is ready, waits for the word to start, and then trains
for 10 seconds or more. Small models that share the GPU start at the same moment; they share it
better under NVIDIA's MPS (``nvidia-cuda-mps-control -d``). What no time is left for is left out,
and the table says so. ``--dry-run`` runs all on a CPU in tiny sizes.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
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
from stages.models._attention import Documents, attend, attention_mask
from stages.models._backbone import MODELS, draw_weights
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import OBJECTIVES
from stages.text.batch import IGNORE_INDEX, Batch, document_starts
from stages.text.corpus import EncodedCorpus
from stages.text.packing import Packing
from stages.text.tokenizer import Vocabulary
from stages.training import loop
from stages.training.checkpoint import Resumable
from stages.training.device import Device, resolve
from stages.training.loop import train
from stages.training.pretraining import PretrainingData
from stages.training.progress import peak_flops

ROOT = Path(__file__).parents[1]
MINUTES = 8.0
OURS, PLAIN, TRAINER = "this project", "plain loop", "Trainer"
ARCHITECTURES = {"causal": "decoder", "mlm": "encoder", "span_corruption": "encoder_decoder"}
CHECK_EVERY = 10  # steps; to look at the clock waits for the GPU
RATE = 1e-4
TOLERANCE = 1e-3  # of losses of a few steps in float32
COMPILED = {("causal", "decoder"), ("span_corruption", "encoder_decoder")}  # in the check
MOST_LOSS_BYTES = 600e6  # beside the gradient of the logits, which are 1.05 GB


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

    @property
    def heads(self) -> int:
        return max(self.width // 64, 1)

    def on(self) -> Device:
        precision = "bfloat16" if self.device == "cuda" else "float32"
        return Device(self.device, precision, compile=self.compile, threads=1)


MASKED = Side(OURS, "mlm", rows=32, length=512)
SIDES = [  # the most important first
    Side(OURS),
    Side(PLAIN),
    Side(TRAINER),
    MASKED,
    replace(MASKED, name=TRAINER),
    replace(MASKED, work="span_corruption", compile=False),
    Side(OURS, compile=False),
]
SMALL = Side(OURS, "mlm", compile=False, layers=4, width=256, rows=32, length=128)
AT_ONCE = (1, 4, 8)


def tiny(side: Side) -> Side:
    """For a CPU: what is checked is that it runs."""
    changed = replace(side, compile=False, layers=1, width=64, rows=2, length=32, device="cpu")
    return replace(changed, vocab_size=512, seconds=0.1, warmup=1)


# A side, in a process of its own -----------------------------------------------------------------


class Clock:
    """Counts the steps of a side, from the word to start until its seconds are over."""

    def __init__(self, side: Side) -> None:
        self._side, self._device = side, side.on()
        self._done, self._began = -side.warmup, 0.0
        self.result: dict[str, Any] = {}

    def is_over(self) -> bool:
        """Call it after each step."""
        self._done += 1
        if self._done == 0:
            _wait_for(self._device)
            print("ready", flush=True)
            sys.stdin.readline()
            self._began = time.perf_counter()
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
    settings = {"name": ARCHITECTURES[side.work], **sizes, "d_ff": 4 * side.width}
    backbone = MODELS.build(settings, side.vocab_size, where="model")
    objective = OBJECTIVES.build({"name": side.work}, vocabulary, side.length, where="objective")
    objective.architecture = backbone.trained_like
    draw_weights(backbone, seed=1)
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    packing = Packing(corpus(side), side.length, seed=1)
    rows = {"batch_rows": side.rows, "micro_batch_rows": side.rows}
    few_widths = side.device == "cuda"
    data = PretrainingData(packing, objective, **rows, seed=1, few_widths=few_widths)
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
    peak = peak_flops(device)
    clock.result["utilisation"] = peak and clock.result["tflops"] * 1e12 / peak


def random_rows(side: Side) -> Iterator[torch.Tensor]:
    """The same rows again and again, so that they cost nothing."""
    generator = torch.Generator().manual_seed(0)
    known = torch.randint(side.vocab_size, (64 * side.rows, side.length), generator=generator)
    while True:
        yield from known


def run_plain(side: Side, clock: Clock) -> None:
    from benchmarks.speed_recipe import BETAS, MAX_NORM, WEIGHT_DECAY, Decoder

    device = side.on()
    torch.set_float32_matmul_precision("high")
    decoder = Decoder(asked(side), side.vocab_size).to(device.torch)
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

    from benchmarks.speed_peer import bert, gpt2

    class Rows(IterableDataset[dict[str, torch.Tensor]]):
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            return ({"input_ids": row, "labels": row} for row in random_rows(side))

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = clock.is_over()

    if side.work == "causal":
        model = transformers.GPT2LMHeadModel(gpt2(asked(side), side.vocab_size, 0.0))
    else:
        model = transformers.BertForMaskedLM(bert(asked(side), side.vocab_size, 0.0))
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


def asked(side: Side) -> Any:
    """The sizes, as the peers of ``speed.py`` take them."""
    from benchmarks.speed_peer import Asked

    return Asked(
        work=side.work,
        peer="",
        compile=side.compile,
        threads=1,
        warmup=side.warmup,
        steps=0,
        d_model=side.width,
        num_layers=side.layers,
        num_heads=side.heads,
        rows=side.rows,
        length=side.length,
        run="",
    )


RUN = {OURS: run_ours, PLAIN: run_plain, TRAINER: run_trainer}


# Correctness, in a process of its own ------------------------------------------------------------


def loss_of_vocabulary(device: Device, *, rows: int, vocab_size: int = 32_000) -> tuple[float, int]:
    """The difference of the loss and its gradient to torch's own in float64, and the bytes that the
    loss takes beside the gradient."""
    drawn = {"device": device.torch, "generator": torch.Generator(device.torch).manual_seed(1)}
    logits = 4 * torch.randn(rows, vocab_size, dtype=torch.bfloat16, **drawn)
    labels = torch.randint(vocab_size, (rows,), **drawn)
    labels[::3] = IGNORE_INDEX
    on_gpu, taken = device.device == "cuda", 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        taken = -torch.cuda.memory_allocated() - logits.nbytes
    loss = cross_entropy(logits.requires_grad_(), labels)
    loss.backward()
    if on_gpu:
        taken += torch.cuda.max_memory_allocated()
    assert logits.grad is not None
    total, largest, differs = 0.0, 0.0, 0.0
    for some, right, gradient in zip(
        logits.detach().split(512), labels.split(512), logits.grad.split(512), strict=True
    ):
        exact = some.double().requires_grad_()
        of_some = nn.functional.cross_entropy(
            exact, right, ignore_index=IGNORE_INDEX, reduction="sum"
        )
        (expected,) = torch.autograd.grad(of_some, exact)
        total += of_some.item()
        largest = max(largest, expected.abs().max().item())
        differs = max(differs, (gradient.double() - expected).abs().max().item())
    # The gradient is rounded to the eight binary digits of bfloat16.
    of_gradient = max(differs / largest - 2**-8, 0.0)
    return max(abs(loss.item() - total) / total, of_gradient), taken


def packed_difference(device: Device) -> float:
    from stages.models.hub import Hub
    from tests.small_hub import checkpoint, revision_of

    folder = checkpoint("bert")
    model = Hub(300, path=str(folder), revision=revision_of(folder))
    model.initialise(generator=torch.Generator())
    ids = torch.tensor([1] * 40 + [2] * 3 + [3] * 5, dtype=torch.long).repeat(4, 1)
    tokens = torch.randint(5, 300, ids.shape, generator=torch.Generator().manual_seed(1))
    batch = Batch(input_ids=tokens, document_ids=ids, num_targets={})
    with torch.no_grad():
        expected = model.eval()(batch)
        states = model.to(device.torch)(batch.to(device.torch)).cpu()
    return float((states - expected).abs().max() / expected.abs().max())


def documents_difference(device: Device, *, causal: bool) -> float:
    """Returns the largest relative error of attention within documents, or of a gradient, compared
    with masked attention in double precision, less 2^-6, which rounding in bfloat16 may cause. 0 if
    no error is larger. The rows have one document, many short ones, and padding."""
    ids = torch.ones(3, 320, dtype=torch.long)
    ids[1] = torch.arange(320) // 7 + 1
    ids[2, 100:] = 0
    starts = document_starts(ids)
    assert starts is not None
    documents = Documents(starts.to(device.torch), longest=320, causal=causal)
    mask = attention_mask(ids, ids, causal=causal).to(device.torch)
    drawn = {"device": device.torch, "generator": torch.Generator(device.torch).manual_seed(1)}
    weights, *inputs = (torch.randn(3, 4, 320, 64, **drawn).bfloat16() for _ in range(4))
    results = []
    for dtype, kept in ((torch.bfloat16, documents), (torch.float64, mask)):
        q, k, v = (each.to(dtype).requires_grad_() for each in inputs)
        mixed = attend(q, k, v, kept)
        results.append([mixed, *torch.autograd.grad((mixed * weights.to(dtype)).sum(), (q, k, v))])
    errors = [
        float((some.double() - right).norm() / right.norm())
        for some, right in zip(*results, strict=True)
    ]
    return max(max(errors) - 2**-6, 0.0)  # bfloat16 has 8 binary digits, and rounds several times


def check(device: Device) -> dict[str, Any]:
    """Relative differences: of losses of CUDA, compiled or not, to those of the CPU, of a resumed
    training to one that was not interrupted, of a repeated training, of the loss over a vocabulary
    and its gradient to torch's own in float64, of states of packed documents to the CPU's, and of
    attention within documents to that with a mask in float64."""
    from tests.training.trained_by_ranks import CPU, Stopped, Trained, cases, trained

    def difference(one: Trained, other: Trained) -> float:
        pairs = zip(one.losses, other.losses, strict=True)
        return max(abs(a - b) / abs(b) for a, b in pairs)

    on_gpu = device.device == "cuda"
    of_loss, loss_bytes = loss_of_vocabulary(device, rows=16_384 if on_gpu else 96)
    differences = {
        "loss over a vocabulary": of_loss,
        "packed documents of a public checkpoint": packed_difference(device),
    }
    if on_gpu:
        differences |= {
            "attention within documents": documents_difference(device, causal=False),
            "attention within documents, causal": documents_difference(device, causal=True),
        }
    # On a CPU one of each architecture: it is equal to itself.
    for name, architecture in cases(2 if on_gpu else 3):
        here = trained(name, architecture, device=device, dropout=0.0)
        right = trained(name, architecture, device=CPU, dropout=0.0)
        differences[f"{name} {architecture}"] = difference(here, right)
        if on_gpu and (name, architecture) in COMPILED:
            compiling = replace(device, compile=True)
            compiled = trained(name, architecture, device=compiling, dropout=0.0)
            differences[f"{name} {architecture}, compiled"] = difference(compiled, right)
    loop.CHECKPOINT_SECONDS = -1.0  # after each step
    whole = trained("mlm", "encoder", device=device)
    with tempfile.TemporaryDirectory() as scratch:
        state = {"scratch": Path(scratch), "device": device}
        try:
            trained("mlm", "encoder", **state, stop_after=1)
        except Stopped:
            assert Resumable("run", "fingerprint", scratch=Path(scratch)).exists()
        resumed = trained("mlm", "encoder", **state)
    again = trained("mlm", "encoder", device=device)
    differences["resumed"] = difference(resumed, whole)
    differences["repeated"] = difference(again, whole)
    equal = all(torch.equal(again.weights[name], whole.weights[name]) for name in whole.weights)
    return {
        "differences": differences,
        "bytes of the loss over a vocabulary": loss_bytes,
        "right": max(differences.values()) < TOLERANCE and loss_bytes < MOST_LOSS_BYTES,
        "repeated with equal bits": equal,
    }


# All of it ---------------------------------------------------------------------------------------


def started(words: list[list[str]], until: float) -> list[dict[str, Any]]:
    """What processes of this file print that start their work at the same moment, when all are
    ready; for one that has failed, or is ended because it is too late, why there is nothing."""
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
    try:
        for process in running:
            while process.stdout.readline() not in ("ready\n", ""):
                pass
        for process in running:
            with suppress(BrokenPipeError):  # it has ended
                process.stdin.write("go\n")
                process.stdin.flush()
        printed = [process.stdout.read() for process in running]
        ended = [process.wait() for process in running]
    finally:
        alarm.cancel()
        end()
    late = "it took too long" if time.monotonic() > until else "it failed"
    return [
        {"left out": late} if code else json.loads(text.splitlines()[-1])
        for code, text in zip(ended, printed, strict=True)
    ]


def measured(sides: list[Side], until: float) -> list[dict[str, Any]]:
    if any(side.name == TRAINER for side in sides) and not importlib.util.find_spec("accelerate"):
        results = [{"left out": "accelerate is not installed"}]
    else:
        results = started([["--side", json.dumps(asdict(side))] for side in sides], until)
    return [asdict(side) | result for side, result in zip(sides, results, strict=True)]


def shown(result: dict[str, Any]) -> str:
    about = f"{result['work']}, {result['name']}{', compiled' if result['compile'] else ''}"
    if "left out" in result:
        return f"{about}: left out, {result['left out']}"
    share = result.get("utilisation")
    return (
        f"{about}: {result['tokens_per_s']:,.0f} tokens/s in {result['seconds']:.1f} s, "
        f"{result['peak_memory_bytes'] / 2**30:.1f} GiB"
        + ("" if share is None else f", {share:.0%} of the card's peak")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where all results are written")
    parser.add_argument("--dry-run", action="store_true", help="tiny, on a CPU")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--check", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        side = Side(**json.loads(given.side))
        if side.name == OURS:
            resolve(Compute(device=side.device), threads=1)  # as in a study: kernels
        RUN[side.name](side, clock := Clock(side))
        print(json.dumps(clock.result))
    elif given.check:
        print("ready", flush=True)
        sys.stdin.readline()
        resolve(Compute(device=given.check), threads=1)
        print(json.dumps(check(Device(given.check, "float32", compile=False, threads=1))))
    else:
        everything(given.json, dry=given.dry_run)


def everything(file: Path | None, *, dry: bool) -> None:
    until = time.monotonic() + 60 * MINUTES
    device = "cpu" if dry else "cuda"
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "device": "cpu" if dry else torch.cuda.get_device_name(),
    }

    def note(name: str, value: Any) -> None:
        found[name] = value
        if file:
            file.write_text(json.dumps(found, indent=1))

    (correct,) = started([["--check", device]], until)
    note("correct", correct)
    print(json.dumps(correct, indent=1), flush=True)
    sides = [tiny(side) for side in SIDES[:3]] if dry else SIDES
    for side in sides:
        result = measured([side], until)
        note("sides", [*found.get("sides", []), *result])
        print(shown(result[0]), flush=True)
    for number in (2,) if dry else AT_ONCE:
        results = measured([tiny(SMALL) if dry else SMALL] * number, until)
        note(f"{number} at once", results)
        total = sum(result.get("tokens_per_s", 0) for result in results)
        print(f"{number} small models at once: {total:,.0f} tokens/s together", flush=True)


if __name__ == "__main__":
    main()
