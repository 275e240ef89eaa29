"""Faults of the entries of ``corpora:``, ``tokenizers:``, ``tasks:`` and ``baselines:``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations

from stages.baselines._baseline import BASELINES, Baseline, kind_of_source
from stages.checking.models import checkpoint_faults
from stages.checking.outlines import Outlines, fault_of, file_errors, name_of, unlisted
from stages.core.components import Settings, below
from stages.core.params import NONE, Params, PublishedTokenizer, TaskEntry
from stages.sources._columns import SCHEMA, SPLIT_SEED
from stages.sources._source import SOURCES, Source
from stages.tasks._task import TASKS, Task
from stages.text.tokenizer import NUM_SENTINELS, NUM_SPECIAL

NUM_BYTES = 256  # pieces for byte fallback, one for each byte


def corpus_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    kinds = {key: kind for key, task in params.tasks.items() if (kind := _kind(task))}
    for key, corpus in params.corpora.items():
        try:
            source = _source(corpus.source, f"corpora.{key}.source", None)
        except ValueError as error:
            yield str(error)
            continue
        decontaminated = corpus.decontaminate_against != NONE
        for fault in source.corpus_faults(kinds, decontaminated=decontaminated):
            yield f"corpora.{key}.{fault}"


def tokenizer_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    for key, tokenizer in params.tokenizers.items():
        where = f"tokenizers.{key}"
        if isinstance(tokenizer, PublishedTokenizer):
            yield from checkpoint_faults(tokenizer.path, tokenizer.revision, where)
            continue
        yield from unlisted(tokenizer.corpus, params.corpora, f"{where}.corpus")
        least = NUM_SPECIAL + NUM_SENTINELS + (NUM_BYTES if tokenizer.algorithm != "char" else 0)
        if tokenizer.vocab_size <= least:
            yield f"{where}.vocab_size: must be more than {least}, not {tokenizer.vocab_size}"


def task_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    for key, task in params.tasks.items():
        yield from fault_of(_source, task.source, f"tasks.{key}.source", _kind(task))
        yield from fault_of(_check_task, task.task, params, f"tasks.{key}.task")
        if task.split_seeds:
            yield from fault_of(_check_draws, task, f"tasks.{key}")
        for budget in params.finetune.label_budgets:
            if "all" not in (budget, task.num_train) and int(budget) > int(task.num_train):
                yield f"finetune.label_budgets: {budget} is more than tasks.{key}.num_train"


def draw_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    """Yields a fault for each pair of tasks with the same rows in different draws of the splits."""

    def rows_and_draws(task: TaskEntry) -> tuple[Settings, list[int]]:
        rows = {name: value for name, value in task.source.items() if name != SPLIT_SEED}
        return rows, task.split_seeds or [task.source.get(SPLIT_SEED, 0)]

    for (first, one), (second, other) in combinations(params.tasks.items(), 2):
        (rows, draws), (other_rows, other_draws) = rows_and_draws(one), rows_and_draws(other)
        if rows == other_rows and draws != other_draws:
            yield (
                f"tasks.{second}.source.{SPLIT_SEED}: {first} has the same rows in another draw, "
                "so the two are not independent; write one task with `split_per_seed: true`"
            )


def baseline_faults(params: Params, outlines: Outlines) -> Iterator[str]:
    kinds = {key: _kind(task) for key, task in params.tasks.items()}
    for key, entry in params.baselines.items():
        where = f"baselines.{key}"
        if key in params.models:
            yield f"{where}: is also the name of a model; rename one of them"
        try:
            baseline = BASELINES.build(entry, where=where)
        except ValueError as error:
            yield str(error)
            continue
        if any(kind and kind.name in baseline.fits for kind in kinds.values()):
            yield from fault_of(_check_files, params, kinds, baseline, where)
        else:
            fits = ", ".join(baseline.fits)
            yield f"{where}: fits {fits}, but no task of the study has such rows"


def _check_files(
    params: Params, kinds: Mapping[str, Task | None], baseline: Baseline, where: str
) -> None:
    """Raises ValueError for a baseline's file if the baseline does not fit its task's kind of rows,
    or if the settings of the task's source cannot read it."""
    with below(where):
        for task, file in (baseline.files([*params.tasks]) or {}).items():
            kind = kinds[task]
            if kind is None:  # reported by task_faults
                continue
            if kind.name not in baseline.fits:
                raise ValueError(f"path: {file}: {kind.name} has no predictions to compare")
            baseline.check_file(file, kind_of_source(kind, params.tasks[task].source))


def _kind(task: TaskEntry) -> Task | None:
    """Returns the kind of a task's rows, or None for an unknown task (see ``task_faults``)."""
    name = name_of(task.task)
    return TASKS[name] if name in TASKS.names() else None


def _source(entry: Settings, where: str, kind: Task | None) -> Source:
    """Returns the source of ``entry`` after checking its settings and the beginnings of its files.

    Raises ValueError if they are invalid.
    """
    with file_errors(f"{where}.path"):
        source = SOURCES.build(entry, where=where)
    with _named(where), file_errors("path"):
        source.check(kind)
    return source


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _check_draws(task: TaskEntry, where: str) -> None:
    """Raises ValueError unless the source can draw splits by a seed and there are several seeds."""
    source = SOURCES.find(name_of(task.source), where=f"{where}.source")
    if getattr(source, "schema", None) is not SCHEMA:
        why = "only the sources files and hub draw splits by a seed"
    elif SPLIT_SEED in task.source:
        why = f"seeds draw the splits; leave out source.{SPLIT_SEED}"
    elif not source.draws_test(task.source):
        why = "the test rows are given or drawn by time, the same for every seed; leave it out"
    elif len(task.split_seeds or ()) < 2:
        why = "needs several draws, but finetune.seeds lists one seed; five are good"
    else:
        return
    raise ValueError(f"{where}.split_per_seed: {why}")


def _check_task(entry: Settings, params: Params, where: str) -> None:
    settings, task = TASKS.settings(entry, where=where), TASKS.find(name_of(entry), where=where)
    with _named(where):
        task.check(params.finetune.max_tokens, **settings)
