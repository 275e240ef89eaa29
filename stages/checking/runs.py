"""Faults of single runs."""

from collections.abc import Iterator, Mapping

from stages.checking.entries import name_of, unlisted
from stages.checking.optimizers import pretraining_faults
from stages.checking.outlines import RunOutline
from stages.checking.parents import cycle_faults, parent_faults
from stages.checking.public_checkpoints import public_faults
from stages.core.params import NONE, Params, PublishedTokenizer, Run, Training
from stages.matching.budget import trains
from stages.objectives._objective import OBJECTIVES
from stages.training.pretraining import incompatibilities
from stages.training.ranks import uneven


def run_faults(params: Params, key: str, outlines: Mapping[str, RunOutline]) -> Iterator[str]:
    outlined = outlines[key]
    run, where = outlined.run, outlined.where
    yield from _training_faults(run.training, f"{where}.training")
    yield from _sharing_faults(params, run, f"{where}.training")
    if outlined.objective is not None and outlined.objective.trains:
        assert outlined.backbone is not None
        training, backbone = run.training, outlined.backbone
        here = f"{where}.training.optimizer"
        yield from pretraining_faults(training, backbone, params.distributed, here)
    yield from outlined.faults
    if run.parent != NONE:
        yield from unlisted(run.parent, params.runs, f"{where}.parent")
    if run.is_public:
        yield from public_faults(params, outlined)
    else:
        yield from _own_faults(params, outlined)
    cycle = [*cycle_faults(params.runs, key)]
    yield from cycle or parent_faults(outlined, outlines.get(run.parent))


def _own_faults(params: Params, outlined: RunOutline) -> Iterator[str]:
    """Yields the faults of a run that is no public checkpoint."""
    run, where = outlined.run, outlined.where
    yield from unlisted(run.corpus, (*params.corpora, NONE), f"{where}.corpus")
    yield from unlisted(run.tokenizer, params.tokenizers, f"{where}.tokenizer")
    if isinstance(params.tokenizers.get(run.tokenizer), PublishedTokenizer):
        yield (
            f"{where}.tokenizer: {run.tokenizer} belongs to a public checkpoint and works only "
            f"with it; {name_of(run.model)} needs a tokenizer of another algorithm"
        )
    yield from _objective_faults(outlined)


def _training_faults(training: Training, where: str) -> Iterator[str]:
    if training.batch_rows % training.micro_batch_rows:
        yield (
            f"{where}.micro_batch_rows: must divide batch_rows {training.batch_rows}, not "
            f"{training.micro_batch_rows}"
        )
    if training.num_validations > training.num_steps:
        yield (
            f"{where}.num_validations: must be at most num_steps {training.num_steps}, not "
            f"{training.num_validations}"
        )


def _sharing_faults(params: Params, run: Run, where: str) -> Iterator[str]:
    training = run.training
    if name_of(run.objective) not in OBJECTIVES.names() or not trains(run):
        return
    # _training_faults reports micro-batches that do not divide the batch.
    divides = training.batch_rows % training.micro_batch_rows == 0
    if divides and (reason := uneven(training, params.distributed)):
        yield f"{where}.micro_batch_rows: {reason}"


def _objective_faults(outlined: RunOutline) -> Iterator[str]:
    run, where = outlined.run, outlined.where
    name = name_of(run.objective)
    if name in OBJECTIVES.names() and OBJECTIVES.find(name, where="").trains and run.corpus == NONE:
        yield f"{where}.corpus: {name} needs a corpus, not {NONE}"
    backbone, objective = outlined.backbone, outlined.objective
    if backbone is not None and objective is not None and objective.trains:
        yield from incompatibilities(run, backbone, objective, where)
