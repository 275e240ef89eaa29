"""Short trainings of every objective, by one process or by this rank of several.

    python -m tests.training.trained_by_ranks FOLDER

trains everything as a rank, with both strategies, and the first rank writes the results.
"""

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from stages.core.params import Distributed
from stages.core.rank import rank_of_process
from stages.core.seeding import torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import OBJECTIVES, Objective
from stages.objectives.distillation import Distillation
from stages.text.corpus import EncodedCorpus, encode
from stages.text.packing import Packing
from stages.training import loop
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.loop import Step, mean_loss, train
from stages.training.pretraining import PretrainingData, begin_with_frequencies
from stages.training.ranks import ALONE, Ranks, joined
from stages.training.tries import try_each
from tests.small import (
    ARCHITECTURES,
    documents,
    small_model,
    small_schedule,
    small_tokenizer,
)

STRATEGIES = ("ddp", "fsdp")
LENGTH, ROWS, MICRO_ROWS, NUM_STEPS = 48, 8, 2, 3  # four micro-batches: one or two for each rank
DROPOUT = 0.1
RATES = [2e-2, 1e-2]
CPU = Device("cpu", "float32", compile=False, threads=1)
IN_BFLOAT16 = Device("cpu", "bfloat16", compile=False, threads=1)
# The norm of the gradients is cut in every step.
SCHEDULE = small_schedule(
    rows=ROWS, max_tokens=LENGTH, num_steps=NUM_STEPS, lr=1e-2, max_grad_norm=0.1
).at(1e-2)


@dataclass
class Trained:
    losses: list[float]  # of all steps, then of all validations
    weights: dict[str, Tensor]
    flops: list[int]


class Stopped(Exception):
    pass


def cases(number: int = 2, strategy: str = "ddp") -> list[tuple[str, str]]:
    """Each objective that trains, with each architecture that it fits; with more than two ranks or
    ``fsdp``, one objective for each architecture."""
    fitting = []
    for name in OBJECTIVES.names():
        for architecture in ARCHITECTURES:
            if OBJECTIVES.find(name, where="").trains:
                of = OBJECTIVES.build({"name": name}, small_tokenizer(), LENGTH, where="objective")
                of.architecture = small_model(architecture).trained_like
                if of.incompatibility(small_model(architecture)) is None:
                    fitting.append((name, architecture))
    first = {architecture: (name, architecture) for name, architecture in reversed(fitting)}
    return fitting if number <= 2 and strategy == "ddp" else [*first.values()]


@cache
def short_texts() -> EncodedCorpus:
    """Documents of an input and its target, as ``multi_task`` needs. They are short, so that ranks
    have uneven numbers of targets."""
    return encode([lines[1:3] for lines in documents()], small_tokenizer())


def built(
    name: str,
    architecture: str,
    *,
    dropout: float = DROPOUT,
    max_tokens: int = LENGTH,
    **settings: Any,
) -> tuple[Objective, ModelWithHead, PretrainingData]:
    objective = OBJECTIVES.build({"name": name}, small_tokenizer(), max_tokens, where="objective")
    backbone = small_model(architecture, dropout=dropout, **settings)
    objective.architecture = backbone.trained_like
    if objective.has_teacher:
        teacher = small_model(architecture, seed=2, num_layers=2 * backbone.num_layers)
        objective.learn_from(teacher.requires_grad_(False).eval(), backbone)
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    data = PretrainingData(
        Packing(short_texts(), max_tokens, seed=1),
        objective,
        batch_rows=ROWS,
        micro_batch_rows=MICRO_ROWS,
        seed=1,
    )
    begin_with_frequencies(backbone, data, num_steps=1)
    return objective, model, data


def trained(
    name: str,
    architecture: str,
    ranks: Ranks = ALONE,
    *,
    rates: list[float] = RATES[1:],
    scratch: Path | None = None,
    stop_after: int | None = None,
    device: Device = CPU,
    dropout: float = DROPOUT,
) -> Trained:
    """Trains at each rate, and returns the losses of all and the weights of the best. The step
    after ``stop_after`` raises Stopped."""
    objective, model, data = built(name, architecture, dropout=dropout)
    if isinstance(objective, Distillation):
        objective.teacher.to(device.torch)
    validation = data.micro_batches(100)
    resumable = Resumable("run", "fingerprint", scratch=scratch or Path(), ranks=ranks)

    def attempt(rate: float, history: list[Step], state: Resumable) -> None:
        for step in train(
            spread,
            objective,
            data.of(ranks),
            SCHEDULE.model_copy(update={"lr": rate}),
            num_steps=NUM_STEPS,
            seed=1,
            device=device,
            history=history,
            resumable=state if scratch else None,
            ranks=ranks,
        ):
            if stop_after and step.step > stop_after:
                raise Stopped
            if step.step in (1, NUM_STEPS):
                validated = mean_loss(spread, objective, validation, device)
                step.validation_loss = ranks.from_first(validated)

    with ranks.spread(model, device) as spread:
        tries = try_each(spread, rates, resumable, attempt)
    history = [step for each in tries for step in each.history]
    validated = [step.validation_loss for step in history if step.validation_loss is not None]
    return Trained(
        [step.loss for step in history] + validated,
        {name: weight.detach() for name, weight in model.named_parameters()},
        [step.flops for step in history],
    )


def gathered(ranks: Ranks) -> dict[str, str]:
    """The types in which the weights of an encoder are gathered for a forward pass in bfloat16."""
    objective, model, data = built("mlm", "encoder")
    types = dict[str, str]()
    with ranks.spread(model, IN_BFLOAT16) as spread:
        for place, module in spread.named_modules():
            own = [name for name, _ in module.named_parameters(recurse=False)]

            def note(part: nn.Module, _: object, place: str = place, own: list[str] = own) -> None:
                for name in own:
                    types[f"{place}.{name}"] = str(part.get_parameter(name).dtype)

            module.register_forward_pre_hook(note)
        mean_loss(spread, objective, data.micro_batches(0), IN_BFLOAT16)
    return types


def write(folder: Path, name: str, result: Trained) -> None:
    save_file({key: weight.contiguous() for key, weight in result.weights.items()}, folder / name)
    summary = {"losses": result.losses, "flops": result.flops}
    (folder / f"{name}.json").write_text(json.dumps(summary))


def apart(ranks: Ranks, result: Trained) -> bool:
    """Returns whether this rank's weights differ from those of the first."""
    own = float(sum(weight.double().sum() for weight in result.weights.values()))
    return ranks.from_first(own) != own


def main(folder: Path) -> None:
    place = rank_of_process()
    assert place is not None
    loop.CHECKPOINT_SECONDS = 0.0
    distributed = Distributed(devices=place.num_ranks, num_nodes=1, strategy="ddp")
    with joined(distributed, CPU) as first:
        for strategy in STRATEGIES:
            ranks = Ranks(first.rank, first.number, strategy)
            results = {
                f"{name}-{of}": trained(name, of, ranks)
                for name, of in cases(first.number, strategy)
            }
            earlier, stopped = (folder / name / strategy for name in ("earlier", "stopped"))
            if earlier.is_dir():
                results["resumed"] = trained("causal", "decoder", ranks, scratch=earlier)
            else:
                results["tries"] = trained(
                    "mlm", "encoder", ranks, rates=RATES, scratch=folder / "tries" / strategy
                )
                results["bfloat16"] = trained("mlm", "encoder", ranks, device=IN_BFLOAT16)
                if types := gathered(ranks) if strategy == "fsdp" else {}:
                    (folder / f"types-{ranks.rank}.json").write_text(json.dumps(types))
                with pytest.raises(Stopped):
                    trained("causal", "decoder", ranks, scratch=stopped, stop_after=1)
            for name, result in results.items():
                assert strategy == "fsdp" or not apart(ranks, result), name
                if ranks.is_first:
                    write(folder, f"{strategy}-{name}", result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
