"""Times one side of a comparison of speed in a process of its own: this project's training loop, or
the Trainer of transformers with equal tokens and model size. ``speed.py`` calls it.

Prints JSON: the seconds of each measured step, and the tokens and operations of a step.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import torch

from benchmarks.peers import bert, gpt2, t5
from benchmarks.pretraining_data import ARCHITECTURES, pretraining
from benchmarks.speed import PREDICTION
from benchmarks.speed_peer import (
    RATE,
    RECIPE,
    Asked,
    now,
    of_timed_steps,
    padded,
    seconds_of_predictions,
    seconds_of_steps,
)
from benchmarks.speed_recipe import seconds_of_recipe
from stages.core.artifacts import read_jsonl
from stages.core.keys import CheckpointKey
from stages.core.params import Optimisation, Params
from stages.core.seeding import torch_stream
from stages.core.study_file import load
from stages.models._backbone import draw_weights
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks.span_qa import SpanQA
from stages.tasks.tagging import Tagging
from stages.text.batch import IGNORE_INDEX, Batch
from stages.training.device import Device, resolve
from stages.training.finetuning import FinetuningData
from stages.training.flops import counting
from stages.training.loop import Data, add_gradients, train
from stages.training.pretraining import PretrainingData
from stages.trials.prediction import predict
from stages.trials.setup import TrialSetup

MASK_PROB = 0.15  # of both sides


@dataclass
class Timed:
    """The cost of each step."""

    seconds: list[float]
    units: float  # tokens of a pretraining step, or examples
    flops: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("asked", help="JSON: what is to be timed")
    request = Asked(**json.loads(parser.parse_args().asked))
    params = load()
    compute = params.compute.model_copy(update={"compile": request.compile})
    device = resolve(compute, threads=request.threads)
    if request.work.startswith(PREDICTION):
        timed = _predicting(
            replace(request, work=request.work.removeprefix(PREDICTION)), params, device
        )
        sys.stdout.write(json.dumps(asdict(timed)) + "\n")
        return
    side = pretraining_side if request.work in ARCHITECTURES else finetuning_side
    model, criterion, data, peer = side(request, params, device)
    some = data.micro_batches(0)
    with counting() as of_step:
        add_gradients(model, criterion, some, replace(device, device="cpu"))
    for weight in model.parameters():
        weight.grad = None
    if request.peer == RECIPE:
        rows = [row["input_ids"] for row in peer()[1]]
        seconds = seconds_of_recipe(request, rows, model.backbone.vocab_size, device)
    elif request.peer:
        seconds = seconds_of_steps(request, peer(), device)
    else:
        seconds = _of_loop(request, model.to(device.torch), criterion, data, device)
    units = request.rows * request.length if request.work in ARCHITECTURES else request.rows
    sys.stdout.write(json.dumps(asdict(Timed(seconds, units, of_step.flops))) + "\n")


def _of_loop(
    asked: Asked, model: ModelWithHead, criterion: Any, data: Data, device: Device
) -> list[float]:
    schedule = Optimisation(
        lr=RATE, warmup_fraction=0.1, decay="linear", weight_decay=0.01, max_grad_norm=1.0
    )
    number = asked.warmup + asked.steps
    steps = train(model, criterion, data, schedule, num_steps=number, seed=1, device=device)
    return of_timed_steps(asked, [now() for _ in steps])


# Pretraining -------------------------------------------------------------------------------------


def pretraining_side(
    asked: Asked, params: Params, device: Device
) -> tuple[ModelWithHead, Any, Data, Callable[[], Any]]:
    """Returns the side for the corpus and the tokenizer of the study's reference run."""
    sizes = {
        "d_model": asked.d_model,
        "num_layers": asked.num_layers,
        "num_heads": asked.num_heads,
        "d_ff": 4 * asked.d_model,
    }
    settings = {"mask_prob": MASK_PROB} if asked.work == "mlm" else {}
    backbone, objective, tokenizer, data = pretraining(
        params, asked.work, sizes, settings, rows=asked.rows, length=asked.length
    )
    draw_weights(backbone, seed=1)
    model = ModelWithHead(backbone, objective.head(backbone))
    initialise_head(model.head, generator=torch_stream(1, "head"))

    def peer() -> tuple[Any, list[dict[str, Any]], Any]:
        import transformers

        vocab_size, dropout = tokenizer.vocab_size, 0.0 if "best" in asked.peer else 0.1
        rows = list(islice(_rows(data), (asked.warmup + asked.steps) * asked.rows))
        match asked.work:
            case "causal":
                theirs = transformers.GPT2LMHeadModel(gpt2(asked, vocab_size, dropout))
                rows = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in rows]
            case "mlm":
                theirs = transformers.BertForMaskedLM(bert(asked, vocab_size, dropout))
            case _:
                theirs = transformers.T5ForConditionalGeneration(t5(asked, vocab_size, dropout))
        return theirs, rows, padded

    return model, objective, data, peer


def _rows(data: PretrainingData) -> Iterator[dict[str, Any]]:
    """The rows of one step after another, masked or corrupted as this project does."""
    step = 0
    while True:
        for batch in data.micro_batches(step):
            assert batch.labels is not None
            labels = _scattered(batch)
            for inputs, wanted in zip(batch.input_ids, labels, strict=True):
                yield {"input_ids": inputs, "labels": wanted}
        step += 1


def _scattered(batch: Batch) -> torch.Tensor:
    """The labels of masked positions, one for each token, as the peer's models want them."""
    assert batch.labels is not None
    if batch.target_positions is None:
        return batch.labels
    scattered = torch.full_like(batch.input_ids, IGNORE_INDEX)
    kept = batch.labels != IGNORE_INDEX
    rows = torch.arange(len(scattered)).unsqueeze(1).expand_as(batch.labels)
    scattered[rows[kept], batch.target_positions[kept]] = batch.labels[kept]
    return scattered


# Fine-tuning -------------------------------------------------------------------------------------


def _setup(asked: Asked, params: Params) -> TrialSetup:
    """Returns the first checkpoint of a run with a task of the study."""
    checkpoint = CheckpointKey(asked.run, params.models[asked.run].seeds[0])
    return TrialSetup(checkpoint, asked.work, max_tokens=params.finetune.max_tokens)


def finetuning_side(
    asked: Asked, params: Params, device: Device
) -> tuple[ModelWithHead, Any, Data, Callable[[], Any]]:
    """Returns the side for the rows of a task and the weights of a run. The peer's model has the
    same size, or, for a public checkpoint, the same weights."""
    setup = _setup(asked, params)
    model = setup.headed(seed=1)
    examples = setup.task.encode(read_jsonl(setup.examples / "train.jsonl"))
    data = FinetuningData(examples, setup.task, batch_examples=asked.rows, seed=1)

    def peer() -> tuple[Any, list[dict[str, Any]], Any]:
        labels = _labels(setup, examples)
        inputs = [{"input_ids": torch.from_numpy(each.tokens)} for each in examples]
        rows = [one | other for one, other in zip(inputs, labels, strict=True)]
        return _fine_tuned_peer(asked, setup, params), rows, padded

    return model, setup.task, data, peer


def _labels(setup: TrialSetup, examples: Sequence[Any]) -> list[dict[str, torch.Tensor]]:
    """Returns the labels as models of transformers want them."""
    if isinstance(setup.task, SpanQA):
        # Class 0 of this project is no answer, which the peer reads at the first token.
        ends = ("start_positions", "end_positions")
        return [
            {
                end: torch.as_tensor(max(int(label) - 1, 0))
                for end, label in zip(ends, each.labels, strict=True)
            }
            for each in examples
        ]
    of_words = isinstance(setup.task, Tagging)
    return [
        {"labels": torch.as_tensor(each.labels if of_words else each.labels[0])}
        for each in examples
    ]


def _fine_tuned_peer(asked: Asked, setup: TrialSetup, params: Params) -> Any:
    """A model of transformers for the task. At its best it has as little dropout as ours: none in
    a model that was pretrained here, and that of its checkpoint in a public one."""
    import transformers

    name, num_labels = "SequenceClassification", len(setup.task.labels)
    if isinstance(setup.task, Tagging):
        name = "TokenClassification"
    elif isinstance(setup.task, SpanQA):
        name, num_labels = "QuestionAnswering", 2
    settings, labels = setup.run_record["architecture"], {"num_labels": num_labels}
    if "path" in settings:
        kind = getattr(transformers, f"AutoModelFor{name}")
        return kind.from_pretrained(setup.pretrained, **labels)
    dropout = 0.0 if "best" in asked.peer else 0.1
    config = transformers.BertConfig(
        vocab_size=setup.tokenizer.vocab_size,
        hidden_size=settings["d_model"],
        num_hidden_layers=settings["num_layers"],
        num_attention_heads=settings["num_heads"],
        intermediate_size=settings["d_ff"],
        max_position_embeddings=params.finetune.max_tokens,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **labels,
    )
    return getattr(transformers, f"BertFor{name}")(config)


# Prediction --------------------------------------------------------------------------------------


def _predicting(asked: Asked, params: Params, device: Device) -> Timed:
    """Predicts all test rows in each step, from encoded texts to our answers or peer's logits."""
    setup = _setup(asked, params)
    rows = read_jsonl(setup.examples / "test.jsonl")
    examples = setup.task.encode(rows)
    if asked.peer:
        inputs = [{"input_ids": torch.from_numpy(each.tokens)} for each in examples]
        peer = _fine_tuned_peer(asked, setup, params), inputs, padded
        return Timed(seconds_of_predictions(asked, peer, device), len(rows), 0.0)
    model, seconds = setup.headed(seed=1).to(device.torch), []
    for _ in range(asked.warmup + asked.steps):
        began = now()
        predict(setup.task, model, rows, examples, device)
        seconds.append(now() - began)
    return Timed(seconds[asked.warmup :], len(rows), 0.0)


if __name__ == "__main__":
    main()
