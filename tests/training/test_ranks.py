"""Two processes (ranks) train as one does, with both strategies. As a program,

    torchrun --nproc-per-node 2 -m tests.training.test_ranks FOLDER

trains some objectives as a rank, and the first rank writes the results.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stages.core.params import Distributed
from stages.core.seeding import torch_stream
from stages.models._heads import ModelWithHead, initialise_head
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.corpus import encode
from stages.text.packing import Packing
from stages.training import loop
from stages.training.checkpoint import Resumable
from stages.training.device import Device
from stages.training.loop import Step, mean_loss, train
from stages.training.pretraining import PretrainingData, begin_with_frequencies
from stages.training.ranks import ALONE, Ranks, joined, start_ranks
from tests.small import documents, small_model, small_schedule, small_tokenizer
from tests.smoke import ROOT

STRATEGIES = ("ddp", "fsdp")
TRAINED = [
    ("mlm", "encoder"),
    ("causal", "decoder"),
    ("span_corruption", "encoder_decoder"),
    ("bidirectional_lm", "bilstm"),
]
# A setting of dropout of each family.
DROPOUT = {"encoder": "mlp_dropout", "decoder": "resid_pdrop", "encoder_decoder": "dropout_rate"}
LENGTH, ROWS, MICRO_ROWS, NUM_STEPS = 48, 8, 2, 3  # four micro-batches: two for each rank
CPU = Device("cpu", "float32", compile=False, threads=1)
# The norm of the gradients is cut in every step.
SCHEDULE = small_schedule(
    rows=ROWS, max_tokens=LENGTH, num_steps=NUM_STEPS, lr=1e-2, max_grad_norm=0.1
).at(1e-2)
# Ranks sum in another order, and Adam divides by small numbers.
RELATIVE, ABSOLUTE = 1e-4, 2e-5


@dataclass
class Trained:
    losses: list[float]  # of all steps, then the validation
    weights: dict[str, Tensor]
    flops: list[int]


def built(name: str, architecture: str) -> tuple[Objective, ModelWithHead, PretrainingData]:
    """The objective, a model with dropout, and data."""
    objective = OBJECTIVES.build({"name": name}, small_tokenizer(), LENGTH, where="objective")
    dropout: dict[str, Any] = {"dropout": 0.1}  # of the LSTMs
    if architecture in DROPOUT:
        dropout = {"config": {DROPOUT[architecture]: 0.1}}
    backbone = small_model(architecture, **dropout)
    objective.architecture = backbone.architecture
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))
    # Short documents, so that ranks have uneven numbers of targets.
    corpus = encode([lines[1:3] for lines in documents()], small_tokenizer())
    packing = Packing(corpus, LENGTH, seed=1)
    data = PretrainingData(packing, objective, batch_rows=ROWS, micro_batch_rows=MICRO_ROWS, seed=1)
    begin_with_frequencies(backbone, data, num_steps=1)
    return objective, model, data


def trained(
    name: str,
    architecture: str,
    ranks: Ranks = ALONE,
    *,
    scratch: Path | None = None,
    stop_after: int = NUM_STEPS,
) -> Trained:
    """Trains a model; with ``scratch`` from the state that is saved there after each step."""
    objective, model, data = built(name, architecture)
    resumable = Resumable("run", "fingerprint", scratch=scratch, ranks=ranks) if scratch else None
    history = list[Step]()
    with ranks.spread(model, CPU) as spread:
        for step in train(
            spread,
            objective,
            data.of(ranks),
            SCHEDULE,
            num_steps=NUM_STEPS,
            seed=1,
            device=CPU,
            history=history,
            resumable=resumable,
            ranks=ranks,
        ):
            if step.step > stop_after:
                break
        validated = mean_loss(spread, objective, data.micro_batches(100), CPU)
    return Trained(
        [*(step.loss for step in history), ranks.from_first(validated)],
        {name: weight.detach() for name, weight in model.named_parameters()},
        [step.flops for step in history],
    )


def main(folder: Path) -> None:
    loop.CHECKPOINT_SECONDS = -1.0
    with joined(Distributed(devices=2), CPU) as first:
        for strategy in STRATEGIES:
            ranks = Ranks(first.rank, first.number, strategy)
            results = {of: trained(name, of, ranks) for name, of in TRAINED}
            scratch = folder / "stopped" / strategy
            trained("causal", "decoder", ranks, scratch=scratch, stop_after=1)
            results["resumed"] = trained("causal", "decoder", ranks, scratch=scratch)
            trained("mlm", "encoder", ranks, scratch=folder / strategy, stop_after=1)
            for name, result in results.items():
                if ranks.is_first:
                    save_file(result.weights, folder / f"{strategy}-{name}.safetensors")
                    about = {"losses": result.losses, "flops": result.flops}
                    (folder / f"{strategy}-{name}.json").write_text(json.dumps(about))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what two ranks trained."""
    path = tmp_path_factory.mktemp("ranks")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*torchrun, "-m", "tests.training.test_ranks", path], cwd=ROOT, check=True)
    return path


def differ(folder: Path, name: str, alone: Trained) -> None:
    """Raises AssertionError if the result in a file differs from that of one process."""
    about = json.loads((folder / f"{name}.json").read_text())
    assert about["losses"] == pytest.approx(alone.losses, rel=RELATIVE)
    assert about["flops"] == alone.flops
    weights = load_file(folder / f"{name}.safetensors")
    torch.testing.assert_close(weights, alone.weights, rtol=RELATIVE, atol=ABSOLUTE)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "architecture"), TRAINED)
def test_train_of_two_ranks_equals_one_process(
    folder: Path, objective: str, architecture: str
) -> None:
    """Losses, weights and operations are equal, with dropout and clipped gradients. A resumed
    training equals an uninterrupted one, with as many ranks or another number."""
    alone = trained(objective, architecture)
    for strategy in STRATEGIES:
        differ(folder, f"{strategy}-{architecture}", alone)
        if architecture == "decoder":
            differ(folder, f"{strategy}-resumed", alone)
        if architecture == "encoder":
            resumed = trained(objective, architecture, scratch=folder / strategy)
            assert resumed.losses == pytest.approx(alone.losses, rel=RELATIVE)


def test_start_ranks_leaves_several_nodes_to_the_user() -> None:
    with pytest.raises(ValueError, match=r"^distributed\.num_nodes: .*torchrun --nnodes 2"):
        start_ranks(Distributed(num_nodes=2))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
