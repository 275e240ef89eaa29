"""Finds the faults of params.yaml, rule by rule."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from stages.checking.entries import name_of, unlisted
from stages.checking.inputs import baseline_faults, corpus_faults, task_faults, tokenizer_faults
from stages.checking.methods import fit_faults
from stages.checking.outlines import RunOutline, outline_runs
from stages.checking.runs import run_faults
from stages.core.components import Settings
from stages.core.params import NAME, Params, Run, Task
from stages.evaluation.records import CLASSICAL
from stages.matching.budget import matched_model, trains
from stages.models._backbone import Backbone
from stages.objectives._objective import OBJECTIVES
from stages.sources._columns import SPLIT_SEED
from stages.tasks._task import TASKS
from stages.training.ranks import too_few_threads

SETTING = re.compile(rf"\bpretrain\.(?:runs|continued)\.({NAME})\.(\w+)(?:\.(\w+))?")
# Settings of ``training``, each with the other setting that limits its value.
TOGETHER = {"micro_batch_rows": "batch_rows", "num_validations": "num_steps"}


def find_faults(params: Params) -> Iterator[str]:
    """Yields one line for each fault, beginning with the fault's path in params.yaml."""
    for key, corpus in params.corpora.items():
        yield from corpus_faults(params.tasks, corpus, f"corpora.{key}")
    for key, tokenizer in params.tokenizers.items():
        yield from tokenizer_faults(params.corpora, tokenizer, f"tokenizers.{key}")
    for key, task in params.tasks.items():
        yield from task_faults(params.finetune, task, f"tasks.{key}")
    yield from _draw_faults(params.tasks)
    outlines = outline_runs(params.runs, params.tokenizers)
    yield from _told_once(params.runs, [*_faults_of_runs(params, outlines)])
    for key, baseline in params.baselines.items():
        yield from baseline_faults(params.tasks, baseline, f"baselines.{key}")
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
    targets = _target_lengths(params.tasks)
    for key, backbone in backbones.items():
        where = f"{outlines[key].where}.model"
        yield from length_faults(backbone, params.finetune.max_tokens, targets, where)
    yield from _budget_faults(params, outlines)
    yield from fit_faults(params.finetune, params.tasks, params.runs, backbones)


def _draw_faults(tasks: Mapping[str, Task]) -> Iterator[str]:
    """Yields a fault for each pair of tasks with the same rows in different draws of the splits."""

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
    """Yields a fault for each run that equals another run, seeds included."""
    for (first, run), (second, other) in combinations(runs.items(), 2):
        if run == other:
            yield (
                f"{other.where(second)}: is the same as {run.where(first)}; to repeat a run, give "
                f"one entry several seeds (`seeds: [1, 2]`)"
            )


def _device_faults(params: Params) -> Iterator[str]:
    """Yields a fault if ``compute.threads`` of a CPU are too few for ``distributed.devices``. GPUs
    are counted later, on the machine that pretrains."""
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
            yield (
                f"pretrain.reference: {reference} trains nothing, so no run can match it; name a "
                "run that trains, or set `pretrain.matched: none`"
            )
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


def _target_lengths(tasks: Mapping[str, Task]) -> dict[str, int]:
    """Returns ``max_target_tokens`` of each valid task that writes text, by the task's path."""
    lengths = {}
    for key, task in tasks.items():
        where = f"tasks.{key}.task"
        try:
            kind = TASKS.find(name_of(task.task), where=where)
            settings = TASKS.settings(task.task, where=where)
        except ValueError:  # reported by task_faults
            continue
        if kind.generates:
            lengths[where] = settings["max_target_tokens"]
    return lengths


def length_faults(
    backbone: Backbone, max_tokens: int, targets: Mapping[str, int], where: str
) -> Iterator[str]:
    """Yields a fault if inputs of ``finetune.max_tokens`` are too long for the model, alone or
    together with the text that a task writes (``targets`` has the lengths)."""
    if reason := backbone.too_long(max_tokens):
        yield f"finetune.max_tokens: {reason} ({where})"
        return
    for task, length in targets.items() if backbone.can_generate else ():
        if reason := backbone.too_long(max_tokens, max_target_tokens=length):
            yield f"{task}.max_target_tokens: {reason} ({where})"


def _told_once(runs: Mapping[str, Run], faults: Sequence[str]) -> Iterator[str]:
    """Yields the faults of runs, each fault of a shared setting only once.

    If a run takes the faulty setting over from ``pretrain.training``, the fault names that section.
    If it takes the setting over from the first run, which has the same fault, only the first run's
    fault is yielded.
    """

    def in_training(setting: re.Match[str]) -> str:
        """Returns a setting's path: in ``pretrain.training`` if the run takes it from there."""
        name, section, key = setting.groups()
        if section != "training" or key is None:
            return setting[0]
        by_the_run = runs[name].training.model_fields_set
        is_own = key in by_the_run or TOGETHER.get(key) in by_the_run
        return setting[0] if is_own else f"pretrain.training.{key}"

    first_name, first = next(iter(runs.items()))

    def in_first_run(setting: re.Match[str]) -> str:
        """Returns a setting's path: in the first run if the run takes it from there."""
        name, key, _ = setting.groups()
        run = runs[name]
        if key in run.model_fields_set or getattr(run, key) != getattr(first, key):
            return setting[0]
        return setting[0].replace(run.where(name), first.where(first_name), 1)

    stated = dict.fromkeys(SETTING.sub(in_training, fault) for fault in faults)
    for fault in stated:
        shared = SETTING.sub(in_first_run, fault)
        if shared == fault or shared not in stated:
            yield fault
