"""What is read: the entries of ``corpora:``, ``tokenizers:``, ``tasks:`` and ``baselines:``."""

from collections.abc import Iterator, Mapping
from typing import Any

from stages.baselines._baseline import BASELINES
from stages.checking.entries import fault_of, name_of, unlisted
from stages.checking.public_checkpoints import checkpoint_faults
from stages.core.components import unknown
from stages.core.params import NONE, Corpus, Params, PublishedTokenizer, Task, Tokenizer
from stages.kinds._kind import KINDS, Kind
from stages.kinds._text_form import FORMS
from stages.sources._source import SOURCES
from stages.tasks._task import TASKS
from stages.text.tokenizer import NUM_SENTINELS, NUM_SPECIAL

MIXTURE = "tasks"  # the source that is made of the study's tasks
NUM_BYTES = 256  # the pieces that byte fallback needs


def corpus_faults(params: Params, corpus: Corpus, where: str) -> Iterator[str]:
    yield from _source_faults(corpus.source, f"{where}.source", None)
    yield from _mixture_faults(params, corpus.source, f"{where}.source")
    if name_of(corpus.source) == MIXTURE and corpus.decontaminate_against != NONE:
        yield (
            f"{where}.decontaminate_against: must be {NONE} for a corpus of tasks: it "
            "leaves out the rows that are tested on, and a row without a sentence is none"
        )


def tokenizer_faults(
    params: Params, tokenizer: Tokenizer | PublishedTokenizer, where: str
) -> Iterator[str]:
    if isinstance(tokenizer, PublishedTokenizer):
        yield from checkpoint_faults(tokenizer.path, tokenizer.revision, where)
        return
    yield from unlisted(tokenizer.corpus, params.corpora, f"{where}.corpus")
    least = NUM_SPECIAL + NUM_SENTINELS + (NUM_BYTES if tokenizer.algorithm != "char" else 0)
    if tokenizer.vocab_size <= least:
        yield f"{where}.vocab_size: must be more than {least}, not {tokenizer.vocab_size}"


def task_faults(params: Params, task: Task, where: str) -> Iterator[str]:
    yield from _source_faults(task.source, f"{where}.source", KINDS.get(name_of(task.task)))
    yield from fault_of(lambda: _check_task(params, task.task, f"{where}.task"))
    for budget in params.finetune.label_budgets:
        if budget != "all" and task.num_train != "all" and int(budget) > int(task.num_train):
            yield f"finetune.label_budgets: {budget} is more than {where}.num_train"


def baseline_faults(params: Params, baseline: Mapping[str, Any], where: str) -> Iterator[str]:
    faults = [*fault_of(lambda: BASELINES.build(baseline, where=where))]
    yield from faults
    if not faults:
        fits = BASELINES.find(baseline["name"], where=where).fits  # type: ignore[attr-defined]
        if not any(name_of(task.task) in fits for task in params.tasks.values()):
            yield f"{where}: fits {', '.join(fits)}, and no task of the study is one"


def _source_faults(source: Mapping[str, Any], where: str, kind: Kind | None) -> Iterator[str]:
    """Those of the settings, and those that the beginnings of the files show."""
    try:
        built = SOURCES.build(source, where=where)
    except ValueError as error:
        yield str(error)
        return
    try:
        built.check(kind)
    except ValueError as error:
        yield f"{where}: {error}"


def _mixture_faults(params: Params, source: Mapping[str, Any], where: str) -> Iterator[str]:
    """Of tasks that a corpus is made of."""
    named = source.get("tasks") if name_of(source) == MIXTURE else None
    for task in named if isinstance(named, list) else ():
        if task not in params.tasks:
            yield f"{where}.tasks: {unknown(str(task), params.tasks)}"
        elif (kind := name_of(params.tasks[task].task)) not in FORMS:
            yield f"{where}.tasks: {task} is {kind}, which has no answer to write"


def _check_task(params: Params, entry: Mapping[str, Any], where: str) -> None:
    settings = TASKS.settings(entry, where=where)
    assert name_of(entry) in KINDS
    task: Any = TASKS.find(name_of(entry), where=where)
    try:
        task.check(params.finetune.max_tokens, **settings)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
