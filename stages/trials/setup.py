"""The set-up that all trials of a checkpoint and a task start from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from stages.core import paths
from stages.core.artifacts import Json, read_json, read_jsonl
from stages.core.keys import RunKey
from stages.core.params import NONE
from stages.core.seeding import derive, stream, torch_stream
from stages.methods._method import Method, Predictor, PromptMethod, Row
from stages.models._backbone import MODELS, Backbone, draw_weights, outline
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._kind import Split
from stages.tasks._labelled_rows import labelled_rows, of_draw
from stages.tasks._task import TASKS, Task
from stages.tasks._text_form import label_words
from stages.tasks._text_to_text import TextToText
from stages.tasks._writing import Writing
from stages.text.tokenizer import Tokenizer


class TrialSetup:
    """The tokenizer and the weights of a checkpoint, and the task as ``prepare_task`` wrote it.

    With ``text_to_text`` the answers to the task are generated.

    Raises ValueError if the checkpoint or the task is missing.
    """

    def __init__(
        self,
        checkpoint: RunKey,
        task: str,
        *,
        max_tokens: int,
        text_to_text: bool = False,
    ) -> None:
        self.checkpoint, self.task_name, self.max_tokens = checkpoint, task, max_tokens
        self.text_to_text = text_to_text
        self.pretrained = paths.pretrained(checkpoint)
        self.examples = paths.examples(task)
        self.run_record = _record(self.pretrained / "run.json")
        self.task_record = _record(self.examples / "task.json")
        parent = self.run_record["settings"]["parent"]
        section = "runs" if parent == NONE else "continued"
        self._where = f"pretrain.{section}.{checkpoint.run}.architecture"
        self.tokenizer = Tokenizer(self.pretrained)
        self.task = self._task()

    def _task(self) -> Task:
        task: Task = TASKS.build(
            self.task_record["task"],
            self.task_record["labels"],
            self.tokenizer,
            self.max_tokens,
            where=f"tasks.{self.task_name}.task",
        )
        task.take_facts(self.task_record)
        if self.text_to_text:
            with self._below_task():
                task = TextToText(self.task_name, self.task_record, task)
            self._shorten(task)
        task.read_by(self.outline(), has_prefix=self.run_record["has_prefix"])
        return task

    def seed_of(self, finetune_seed: int) -> int:
        """Returns the seed of a trial's head, order of examples, dropout and shots.

        It depends on the pretraining seed too. Otherwise all checkpoints would share these random
        choices, and the variance between checkpoints would not include the choices' variance.
        """
        return derive(self.checkpoint.pretrain_seed, "trial", finetune_seed)

    @property
    def from_scratch(self) -> bool:
        """Whether each trial draws its own random weights (``Run.from_scratch``)."""
        return self.run_record["objective"] == self.run_record["settings"]["parent"] == NONE

    def label_words(self) -> dict[str, str]:
        """Returns the verbaliser of each label.

        Raises ValueError if labels share a verbaliser or a verbaliser has no tokens.
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
        """Puts the path of the task's settings before the message of a ValueError raised inside."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"tasks.{self.task_name}.task.{error}") from None

    def rows(self, split: Split, *, seed: int) -> list[Row]:
        """Returns the rows of a split that a trial of this fine-tuning seed reads."""
        return of_draw(read_jsonl(self.examples / f"{split}.jsonl"), seed)

    def labelled(self, rows: Sequence[Row], budget: str, *, seed: int) -> list[Row]:
        """Returns the ``rows`` of train that a trial with this label budget and fine-tuning seed
        learns from.

        Raises ValueError if there are fewer rows than the budget.
        """
        return labelled_rows(
            rows,
            budget,
            self.task.kind,
            pretrain_seed=self.checkpoint.pretrain_seed,
            finetune_seed=seed,
            task=self.task_name,
        )

    def backbone(self, *, seed: int, num_added_tokens: int = 0) -> Backbone:
        """Returns the model with the weights that a trial of this fine-tuning seed starts from.

        They are the weights of the checkpoint or, from scratch, the trial's own draw.

        Raises ValueError if the model has no positions for ``max_tokens`` and the added tokens.
        """
        model, vocab_size = self.run_record["model"], self.tokenizer.vocab_size
        backbone = MODELS.build(model, vocab_size, where=self._where)
        if reason := backbone.too_long(self.max_tokens, num_added_tokens=num_added_tokens):
            raise ValueError(f"finetune.max_tokens: {reason} ({self._where})")
        if self.from_scratch:
            draw_weights(backbone, seed, seed=self.checkpoint.pretrain_seed)
        else:
            backbone.load(self.pretrained)
        return backbone

    def outline(self) -> Backbone:
        """Returns the model without storage for its weights."""
        return outline(self.run_record["model"], self.tokenizer.vocab_size, where=self._where)

    def headed(self, *, seed: int, num_added_tokens: int = 0) -> ModelWithHead:
        """Returns the backbone of a trial of this seed with a newly initialised head."""
        backbone = self.backbone(seed=seed, num_added_tokens=num_added_tokens)
        if isinstance(self.task, Writing):
            target = self.task.max_target_tokens
            if reason := backbone.too_long(self.max_tokens, max_target_tokens=target):
                task = f"tasks.{self.task_name}.task"
                raise ValueError(f"{task}.max_target_tokens: {reason} ({self._where})")
        elif not self.task.scores_text:
            backbone.drop_output_layers()
        with self._below_task():
            head = self.task.head(backbone)
        initialise_head(head, generator=torch_stream(self.seed_of(seed), "head"))
        return ModelWithHead(backbone, head)

    def _shorten(self, task: TextToText) -> None:
        """Limits the length of generated answers, which has no setting, to the model's positions.

        Raises ValueError if this leaves too few tokens for a label.
        """
        backbone = self.outline()
        most, written = backbone.max_positions, task.max_target_tokens
        if most is None:
            return
        task.max_target_tokens -= max(backbone.positions_taken(self.max_tokens, written) - most, 0)
        if task.max_target_tokens < task.shortest_answer:
            raise ValueError(
                f"finetune.max_tokens: {self.max_tokens} leaves {max(task.max_target_tokens, 0)} "
                f"of the {most} positions of {self._where} for an answer of {self.task_name} as "
                f"text, which takes {task.shortest_answer}"
            )

    def adapted(self, method: Method, *, seed: int) -> ModelWithHead:
        """Returns the model that a trial of this method and seed starts from. With a prompt method
        it has no head."""
        if isinstance(method, PromptMethod):
            model = ModelWithHead(self.backbone(seed=seed), nn.Identity())
        else:
            model = self.headed(seed=seed, num_added_tokens=method.num_added_tokens)
        method.apply(model, generator=torch_stream(self.seed_of(seed), "method"))
        return model

    def predictor(self, method: Method, rows: Sequence[Row], *, seed: int, where: str) -> Predictor:
        """Returns the predictor of a prompt method from the labelled ``rows`` of a trial of this
        seed.

        Raises ValueError for labels and settings that are incompatible; ``where`` is the method's
        path in params.yaml.
        """
        assert isinstance(method, PromptMethod), "other methods leave prediction to the task"
        words, tokenizer = self.label_words(), self.task.tokenizer
        try:
            predictor = method.predictor(
                words, tokenizer, self.max_tokens, rows, rng=stream(self.seed_of(seed), "shots")
            )
        except ValueError as error:
            raise ValueError(f"{where}.{error}") from None
        predictor.has_prefix = self.run_record["has_prefix"]
        return predictor


def _record(path: Path) -> Json:
    if not path.is_file():
        raise ValueError(f"{path}: missing; run `dvc repro`")
    return read_json(path)
