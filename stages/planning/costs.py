"""The work of each training, from params.yaml: weights x tokens, three times for a training step.

Work only scales times that were measured for trainings of the same kind, so constant factors do not
matter. In a trial, token embeddings count as nothing: looking them up multiplies nothing.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, product
from statistics import fmean
from typing import NamedTuple

from stages.budgets.budget import public_outline, trains, vocabulary_for
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import AnyTokenizer, Method, Model, Params, TaskEntry
from stages.methods._method import METHODS, SolvedMethod, TrainedMethod
from stages.models._backbone import Backbone, outline
from stages.sources._source import SOURCES
from stages.tasks._cells import SPACELESS, Row
from stages.tasks._task import TASKS
from stages.tasks._task import Task as TaskKind
from stages.training.finetuning import max_epochs, steps_per_epoch
from stages.training.pretraining import VALIDATION_ROWS
from stages.trials.compatibility import incompatibility
from stages.trials.groups import trial_groups
from stages.trials.runner import method_of

PRETRAINING = "pretraining"
# Of a token that is written, alone, in the time of so many that are read: measured with models of
# 1.3 million weights that write 64 texts at once. Large ones write faster than that.
WRITING = 10
PASSES = 3  # of a training step: forward, and backward to states and to weights
SAMPLED_ROWS, MAX_COUNTED = 300, 50_000  # most rows whose words are counted; most rows counted
ASSUMED_ROWS = 1000  # of a task that takes all rows of a source that is not read yet
# Measured on English captions, with a tokenizer trained on documentation, and on English questions,
# reviews and documentation with a published one.
TOKENS_PER_WORD, TOKENS_PER_WORD_PUBLISHED = 2.2, 1.3
MARKS = 3  # around a question and a window of its context
# A word, or a letter of a script whose words have no blanks between them.
WORD = re.compile(rf"[{chr(SPACELESS)}-\U0010ffff]|[^\s{chr(SPACELESS)}-\U0010ffff]+")


class Task(NamedTuple):
    """The kind of a training: those of one kind do about equally much work per second."""

    work: str  # PRETRAINING, or a method of finetune.methods
    architecture: str
    d_model: int


@dataclass
class Cost:
    """The pending trainings of one model, or of one model on one task with one method."""

    model: str
    task: str = ""  # empty for pretraining
    method: str = ""
    kind: Task | None = None  # None: a public checkpoint that is not downloaded
    weights: int | None = None
    multiplied: int = 0  # weights without the token embeddings
    works: dict[CheckpointKey | TrialKey, float] = field(default_factory=dict)  # of what would run
    steps: int = 0  # of pretraining
    seconds: float | None = None  # of all trainings, one after the other; None if unknown

    @property
    def work(self) -> float:
        return sum(self.works.values())


def backbone_of(entry: Model, tokenizers: Mapping[str, AnyTokenizer]) -> Backbone | None:
    """Returns the model without storage for weights, or None for a public checkpoint that is
    not downloaded."""
    if entry.is_hub:
        return public_outline(entry, where="architecture")
    vocabulary = vocabulary_for(tokenizers[entry.tokenizer])
    assert vocabulary is not None
    return outline(entry.architecture, vocabulary.vocab_size, where="architecture")


def num_weights(backbone: Backbone) -> int:
    return sum(weight.numel() for weight in backbone.parameters())


def num_multiplied(backbone: Backbone) -> int:
    """Returns the number of weights without the table of token embeddings."""
    table = sum(weight.numel() for weight in backbone.token_embedding.parameters())
    return num_weights(backbone) - table


def pretrainings(study: Params, missing: Mapping[str, Sequence[int]]) -> list[Cost]:
    """Returns the cost of each model of a study under the matched budget, of the seeds that are
    ``missing``."""
    costs = []
    for key, entry in study.models.items():
        seeds, training, cost = missing[key], entry.training, Cost(key)
        if (backbone := backbone_of(entry, study.tokenizers)) is not None:
            cost.weights = num_weights(backbone)
            cost.kind = Task(PRETRAINING, backbone.architecture, backbone.d_model)
        if trains(entry):
            rows = training.num_steps * training.batch_rows * PASSES
            rows += training.num_validations * VALIDATION_ROWS
            work = float((cost.weights or 0) * rows * training.max_tokens * len(training.rates))
            cost.works = {CheckpointKey(key, seed): work for seed in seeds}
            cost.steps = len(seeds) * training.num_steps * len(training.rates)
        costs.append(cost)
    return costs


def finetunings(study: Params, stored: Collection[TrialKey] = ()) -> list[Cost]:
    """Returns the cost of each compatible combination of model, task and method in a study under
    the matched budget, without the trials in ``stored``."""
    tune, costs = study.finetune, []
    backbones = {key: backbone_of(model, study.tokenizers) for key, model in study.models.items()}
    texts = {key: Texts.of(key, task, tune.max_tokens) for key, task in study.tasks.items()}
    for (key, model), (task, settings) in product(study.models.items(), study.tasks.items()):
        backbone, of_task = backbones[key], settings.task["name"]
        read = texts[task][model.is_hub]
        for name in tune.methods_of(key):
            method, entry, cost = method_of(tune, name), tune.methods[name].of(key), Cost(key)
            cost.task, cost.method = task, name
            if backbone is not None:
                cls, as_text = TASKS.find(of_task, where=""), entry.text_to_text
                if incompatibility(method, cls, of_task, backbone, text_to_text=as_text):
                    continue
                cost.weights, cost.multiplied = num_weights(backbone), num_multiplied(backbone)
                cost.kind = Task(name, backbone.architecture, backbone.d_model)
            for seed in model.seeds:
                for group in trial_groups(
                    tune, CheckpointKey(key, seed), task, [name], from_scratch=model.from_scratch
                ):
                    missing = [trial for trial in group if trial not in stored]
                    for trial in missing:
                        amount = Amount.of(entry, trial, read)
                        # A frozen model predicts once for all trials of a group.
                        predicted = amount.predicted if trial is missing[0] else 0
                        solved = amount.labels * isinstance(method, SolvedMethod)
                        tokens = read.work(solved + PASSES * amount.trained, predicted)
                        cost.works[trial] = cost.multiplied * tokens
            costs.append(cost)
    return costs


class Amount(NamedTuple):
    """The numbers of examples and steps of a trial, over all learning rates."""

    labels: int
    trained: int  # in all steps
    predicted: int  # of validation and test
    steps: int
    tested: int

    @staticmethod
    def of(entry: Method, trial: TrialKey, texts: "Texts") -> "Amount":
        rows_labelled = texts.train if trial.label_budget == "all" else int(trial.label_budget)
        labels, validated, tested = (
            round(number * texts.examples)
            for number in (rows_labelled, texts.validation, texts.test)
        )
        if (training := entry.training) is None:
            return Amount(labels, 0, validated + tested, 0, tested)
        # With all epochs, as if ``patience`` ended no training; each epoch is validated.
        method = METHODS.build(entry.method, where=f"finetune.methods.{trial.method}.method")
        assert isinstance(method, TrainedMethod), "the root stage refuses training of others"
        examples, rows = method.epoch_size(labels)
        epochs = max_epochs(training, examples) * len(training.rates)
        steps, read = epochs * steps_per_epoch(training, examples), epochs * validated
        read += epochs * labels * (method.probe is not None)  # states that the head is fitted to
        return Amount(labels, epochs * examples * rows, read + tested, steps, tested)


class Texts(NamedTuple):
    """The numbers of rows of a task, of a row's examples and of an example's tokens for a model."""

    train: int
    validation: int
    test: int
    examples: float  # mean of a row: more than one if a long context is read in windows
    tokens: float  # mean of an example, with the text to write
    written: int  # at most, of an example

    def work(self, rows: float, predicted: float) -> float:
        """Returns the tokens that are read of ``rows`` and of ``predicted`` ones, and the written
        ones as if they were read."""
        return self.tokens * (rows + predicted) + WRITING * self.written * predicted

    @staticmethod
    def of(task: str, entry: TaskEntry, max_tokens: int) -> "tuple[Texts, Texts]":
        """Returns the texts as a tokenizer of this project reads them, and as a published one does.

        Counts rows that are prepared, else those of a source that is quick to read; else a row has
        ``max_tokens``, and ``all`` rows are ASSUMED_ROWS.
        """
        counts, words = dict[str, int](), list[list[int]]()
        with suppress(ValueError, OSError, KeyError):
            counts, words = _prepared(task, entry) or _first_rows(entry)
        stated = {"train": entry.num_train, "validation": entry.num_validation}
        numbers = {
            split: counts.get(split, ASSUMED_ROWS) if number == "all" else int(number)
            for split, number in (stated | {"test": entry.num_test}).items()
        }
        chosen = TASKS.settings(entry.task, where="")
        stride, written = chosen.get("stride", 0), chosen.get("max_target_tokens", 0)
        most = chosen.get("max_question_tokens", max_tokens)  # a longer question is cut

        def read(tokens_per_word: float) -> Texts:
            examples, tokens = [1.0], [float(max_tokens + written)]
            if words:
                rows = [(tokens_per_word * sum(row), tokens_per_word * row[-1]) for row in words]
                examples = [
                    _windows(min(row - last, most), last, max_tokens, stride) for row, last in rows
                ]
                tokens = [min(2 + row, max_tokens + written) for row, _ in rows]
            means = {"examples": fmean(examples), "tokens": fmean(tokens)}
            return Texts(**numbers, **means, written=written)

        return read(TOKENS_PER_WORD), read(TOKENS_PER_WORD_PUBLISHED)


def _windows(question: float, context: float, max_tokens: int, stride: int) -> int:
    """Returns the number of windows in which a context is read; 1 without a stride."""
    new = max(max_tokens - question - MARKS - stride, 1)  # tokens of a window that no other has
    return max(math.ceil((context - stride) / new), 1) if stride else 1


def _prepared(name: str, entry: TaskEntry) -> tuple[dict[str, int], list[list[int]]] | None:
    """Returns the number of rows of each split, and the words of each text of some rows; None if
    the task is not prepared."""
    path = paths.examples(name) / "task.json"
    if not path.is_file() or (record := read_json(path))["task"]["name"] != entry.task["name"]:
        return None
    rows = read_jsonl(path.parent / "train.jsonl")[:SAMPLED_ROWS]
    return record["num_examples"], [_words_of(TASKS[record["kind"]], row) for row in rows]


def _first_rows(entry: TaskEntry) -> tuple[dict[str, int], list[list[int]]]:
    kind, source = TASKS[entry.task["name"]], SOURCES.build(entry.source, where="source")
    counts, words = dict.fromkeys(("train", "validation", "test"), 0), list[list[int]]()
    if not source.is_local:
        return {}, words
    for example in islice(source.examples(kind), MAX_COUNTED):
        counts[example.split] += 1
        if example.split == "train" and len(words) < SAMPLED_ROWS:
            words.append(_words_of(kind, {"id": example.id, **kind.prepared(example.row)}))
    return counts, words


def _words_of(kind: TaskKind, row: Row) -> list[int]:
    """Returns the words of the row's texts, and of the one that is to be written."""
    return num_words([*kind.texts(row), *([row[kind.target]] if kind.generates else [])])


def num_words(texts: Sequence[str]) -> list[int]:
    return [sum(1 for _ in WORD.finditer(text)) for text in texts]
