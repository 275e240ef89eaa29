"""Every fault of params.yaml, rule by rule."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from stages.checking.entries import name_of, unlisted
from stages.checking.inputs import baseline_faults, corpus_faults, task_faults, tokenizer_faults
from stages.checking.lengths import length_faults, target_lengths
from stages.checking.methods import fit_faults
from stages.checking.outlines import RunOutline, outline_runs
from stages.checking.runs import run_faults
from stages.checking.stated import told_once
from stages.core.components import Settings
from stages.core.params import Params, Run, Task
from stages.evaluation.records import CLASSICAL
from stages.matching.budget import matched_model, trains
from stages.objectives._objective import OBJECTIVES
from stages.sources._columns import SPLIT_SEED
from stages.training.ranks import too_few_threads


def find_faults(params: Params) -> Iterator[str]:
    """Yields one line for each fault, which begins with its path in params.yaml."""
    for key, corpus in params.corpora.items():
        yield from corpus_faults(params, corpus, f"corpora.{key}")
    for key, tokenizer in params.tokenizers.items():
        yield from tokenizer_faults(params, tokenizer, f"tokenizers.{key}")
    for key, task in params.tasks.items():
        yield from task_faults(params, task, f"tasks.{key}")
    yield from _draw_faults(params.tasks)
    outlines = outline_runs(params.runs, params.tokenizers)
    yield from told_once(params.runs, [*_faults_of_runs(params, outlines)])
    for key, baseline in params.baselines.items():
        yield from baseline_faults(params, baseline, f"baselines.{key}")
        if key in params.runs:
            yield f"baselines.{key}: is also the name of a run; rename one of them"
    if CLASSICAL in params.finetune.methods:
        yield f"finetune.methods.{CLASSICAL}: is reserved for baselines in reports; rename it"
    yield from _device_faults(params)
    for name in ("label_budgets", "seeds", "initial_weights"):
        values = getattr(params.finetune, name)
        if len(set(values)) < len(values):
            yield f"finetune.{name}: must not repeat a value, not {values}"


def _faults_of_runs(params: Params, outlines: Mapping[str, RunOutline]) -> Iterator[str]:
    """Yields the faults of runs, and of their combinations with tasks and methods."""
    for key in params.runs:
        yield from run_faults(params, key, outlines)
    yield from _repetition_faults(params.runs)
    backbones = {key: o.backbone for key, o in outlines.items() if o.backbone is not None}
    targets = target_lengths(params.tasks)
    for key, backbone in backbones.items():
        where = f"{outlines[key].where}.model"
        yield from length_faults(backbone, params.finetune.max_tokens, targets, where)
    yield from _budget_faults(params, outlines)
    yield from fit_faults(params.finetune, params.tasks, params.runs, backbones)


def _draw_faults(tasks: Mapping[str, Task]) -> Iterator[str]:
    """Yields the tasks that read the rows of another task in another draw of the splits."""

    def without_seed(task: Task) -> Settings:
        return {key: value for key, value in task.source.items() if key != SPLIT_SEED}

    def draws(task: Task) -> list[int]:
        return task.split_seeds or [task.source.get(SPLIT_SEED, 0)]

    for (first, task), (second, other) in combinations(tasks.items(), 2):
        if draws(task) != draws(other) and without_seed(task) == without_seed(other):
            yield (
                f"tasks.{second}.source.{SPLIT_SEED}: {first} has the same rows in another draw; "
                "an average over tasks would treat them as independent; for several draws, write "
                "one task with `split_per_seed: true`"
            )


def _repetition_faults(runs: Mapping[str, Run]) -> Iterator[str]:
    """Yields the runs that repeat another run with the same seeds."""
    for (first, run), (second, other) in combinations(runs.items(), 2):
        if run == other:
            yield (
                f"{other.where(second)}: is the same as {run.where(first)}; to repeat a run, give "
                f"one entry several seeds (`seeds: [1, 2]`)"
            )


def _device_faults(params: Params) -> Iterator[str]:
    """Yields the faults of training on a CPU. GPUs are counted later, where pretraining runs."""
    trained = (r for r in params.runs.values() if name_of(r.objective) in OBJECTIVES.names())
    on_cpu = params.compute.device == "cpu" and any(map(trains, trained))
    if on_cpu and (reason := too_few_threads(params.compute, params.distributed)):
        yield f"distributed.devices: {reason}"


def _budget_faults(params: Params, outlines: Mapping[str, RunOutline]) -> Iterator[str]:
    matched, reference = params.budget.matched, params.budget.reference
    missing = [*unlisted(reference, params.runs, "pretrain.reference")]
    yield from missing
    if not missing and matched != "none":
        run = params.runs[reference]
        if name_of(run.objective) in OBJECTIVES.names() and not trains(run):
            yield f"pretrain.reference: {reference} trains nothing, so no run can match it"
    for outlined in outlines.values():
        backbone, run, faults = outlined.backbone, outlined.run, outlined.faults
        unknown = run.is_public and not run.as_published and backbone is None and not faults
        if matched == "flops" and unknown:
            yield (
                f"pretrain.matched: the operations of {outlined.key} are unknown before "
                f"{run.model['path']} is downloaded: match tokens, or use a folder with the "
                "checkpoint"
            )
        if matched == "parameters" and backbone is not None:
            try:
                matched_model(params, outlined.key, backbone)
            except ValueError as error:
                yield f"{outlined.where}.model: cannot be matched in parameters: {error}"
