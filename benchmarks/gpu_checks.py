"""Whether a GPU computes what a CPU does: the first part of ``gpu.py``."""

import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stages.core.seeding import torch_stream
from stages.models._attention import Documents, additive, attend, document_mask
from stages.models._heads import ModelWithHead, initialise_head
from stages.models.hub import Hub
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import OBJECTIVES
from stages.tasks._task import Task
from stages.text.batch import IGNORE_INDEX, Batch, document_starts
from stages.text.corpus import encode
from stages.text.packing import Packing
from stages.training import loop
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.finetuning import FinetuningData
from stages.training.loop import Step, mean_loss, train
from stages.training.pretraining import PretrainingData, begin_with_frequencies
from tests.small import documents, small_model, small_schedule, small_tokenizer
from tests.small_hub import checkpoint, revision_of

CPU = Device("cpu", "float32", compile=False, threads=1)
TRAINED = (
    ("mlm", "encoder"),
    ("causal", "decoder"),
    ("span_corruption", "encoder_decoder"),
    ("bidirectional_lm", "bilstm"),
)
# Objectives without a parent or other data of their own, by the architectures that they train.
ALL_TRAINED = (
    *TRAINED,
    ("span_mlm", "encoder"),
    ("prefix_lm", "decoder"),
    ("denoising", "encoder_decoder"),
)
# The settings of dropout of each family.
DROPOUT = {
    "encoder": ("mlp_dropout", "attention_dropout"),
    "decoder": ("resid_pdrop", "attention_dropout"),
    "encoder_decoder": ("dropout_rate",),
}
LENGTH, ROWS, NUM_STEPS = 48, 8, 3
TOLERANCE = 1e-3  # of losses of a few steps in float32
COMPILED = {"causal", "span_corruption"}
MOST_LOSS_BYTES = 600e6  # besides the gradient of the logits, which takes 1.05 GB
SCHEDULE = small_schedule(rows=8, max_tokens=32, num_steps=60, lr=1e-3, weight_decay=0.0).at(1e-3)


def loss_of_vocabulary(device: Device, *, rows: int, vocab_size: int = 32_000) -> tuple[float, int]:
    """Returns how much the loss and its gradient differ from torch's own in float64, and the bytes
    that the loss takes besides the gradient."""
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
    mask = additive(document_mask(ids, ids, causal=causal), torch.float64).to(device.torch)
    drawn = {"device": device.torch, "generator": torch.Generator(device.torch).manual_seed(1)}
    weights, *inputs = (torch.randn(3, 4, 320, 64, **drawn).bfloat16() for _ in range(4))
    results = []
    for dtype, kept in ((torch.bfloat16, documents), (torch.float64, mask)):
        q, k, v = (each.to(dtype).requires_grad_() for each in inputs)
        if isinstance(kept, Documents):
            mixed, _ = attend(nn.Module(), q, k, v, None, documents=kept)
        else:
            mixed, _ = attend(nn.Module(), q, k, v, kept)
        mixed = mixed.transpose(1, 2)
        results.append([mixed, *torch.autograd.grad((mixed * weights.to(dtype)).sum(), (q, k, v))])
    errors = [
        float((some.double() - right).detach().norm() / right.norm())
        for some, right in zip(*results, strict=True)
    ]
    return max(max(errors) - 2**-6, 0.0)  # bfloat16 has 8 binary digits, and rounds several times


def fitted(task: Task, model: ModelWithHead, examples: list[Any], device: Device):
    """Returns the losses of three steps of fine-tuning without dropout, then the loss that is
    reached, and a prediction for each example."""
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        elif isinstance(getattr(part, "dropout", None), float):  # of transformers' attention
            part.dropout = 0.0
    model.to(device.torch)
    batch = task.collate(examples, rngs=[]).to(device.torch)
    data = FinetuningData(examples, task, batch_examples=len(examples), seed=1)
    batches = data.micro_batches(0)
    steps = train(model, task, data, SCHEDULE, num_steps=3, seed=1, device=device)
    losses = [step.loss for step in steps]
    losses.append(mean_loss(model, task, batches, device))
    with torch.no_grad():
        return losses, task.predict(model, batch, examples)


def alike(one: Any, other: Any) -> bool:
    """Whether two predictions are equal except for the rounding of numbers."""
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    try:
        return math.isclose(float(one), float(other), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except (TypeError, ValueError):
        return one == other


def fine_tuning(device: Device) -> dict[str, Any]:
    """Compares fine-tuning in full on CUDA with the CPU's, for every task and family."""
    from tests.test_matrix import Cell, built, fitting, rows_of

    def made(cell: Cell) -> tuple[Task, ModelWithHead, list[Any]]:
        task, model = built(cell)
        return task, model, [*task.encode([*rows_of(cell.kind)])]

    on_gpu = device.device == "cuda"
    differences, differing, faults = dict[str, float](), list[str](), dict[str, str]()
    for cell in [*fitting()][:: 1 if on_gpu else 6]:
        name = " ".join(map(str, cell))
        try:
            (losses, predictions), (right, expected) = (
                fitted(*made(cell), device=each) for each in (device, CPU)
            )
        except RuntimeError as error:  # the fault of one cell must not hide others
            faults[name] = str(error)[:200]
            continue
        pairs = zip(losses, right, strict=True)
        differences[name] = max(abs(a - b) / max(abs(b), 1e-3) for a, b in pairs)
        if not alike(predictions, expected):
            differing.append(name)
    largest = sorted(differences, key=differences.__getitem__, reverse=True)[:10]
    return {
        "fine-tunings": len(differences),
        "largest differences": {name: differences[name] for name in largest},
        "with another prediction": differing,
        "faults": faults,
        "right": not (faults or differing) and max(differences.values()) < TOLERANCE,
    }


@dataclass(frozen=True)
class Trained:
    """The losses of all steps, then of a validation, and the weights at the end."""

    losses: list[float]
    weights: dict[str, Tensor]


def trained(
    name: str,
    architecture: str,
    *,
    device: Device,
    dropout: float = 0.1,
    scratch: Path | None = None,
    stop_after: int = NUM_STEPS,
) -> Trained:
    """Pretrains a small model; with ``scratch`` from the state that is saved there after each
    step."""
    objective = OBJECTIVES.build({"name": name}, small_tokenizer(), LENGTH, where="objective")
    config = dict.fromkeys(DROPOUT.get(architecture, ()), dropout)
    settings: dict[str, Any] = {"config": config} if config else {}
    backbone = small_model(architecture, **settings)
    objective.architecture = backbone.architecture
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    packing = Packing(encode(documents(), small_tokenizer()), LENGTH, seed=1)
    data = PretrainingData(packing, objective, batch_rows=ROWS, micro_batch_rows=2, seed=1)
    begin_with_frequencies(backbone, data, num_steps=1)
    model.to(device.torch)
    history = list[Step]()
    for step in train(
        model,
        objective,
        data,
        small_schedule(rows=ROWS, max_tokens=LENGTH, num_steps=NUM_STEPS, lr=1e-2).at(1e-2),
        num_steps=NUM_STEPS,
        seed=1,
        device=device,
        history=history,
        resumable=Resumable("run", "fingerprint", scratch=scratch) if scratch else None,
    ):
        if step.step > stop_after:
            break
    validated = mean_loss(model, objective, data.micro_batches(100), device)
    return Trained(
        [*(step.loss for step in history), validated],
        {name: weight.detach().cpu() for name, weight in model.named_parameters()},
    )


def training(device: Device) -> dict[str, Any]:
    """Returns relative differences: between losses on CUDA, compiled or not, and the CPU; between
    a resumed or repeated training and an uninterrupted one; between the loss over a vocabulary, or
    its gradient, and torch's own in float64; between states of packed documents on both devices;
    and between attention within documents and masked attention in float64."""

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
    # On a CPU one case of each architecture is enough: each is compared with itself.
    for name, architecture in ALL_TRAINED if on_gpu else TRAINED:
        here = trained(name, architecture, device=device, dropout=0.0)
        right = trained(name, architecture, device=CPU, dropout=0.0)
        differences[f"{name} {architecture}"] = difference(here, right)
        if on_gpu and name in COMPILED:
            compiling = replace(device, compile=True)
            compiled = trained(name, architecture, device=compiling, dropout=0.0)
            differences[f"{name} {architecture}, compiled"] = difference(compiled, right)
    loop.CHECKPOINT_SECONDS = -1.0  # after each step
    whole = trained("mlm", "encoder", device=device)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        trained("mlm", "encoder", scratch=folder, device=device, stop_after=1)
        resumed = trained("mlm", "encoder", scratch=folder, device=device)
    again = trained("mlm", "encoder", device=device)
    differences["resumed"] = difference(resumed, whole)
    differences["repeated"] = difference(again, whole)
    equal = all(
        torch.equal(other.weights[name], weight)
        for other in (again, resumed)
        for name, weight in whole.weights.items()
    )
    return {
        "differences": differences,
        "bytes of the loss over a vocabulary": loss_bytes,
        "right": max(differences.values()) < TOLERANCE and loss_bytes < MOST_LOSS_BYTES,
        "resumed and repeated with equal bits": equal,
    }
