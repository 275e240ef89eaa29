"""Faults of the entries of ``corpora:``, ``tokenizers:``, ``tasks:`` and ``baselines:``."""

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product

from stages.baselines._baseline import BASELINES, Baseline, kind_of_source
from stages.checking.entries import fault_of, file_errors, name_of, unlisted
from stages.checking.public_checkpoints import checkpoint_faults
from stages.core.components import Settings, below, file_of, unknown
from stages.core.params import NONE, Corpus, Finetune, PublishedTokenizer, Task, Tokenizer
from stages.evaluation.metrics import METRICS, metric_of
from stages.kinds._kind import KINDS, Kind, most_rows
from stages.sources._columns import SCHEMA, SPLIT_SEED
from stages.sources._source import SOURCES, Source
from stages.tasks._task import TASKS
from stages.text.tokenizer import NUM_SENTINELS, NUM_SPECIAL

NUM_BYTES = 256  # pieces for byte fallback, one for each byte


def corpus_faults(tasks: Mapping[str, Task], corpus: Corpus, where: str) -> Iterator[str]:
    try:
        source = _source(corpus.source, f"{where}.source", None)
    except ValueError as error:
        yield str(error)
        return
    kinds = {key: kind for key, task in tasks.items() if (kind := _kind(task))}
    decontaminated = corpus.decontaminate_against != NONE
    for fault in source.corpus_faults(kinds, decontaminated=decontaminated):
        yield f"{where}.{fault}"


def tokenizer_faults(
    corpora: Collection[str], tokenizer: Tokenizer | PublishedTokenizer, where: str
) -> Iterator[str]:
    if isinstance(tokenizer, PublishedTokenizer):
        yield from checkpoint_faults(tokenizer.path, tokenizer.revision, where)
        return
    yield from unlisted(tokenizer.corpus, corpora, f"{where}.corpus")
    least = NUM_SPECIAL + NUM_SENTINELS + (NUM_BYTES if tokenizer.algorithm != "char" else 0)
    if tokenizer.vocab_size <= least:
        yield f"{where}.vocab_size: must be more than {least}, not {tokenizer.vocab_size}"


def task_faults(finetune: Finetune, task: Task, where: str) -> Iterator[str]:
    yield from fault_of(lambda: _check_source(task, finetune.label_budgets, where))
    place, max_tokens = f"{where}.task", finetune.max_tokens
    yield from fault_of(lambda: _check_task(task.task, place, max_tokens=max_tokens))
    if task.split_seeds:
        yield from fault_of(lambda: _check_draws(task, where))
        if finetune.screen:
            yield (
                f"{where}.split_per_seed: not with finetune.screen, whose estimates read rows of "
                "one draw that other draws test on"
            )
    for budget in finetune.label_budgets:
        if budget != "all" and task.num_train != "all" and int(budget) > int(task.num_train):
            yield f"finetune.label_budgets: {budget} is more than {where}.num_train"


def baseline_faults(tasks: Mapping[str, Task], baseline: Settings, where: str) -> Iterator[str]:
    faults = [*fault_of(lambda: BASELINES.build(baseline, where=where))]
    yield from faults
    if not faults:
        fits = BASELINES.find(baseline["name"], where=where).fits
        for kind in fits:
            if kind not in KINDS:
                yield f"{where}.name: fits the kind {unknown(kind, KINDS)}"
        if not any(kind.name in fits for task in tasks.values() if (kind := _kind(task))):
            yield f"{where}: fits {', '.join(fits)}, but no task of the study has such rows"
        else:
            baseline_of_files = BASELINES.build(baseline, where=where)
            yield from fault_of(lambda: _check_files(tasks, baseline_of_files, where))


def _check_files(tasks: Mapping[str, Task], baseline: Baseline, where: str) -> None:
    """Raises ValueError for a baseline's file whose task has a kind of rows that the baseline does
    not fit, or that cannot be read with the settings of the task's source."""
    with below(where):
        files = baseline.files([*tasks]) or {}
        for task, file in files.items():
            kind = _kind(tasks[task])
            if kind is None:  # reported by task_faults
                continue
            if kind.name not in baseline.fits:
                raise ValueError(f"path: {file}: {kind.name} has no predictions to compare")
            baseline.check_file(file, kind_of_source(kind, tasks[task].source))


def _kind(task: Task) -> Kind | None:
    """Returns the kind of a task's rows, or None for an unknown task (see ``task_faults``)."""
    with suppress(ValueError):
        return getattr(TASKS.find(name_of(task.task), where=""), "kind", None)
    return None


def _check_source(task: Task, label_budgets: Iterable[int | str], where: str) -> None:
    """Raises ValueError for a source with invalid settings or broken files, and for files with
    fewer rows to train on than the largest label budget. Stops reading at that number of rows."""
    kind = _kind(task)
    source = _source(task.source, f"{where}.source", kind)
    budgets = [int(budget) for budget in label_budgets if budget != "all"]
    if kind is None or not source.is_local or task.num_train != "all" or not budgets:
        return
    num_rows = 0
    try:
        with file_errors("path"):
            for example in source.examples(kind):
                num_rows += example.split == "train"
                if num_rows >= max(budgets):
                    return
    except ValueError as error:
        raise ValueError(f"{where}.source: {error}") from None
    most_rows(budgets, num_rows, task=where.removeprefix("tasks."))


def _source(entry: Settings, where: str, kind: Kind | None) -> Source:
    """Returns the source of ``entry`` after checking its settings and the beginnings of its files.

    Raises ValueError if they are invalid.
    """
    if "path" not in inspect.signature(SOURCES.find(name_of(entry), where=where)).parameters:
        raise ValueError(
            f"{where}.name: stages/sources/{name_of(entry)}.py takes no `path`, the file or folder "
            "that dvc.yaml makes the stages depend on; see stages/sources/_source.py"
        )
    with file_errors(f"{where}.path"):
        source = SOURCES.build(entry, where=where)
    try:
        with file_errors("path"):
            source.check(kind)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return source


def _check_draws(task: Task, where: str) -> None:
    """Raises ValueError unless the source can draw splits by a seed and there are several seeds."""
    source = SOURCES.find(name_of(task.source), where=f"{where}.source")
    where = f"{where}.split_per_seed"
    if getattr(source, "schema", None) is not SCHEMA:
        raise ValueError(f"{where}: only the sources files and hub draw splits by a seed")
    if SPLIT_SEED in task.source:
        raise ValueError(f"{where}: seeds draw the splits; leave out source.{SPLIT_SEED}")
    if not source.draws_test(task.source):
        raise ValueError(
            f"{where}: the test rows are given or drawn by time, the same for every seed; leave it "
            "out"
        )
    if len(task.split_seeds or ()) < 2:
        raise ValueError(
            f"{where}: needs several draws, but finetune.seeds lists one seed; five are good"
        )


def _check_task(entry: Settings, where: str, *, max_tokens: int) -> None:
    """Raises ValueError for invalid settings, for unknown metrics, and for a task class without
    ``kind``, or with another ``kind`` than the one of the task's name, if there is one."""
    settings, values = TASKS.settings(entry, where=where), TASKS.tried(entry, where=where)
    task = TASKS.find(name_of(entry), where=where)
    named: Kind | None = getattr(task, "kind", None)
    if named is None or (name_of(entry) in KINDS and named.name != name_of(entry)):
        raise ValueError(
            f"{where}.name: stages/tasks/{name_of(entry)}.py must set `kind` to a kind of rows "
            "(stages/kinds), to the one of its own name if there is one"
        )
    for metric in dict.fromkeys([*named.metric_names, *named.compared_by(settings)]):
        try:
            metric_of(metric)
        except KeyError:
            raise ValueError(
                f"{where}.name: {file_of(type(named))}: metrics: {unknown(metric, METRICS)}; a "
                "metric of its own is a Metric"
            ) from None
    try:
        for combination in product(*values.values()):
            one = dict(zip(values, combination, strict=True))
            task.check(max_tokens, **{**settings, **one})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
