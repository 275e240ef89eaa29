"""A pretrained run and a task: what every trial of the two begins with."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from stages.core import paths
from stages.core.artifacts import read_json
from stages.core.seeding import stream, torch_stream
from stages.kinds._text_form import label_words
from stages.methods._method import Method, Predictor
from stages.models._backbone import MODELS, Backbone, outline
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._task import TASKS, Task
from stages.tasks._text_to_text import TextToText
from stages.tasks._writing import Writing
from stages.training.checkpoint import WEIGHTS, load_weights


class TrialSetup:
    """The tokenizer and the weights of a run, and the task as ``prepare_task`` left it, or with
    ``text_to_text`` as one of writing.

    Raises ValueError if one of the two is not there.
    """

    def __init__(
        self, run_key: str, task_key: str, *, max_tokens: int, text_to_text: bool = False
    ) -> None:
        self.run_key, self.task_key, self.max_tokens = run_key, task_key, max_tokens
        self.pretrained = paths.PRETRAINED / run_key
        self.examples = paths.examples(task_key)
        self.run_record = _record(self.pretrained / "run.json")
        self.task_record = _record(self.examples / "task.json")
        self._where = f"pretrain.{run_key}.model"
        model = self.run_record["model"]
        kind: Any = MODELS.find(model["name"], where=self._where)
        self.tokenizer = kind.tokenizer_of(model, self.pretrained)
        self.task: Task = TASKS.build(
            self.task_record["task"],
            self.task_record["labels"],
            self.tokenizer,
            max_tokens,
            where=f"tasks.{task_key}.task",
        )
        if text_to_text:
            with self._below_task():
                self.task = TextToText(task_key, self.task_record, self.task)
            self._shorten(self.task)
        self.task.has_prefix = self.run_record["has_prefix"]

    def label_words(self) -> dict[str, str]:
        """What each label is called in a prompt.

        Raises ValueError for labels that cannot be told apart, or that are nothing to the
        tokenizer.
        """
        with self._below_task():
            given = self.task_record["task"].get("verbalisers", ())
            words = label_words(self.task_record["labels"], given)
            for word, ids in zip(
                words.values(), self.tokenizer.encode([*words.values()]), strict=True
            ):
                if not ids:
                    raise ValueError(f"verbalisers: {word!r} is nothing to the tokenizer")
        return words

    @contextmanager
    def _below_task(self) -> Iterator[None]:
        """A mistake inside is one of the task's settings."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"tasks.{self.task_key}.task.{error}") from None

    def backbone(self, *, num_added_tokens: int = 0) -> Backbone:
        """The run's, with its weights.

        Raises ValueError if it does not take texts of ``max_tokens`` and what is added to them.
        """
        model, vocab_size = self.run_record["model"], self.tokenizer.vocab_size
        backbone = MODELS.build(model, vocab_size, where=self._where)
        if reason := backbone.too_long(self.max_tokens, num_added_tokens=num_added_tokens):
            raise ValueError(f"finetune.max_tokens: {reason} ({self._where})")
        load_weights(backbone, self.pretrained / WEIGHTS)
        return backbone

    def outline(self) -> Backbone:
        """The run's, without storage for its weights."""
        return outline(self.run_record["model"], self.tokenizer.vocab_size, where=self._where)

    def headed(self, *, seed: int, num_added_tokens: int = 0) -> ModelWithHead:
        """The pretrained backbone under a head that was drawn anew."""
        backbone = self.backbone(num_added_tokens=num_added_tokens)
        if isinstance(self.task, Writing):
            self._refuse_longer(self.task, backbone)
        elif not self.task.scores_text:
            backbone = backbone.for_tokens()
        head = self.task.head(backbone)
        initialise_head(head, generator=torch_stream(seed, "head"))
        return ModelWithHead(backbone, head)

    def _shorten(self, task: TextToText) -> None:
        """Cut answers, whose length no setting asks for, to what the run has positions for.

        Raises ValueError if that is less than one label takes.
        """
        backbone = self.outline()
        most, written = backbone.max_positions, task.max_target_tokens
        if most is None:
            return
        task.max_target_tokens -= max(backbone.positions_taken(self.max_tokens, written) - most, 0)
        if task.max_target_tokens < task.shortest_answer:
            raise ValueError(
                f"finetune.max_tokens: {self.max_tokens} leave {max(task.max_target_tokens, 0)} of "
                f"the {most} positions of {self._where} to write an answer of {self.task_key} as "
                f"text, which takes {task.shortest_answer}"
            )

    def _refuse_longer(self, task: Writing, backbone: Backbone) -> None:
        """Raises ValueError if texts of the length that a task asks for cannot be written."""
        written = task.max_target_tokens
        if reason := backbone.too_long(self.max_tokens, max_target_tokens=written):
            raise ValueError(
                f"tasks.{self.task_key}.task.max_target_tokens: {reason} ({self._where})"
            )

    def adapted(self, method: Method, *, seed: int) -> ModelWithHead:
        """The same as a method has it: what a trial of this seed begins with. A method that prompts
        has no head."""
        if method.prompts:
            model = ModelWithHead(self.backbone(), nn.Identity())
        else:
            model = self.headed(seed=seed, num_added_tokens=method.num_added_tokens)
        method.apply(model, generator=torch_stream(seed, "method"))
        return model

    def predictor(
        self, method: Method, rows: Sequence[Mapping[str, Any]], *, seed: int, where: str
    ) -> Predictor:
        """What a method that prompts makes of the labelled ``rows`` of a trial of this seed.

        Raises ValueError for labels and settings that do not go together; ``where`` is the
        method's place in params.yaml.
        """
        words, tokenizer = self.label_words(), self.task.tokenizer
        try:
            found = method.predictor(
                words, tokenizer, self.max_tokens, rows, rng=stream(seed, "shots")
            )
        except ValueError as error:
            raise ValueError(f"{where}.{error}") from None
        found.has_prefix = self.run_record["has_prefix"]
        return found


def _record(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: missing; run `dvc repro`")
    return read_json(path)
