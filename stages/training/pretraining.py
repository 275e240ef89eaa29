"""The batches of pretraining: rows of a packed corpus, masked or corrupted by an objective."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace

import torch

from stages.core import paths
from stages.core.components import below
from stages.core.params import Model
from stages.core.seeding import stream
from stages.models._backbone import MODELS, Backbone, too_long
from stages.objectives._objective import OBJECTIVES, Objective
from stages.text.batch import IGNORE_INDEX, Batch
from stages.text.checkpoints import folder_of
from stages.text.packing import Packing, Row
from stages.text.tokenizer import Tokenizer, Vocabulary
from stages.training.ranks import ALONE, Ranks

VALIDATION_ROWS = 256  # at most; the same for every model on a corpus
VALIDATION_SEED = 0
COUNTED_TARGETS = 2**15  # token frequencies are counted over about this many targets


def built(entry: Model, vocabulary: Vocabulary, *, where: str) -> tuple[Backbone, Objective]:
    """Returns the backbone of an entry, uninitialised but with its pretraining layers, and its
    objective.

    Raises ValueError with the path in params.yaml for wrong or incompatible settings.
    """
    backbone: Backbone = MODELS.build(
        entry.architecture, vocabulary.vocab_size, where=f"{where}.architecture"
    )
    objective = objective_for(entry, vocabulary, backbone, where=where)
    if objective.trains:
        if faults := [*incompatibilities(entry, backbone, objective, where)]:
            raise ValueError("\n".join(faults))
        with below(f"{where}.architecture"):
            backbone.add_output_layers()
    return backbone, objective


def tokenizer_of(entry: Model) -> Tokenizer:
    """Returns the tokenizer of a model: its checkpoint's own, or one that the study trained."""
    if entry.is_hub:
        return Tokenizer(folder_of(entry.architecture["path"], entry.architecture["revision"]))
    return Tokenizer(paths.TOKENIZERS / entry.tokenizer)


def objective_for(
    entry: Model, vocabulary: Vocabulary, backbone: Backbone, *, where: str
) -> Objective:
    """Returns the objective of a model, set up for its architecture."""
    settings, length = entry.objective, entry.training.max_tokens
    objective = OBJECTIVES.build(settings, vocabulary, length, where=f"{where}.objective")
    objective.architecture = backbone.architecture
    return objective


def incompatibilities(
    entry: Model, backbone: Backbone, objective: Objective, where: str
) -> Iterator[str]:
    """Yields why an objective cannot train a backbone, with paths in params.yaml."""
    if reason := objective.incompatibility(backbone):
        yield f"{where}.objective: {entry.objective['name']} {reason}"
    if reason := too_long(backbone, entry.training.max_tokens):
        yield f"{where}.training.max_tokens: {reason} ({where}.architecture)"


@dataclass(frozen=True)
class PretrainingData:
    """The micro-batches of each step. Step s has the ``batch_rows`` rows of the packing from row
    s * batch_rows on, of which each rank has an equal part."""

    packing: Packing
    objective: Objective
    _: KW_ONLY
    batch_rows: int
    micro_batch_rows: int
    seed: int
    ranks: Ranks = ALONE

    def of(self, ranks: Ranks) -> "PretrainingData":
        """Returns this rank's part of the data."""
        return replace(self, ranks=ranks)

    def micro_batches(self, step: int) -> list[Batch]:
        number = self.batch_rows // self.ranks.number
        first = step * self.batch_rows + self.ranks.rank * number
        rows = range(first, first + number)
        return _collated(
            self.packing, self.objective, rows, self.micro_batch_rows, self.seed, "corruption"
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
    counts = torch.ones(len(bias))  # from 1, so that no frequency is 0
    for step in range(num_steps):
        for batch in data.micro_batches(step):
            assert batch.labels is not None, "without labels, set predicts_tokens = False"
            labels = batch.labels[batch.labels != IGNORE_INDEX]
            counts += torch.bincount(labels, minlength=len(bias))
        if counts.sum() >= COUNTED_TARGETS + len(bias):
            break
    with torch.no_grad():
        bias.copy_((counts / counts.sum()).log())


def validation_batches(packing: Packing, objective: Objective, *, batch_rows: int) -> list[Batch]:
    """Returns batches of the first rows of a validation split, corrupted alike in all models."""
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
