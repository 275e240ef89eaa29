"""A pretrained run and a task: what all their trials start from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from torch import nn

from stages.core import paths
from stages.core.artifacts import Json, read_json
from stages.core.params import NONE, Finetune
from stages.core.seeding import derive, stream, torch_stream
from stages.kinds._kind import labelled_rows
from stages.kinds._text_form import label_words
from stages.methods._method import Method, Predictor, PromptMethod, Row
from stages.models._backbone import MODELS, Backbone, draw_weights, outline
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS, Task
from stages.tasks._text_to_text import TextToText
from stages.tasks._writing import Writing
from stages.training.checkpoint import WEIGHTS, load_weights
from stages.trials.variants import Variant, readings, variants


class TrialSetup:
    """The tokenizer and the weights of a run, and the task as ``prepare_task`` wrote it, with the
    settings of a ``variant`` of its trials or, of several values that its entry lists, with the
    first; with ``text_to_text`` its answers are generated.

    Raises ValueError if run or task is missing.
    """

    def __init__(
        self,
        run_key: str,
        task_key: str,
        *,
        max_tokens: int,
        text_to_text: bool = False,
        variant: Variant | None = None,
    ) -> None:
        self.run_key, self.task_key, self.max_tokens = run_key, task_key, max_tokens
        self.text_to_text, self.variant = text_to_text, variant or Variant()
        self.pretrained = paths.PRETRAINED / run_key
        self.examples = paths.examples(task_key)
        self.run_record = _record(self.pretrained / "run.json")
        self.task_record = _record(self.examples / "task.json")
        self._where = f"pretrain.{run_key}.model"
        model = self.run_record["model"]
        kind = MODELS.find(model["name"], where=self._where)
        self.tokenizer = kind.tokenizer_of(model, self.pretrained)
        self.task = self._task()

    def of(self, variant: Variant) -> "TrialSetup":
        """Returns the set-up of the same run and task with the settings of ``variant``."""
        other = copy(self)
        other.variant = variant
        other.task = other._task()
        return other

    def variants(self, finetune: Finetune, method: str) -> list[Variant]:
        """Returns the variants of the trials with a method of ``finetune.methods``."""
        return variants(
            finetune,
            method,
            self.task_record["task"],
            self.outline(),
            has_prefix=self.run_record["has_prefix"],
            from_scratch=self.from_scratch,
            where=f"tasks.{self.task_key}.task",
        )

    def readings(self) -> list[Json]:
        """Returns the combinations of values that the task tries with this run."""
        return readings(
            self.task_record["task"],
            self.outline(),
            has_prefix=self.run_record["has_prefix"],
            where=f"tasks.{self.task_key}.task",
        )

    def _task(self) -> Task:
        task: Task = TASKS.build(
            {**self.task_record["task"], **self.variant.task},
            self.task_record["labels"],
            self.tokenizer,
            self.max_tokens,
            where=f"tasks.{self.task_key}.task",
        )
        task.take_facts(self.task_record)
        if self.text_to_text:
            with self._below_task():
                task = TextToText(self.task_key, self.task_record, task)
            self._shorten(task)
        task.read_by(self.outline(), has_prefix=self.run_record["has_prefix"])
        return task

    @property
    def pretrain_seed(self) -> int:
        return self.run_record["settings"]["seed"]

    def seed_of(self, finetune_seed: int) -> int:
        """What a trial draws from: its head, order of examples, dropout, shots.

        It comes from both seeds. If runs of several pretraining seeds shared these draws, the
        variance between the runs would leave them out.
        """
        return derive(self.pretrain_seed, "trial", finetune_seed)

    @property
    def from_scratch(self) -> bool:
        """As ``Run.from_scratch``."""
        return self.run_record["objective"] == self.run_record["settings"]["parent"] == NONE

    def label_words(self) -> dict[str, str]:
        """The verbaliser of each label.

        Raises ValueError for labels with the same verbaliser, or without tokens.
        """
        with self._below_task():
            given = self.task_record["task"].get("verbalisers", ())
            words = label_words(self.task_record["labels"], given)
            for word, ids in zip(
                words.values(), self.tokenizer.encode([*words.values()]), strict=True
            ):
                if not ids:
                    raise ValueError(f"verbalisers: {word!r} has no tokens in this vocabulary")
        return words

    @contextmanager
    def _below_task(self) -> Iterator[None]:
        """Name the task's settings in a ValueError raised inside."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"tasks.{self.task_key}.task.{error}") from None

    def labelled(self, rows: Sequence[Row], budget: str, *, seed: int) -> list[Row]:
        """Those of train's ``rows`` that a trial with this label budget and seed learns from.

        Raises ValueError if there are fewer.
        """
        return labelled_rows(
            rows,
            budget,
            self.task.kind,
            pretrain_seed=self.pretrain_seed,
            finetune_seed=seed,
            task=self.task_key,
        )

    def backbone(self, *, seed: int, num_added_tokens: int = 0) -> Backbone:
        """The run's model with the weights that a trial of this seed starts from: those of the
        checkpoint or, from scratch, its own draw, which is the same for every variant but for the
        biases that make self-attention local.

        Raises ValueError if it has no positions for ``max_tokens`` and the added tokens.
        """
        model, vocab_size = self.run_record["model"], self.tokenizer.vocab_size
        backbone = MODELS.build(model, vocab_size, where=self._where)
        if reason := backbone.too_long(self.max_tokens, num_added_tokens=num_added_tokens):
            raise ValueError(f"finetune.max_tokens: {reason} ({self._where})")
        if self.from_scratch:
            draw_weights(backbone, seed, seed=self.pretrain_seed)
            if self.variant.initial_weights == "usual":
                backbone.drop_locality()
        else:
            load_weights(backbone, self.pretrained / WEIGHTS)
        return backbone

    def outline(self) -> Backbone:
        """The run's model without storage for its weights."""
        return outline(self.run_record["model"], self.tokenizer.vocab_size, where=self._where)

    def headed(self, *, seed: int, num_added_tokens: int = 0) -> ModelWithHead:
        """The backbone of a trial of this seed with a newly initialised head."""
        backbone = self.backbone(seed=seed, num_added_tokens=num_added_tokens)
        if isinstance(self.task, Writing):
            target = self.task.max_target_tokens
            if reason := backbone.too_long(self.max_tokens, max_target_tokens=target):
                task = f"tasks.{self.task_key}.task"
                raise ValueError(f"{task}.max_target_tokens: {reason} ({self._where})")
        elif not self.task.scores_text:
            backbone.drop_output_layers()
        with self._below_task():
            head = self.task.head(backbone)
        initialise_head(head, generator=torch_stream(self.seed_of(seed), "head"))
        return ModelWithHead(backbone, head)

    def _shorten(self, task: TextToText) -> None:
        """Limit answers, whose length no setting gives, to the positions that the run has.

        Raises ValueError if that is too short for a label.
        """
        backbone = self.outline()
        most, written = backbone.max_positions, task.max_target_tokens
        if most is None:
            return
        task.max_target_tokens -= max(backbone.positions_taken(self.max_tokens, written) - most, 0)
        if task.max_target_tokens < task.shortest_answer:
            raise ValueError(
                f"finetune.max_tokens: {self.max_tokens} leaves {max(task.max_target_tokens, 0)} "
                f"of the {most} positions of {self._where} for an answer of {self.task_key} as "
                f"text, which takes {task.shortest_answer}"
            )

    def adapted(self, method: Method, *, seed: int) -> ModelWithHead:
        """The model that a trial of this method and seed starts from, without a head for a prompt
        method."""
        if isinstance(method, PromptMethod):
            model = ModelWithHead(self.backbone(seed=seed), nn.Identity())
        else:
            model = self.headed(seed=seed, num_added_tokens=method.num_added_tokens)
        method.apply(model, generator=torch_stream(self.seed_of(seed), "method"))
        return model

    def predictor(self, method: Method, rows: Sequence[Row], *, seed: int, where: str) -> Predictor:
        """The predictor of a prompt method from the labelled ``rows`` of a trial of this seed.

        Raises ValueError for labels and settings that are incompatible; ``where`` is the method's
        path in params.yaml.
        """
        assert isinstance(method, PromptMethod), "other methods leave prediction to the task"
        words, tokenizer = self.label_words(), self.task.tokenizer
        try:
            found = method.predictor(
                words, tokenizer, self.max_tokens, rows, rng=stream(self.seed_of(seed), "shots")
            )
        except ValueError as error:
            raise ValueError(f"{where}.{error}") from None
        found.has_prefix = self.run_record["has_prefix"]
        return found


def _record(path: Path) -> Json:  # JSON
    if not path.is_file():
        raise ValueError(f"{path}: missing; run `dvc repro`")
    return read_json(path)
