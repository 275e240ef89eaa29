"""The batches of pretraining: rows of a packed corpus, masked or corrupted by an objective."""

from collections.abc import Iterator
from contextlib import nullcontext
from copy import copy
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from stages.core.components import below
from stages.core.params import Run
from stages.core.seeding import stream
from stages.models._backbone import MODELS, Backbone
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.batch import IGNORE_INDEX, Batch, in_few_widths
from stages.text.packing import Packing, Row
from stages.text.tokenizer import Vocabulary
from stages.training.ranks import ALONE, Ranks

VALIDATION_ROWS = 256  # at most; the same for every run on a corpus
VALIDATION_SEED = 0
COUNTED_TARGETS = 2**15  # token frequencies are counted over about this many targets


def built(run: Run, vocabulary: Vocabulary, *, where: str) -> tuple[Backbone, Objective]:
    """Returns a run's model (with pretraining layers, if any; not yet initialised) and objective.

    Raises ValueError with the path in params.yaml for wrong or incompatible settings.
    """
    backbone: Backbone = MODELS.build(run.model, vocabulary.vocab_size, where=f"{where}.model")
    objective = objective_for(run, vocabulary, backbone, where=where)
    if objective.trains:
        if faults := [*incompatibilities(run, backbone, objective, where)]:
            raise ValueError("\n".join(faults))
        with below(f"{where}.model"):
            backbone.add_pretraining_layers()
    return backbone, objective


def objective_for(run: Run, vocabulary: Vocabulary, backbone: Backbone, *, where: str) -> Objective:
    """Returns the objective of a run, set up for the architecture of its model."""
    length, here = run.training.max_tokens, f"{where}.objective"
    objective = OBJECTIVES.build(run.objective, vocabulary, length, where=here)
    objective.architecture = backbone.trained_like
    return objective


def incompatibilities(
    run: Run, backbone: Backbone, objective: Objective, where: str
) -> Iterator[str]:
    """Yields reasons why a run's objective cannot train its model, with paths in params.yaml."""
    if reason := objective.incompatibility(backbone):
        yield f"{where}.objective: {run.objective['name']} {reason}"
    if reason := backbone.too_long(run.training.max_tokens):
        yield f"{where}.training.max_tokens: {reason} ({where}.model)"


class PretrainingData:
    """The micro-batches of each step. Step s has the ``batch_rows`` rows of the packing from row
    s * batch_rows on."""

    def __init__(
        self,
        packing: Packing,
        objective: Objective,
        *,
        batch_rows: int,
        micro_batch_rows: int,
        seed: int,
        few_widths: bool = False,  # on a GPU
    ) -> None:
        self._packing, self._objective, self._seed = packing, objective, seed
        self._batch_rows, self._micro_batch_rows = batch_rows, micro_batch_rows
        self._few_widths, self._ranks = few_widths, ALONE

    def of(self, ranks: Ranks) -> "PretrainingData":
        """Returns this rank's part of the data: an equal number of each step's micro-batches."""
        part = copy(self)
        part._ranks = ranks
        return part

    @property
    def at_once(self) -> str:
        rows = self._micro_batch_rows
        return f"micro_batch_rows: {rows} of {self._packing.max_tokens} tokens"

    def halve(self) -> bool:
        """Halves the rows of a micro-batch, or returns False if their number is odd. Validation
        batches, which keep no states for a backward pass, do not change."""
        if self._micro_batch_rows % 2:
            return False
        self._micro_batch_rows //= 2
        return True

    def micro_batches(self, step: int) -> list[Batch]:
        number = self._batch_rows // self._ranks.number
        first = step * self._batch_rows + self._ranks.rank * number
        rows, at_once = range(first, first + number), self._micro_batch_rows
        widths = in_few_widths(self._objective.max_tokens) if self._few_widths else nullcontext()
        with widths:
            return _collated(
                self._packing, self._objective, rows, at_once, self._seed, "corruption"
            )


def begin_with_frequencies(backbone: Backbone, data: PretrainingData, *, num_steps: int) -> None:
    """Sets the output bias, if there is one and it is still 0, to the log frequencies of the tokens
    among the targets of the first steps.

    Otherwise weights that shift the logits of all positions alike would first learn the
    frequencies. In an encoder-decoder they would use the encoder's mean state for this: the
    encoder's states would become alike and stay so.
    """
    bias = backbone.logit_bias
    if bias is None or bias.any():
        return
    frequencies = target_frequencies(data, len(bias), num_steps=num_steps)
    with torch.no_grad():
        bias.copy_(frequencies.log())


def target_frequencies(
    data: PretrainingData, vocab_size: int, *, num_steps: int
) -> Float[Tensor, " V"]:
    """The share of each token among the targets of the first ``num_steps`` steps, or of fewer if
    these already have COUNTED_TARGETS targets. Each count begins at 1, so that no share is 0."""
    counts = torch.ones(vocab_size)
    for step in range(num_steps):
        for batch in data.micro_batches(step):
            assert batch.labels is not None, "without labels, set predicts_tokens = False"
            labels = batch.labels[batch.labels != IGNORE_INDEX]
            counts += torch.bincount(labels, minlength=vocab_size)
        if counts.sum() >= COUNTED_TARGETS + vocab_size:
            break
    return counts / counts.sum()


def validation_batches(packing: Packing, objective: Objective, *, batch_rows: int) -> list[Batch]:
    """Returns batches of the first rows of a validation split, corrupted alike in all runs."""
    rows = range(min(packing.rows_per_epoch, VALIDATION_ROWS))
    return _collated(packing, objective, rows, batch_rows, VALIDATION_SEED, "validation")


def _collated(
    packing: Packing, objective: Objective, rows: range, batch_rows: int, seed: int, name: str
) -> list[Batch]:
    def row(i: int) -> Row:
        if not objective.compares_documents:
            return packing.row(i)
        other = int(stream(seed, f"{name} other", i).integers(packing.rows_per_epoch))
        return replace(packing.row(i), other=packing.row(other))

    return [
        objective.collate([row(i) for i in part], rngs=[stream(seed, name, i) for i in part])
        for part in (rows[at : at + batch_rows] for at in range(0, len(rows), batch_rows))
    ]
