"""The set-up that all trials of a checkpoint and a task start from."""

from collections.abc import Sequence

from torch import nn

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl
from stages.core.components import below
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import NONE
from stages.core.seeding import derive, stream, torch_stream
from stages.evaluation.records import present
from stages.methods._method import Method, Predictor, PromptMethod
from stages.models._backbone import MODELS, Backbone, draw_weights, outline, positions_taken
from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks._cells import Row
from stages.tasks._labelled_rows import labelled_rows, of_draw
from stages.tasks._task import TASKS, Split, Task
from stages.tasks._text_form import TextToText, Writing, label_words
from stages.text.tokenizer import Tokenizer


class TrialSetup:
    """The tokenizer and the weights of a checkpoint, and the task as ``prepare_task`` wrote it.

    With ``text_to_text`` the answers to the task are generated.

    Raises ValueError if the checkpoint or the task is missing.
    """

    def __init__(
        self, checkpoint: CheckpointKey, task: str, *, max_tokens: int, text_to_text: bool = False
    ) -> None:
        self.checkpoint, self.task_name, self.max_tokens = checkpoint, task, max_tokens
        self.pretrained, self.examples = paths.pretrained(checkpoint), paths.examples(task)
        self.run_record = read_json(present(self.pretrained / "run.json"))
        self.task_record = read_json(present(self.examples / "task.json"))
        parent = self.run_record["settings"]["parent"]
        self._where = f"models.{checkpoint.model}.architecture"
        self._where_task = f"tasks.{task}.task"
        # Whether each trial draws its own random weights (``Model.from_scratch``).
        self.from_scratch = self.run_record["objective"] == parent == NONE
        self.tokenizer = Tokenizer(self.pretrained)
        entry, labels = self.task_record["task"], self.task_record["labels"]
        self.task: Task = TASKS.build(
            entry, labels, self.tokenizer, max_tokens, where=self._where_task
        )
        self.task.record = self.task_record
        backbone = self.outline()
        if text_to_text:
            with below(self._where_task):
                self.task = as_text = TextToText(task, self.task_record, self.task)
            if (most := backbone.max_positions) is not None:  # no setting limits the answers
                needed = positions_taken(backbone, max_tokens, as_text.max_target_tokens)
                as_text.max_target_tokens -= max(needed - most, 0)
                if as_text.max_target_tokens < as_text.shortest_answer:
                    raise ValueError(
                        f"finetune.max_tokens: {max_tokens} leaves too few of the {most} positions "
                        f"of {self._where} for an answer of {task} as text"
                    )
        self.task.read_by(backbone, has_prefix=self.run_record["has_prefix"])

    def seed_of(self, finetune_seed: int) -> int:
        """Returns the seed of a trial's head, order of examples, dropout and shots. It depends on
        the pretraining seed too, so that the variance between checkpoints includes theirs."""
        return derive(self.checkpoint.pretrain_seed, "trial", finetune_seed)

    def rows(self, split: Split, *, seed: int) -> list[Row]:
        """Returns the rows of a split that a trial of this fine-tuning seed reads."""
        return of_draw(read_jsonl(self.examples / f"{split}.jsonl"), seed)

    def labelled(self, key: TrialKey, rows: Sequence[Row]) -> list[Row]:
        """Returns the ``rows`` of train that a trial learns from.

        Raises ValueError if there are fewer rows than its label budget.
        """
        return labelled_rows(
            rows,
            key.label_budget,
            self.task.kind,
            pretrain_seed=key.pretrain_seed,
            finetune_seed=key.finetune_seed,
            task=self.task_name,
        )

    def outline(self) -> Backbone:
        """Returns the model without storage for its weights."""
        return outline(self.run_record["model"], self.tokenizer.vocab_size, where=self._where)

    def backbone(self, *, seed: int) -> Backbone:
        """Returns the model with the weights that a trial of this fine-tuning seed starts from: the
        weights of the checkpoint or, from scratch, the trial's own draw."""
        model, vocab_size = self.run_record["model"], self.tokenizer.vocab_size
        backbone = MODELS.build(model, vocab_size, where=self._where)
        if self.from_scratch:
            draw_weights(backbone, seed, seed=self.checkpoint.pretrain_seed)
        else:
            backbone.load(self.pretrained)
        return backbone

    def headed(self, *, seed: int) -> ModelWithHead:
        """Returns the backbone of a trial of this seed with a newly initialised head."""
        backbone = self.backbone(seed=seed)
        if not (isinstance(self.task, Writing) or self.task.scores_text):
            backbone.drop_output_layers()
        with below(self._where_task):
            head = self.task.head(backbone)
        initialise_head(head, generator=torch_stream(self.seed_of(seed), "head"))
        return ModelWithHead(backbone, head)

    def adapted(self, method: Method, *, seed: int) -> ModelWithHead:
        """Returns the model that a trial of this method and seed starts from. With a prompt method
        it has no head."""
        if isinstance(method, PromptMethod):
            model = ModelWithHead(self.backbone(seed=seed), nn.Identity())
        else:
            model = self.headed(seed=seed)
        method.apply(model, generator=torch_stream(self.seed_of(seed), "method"))
        return model

    def prompts(self, method: PromptMethod, key: TrialKey, rows: Sequence[Row]) -> Predictor:
        """Returns the predictor of a trial of a prompt method. Its shots are among the ``rows`` of
        train that the trial learns from.

        Raises ValueError for labels and settings that are incompatible.
        """
        given = self.task_record["task"].get("verbalisers", ())
        with below(self._where_task):
            words = label_words(self.task_record["labels"], given)
            encoded = self.tokenizer.encode([*words.values()])
            if lacking := [w for w, ids in zip(words.values(), encoded, strict=True) if not ids]:
                raise ValueError(f"verbalisers: {lacking[0]!r} has no tokens in this vocabulary")
        labelled, rng = self.labelled(key, rows), stream(self.seed_of(key.finetune_seed), "shots")
        with below(f"finetune.methods.{key.method}.method"):
            predictor = method.predictor(
                words, self.task.tokenizer, self.max_tokens, labelled, rng=rng
            )
        predictor.has_prefix = self.run_record["has_prefix"]
        return predictor
