"""New components for the project, one of each kind. Each is one file, except a task with a new kind
of rows, which is two."""

FILES = {
    "stages/kinds/rating.py": '''
from collections.abc import Sequence
from typing import Any

from stages.kinds._kind import Kind, Row
from stages.kinds._metric import Metric, Scale


def distance(gold: Sequence[str], predicted: Sequence[str]) -> float:
    pairs = zip(gold, predicted, strict=True)
    return sum(abs(float(a) - float(b)) for a, b in pairs) / len(gold)


class RatedText(Kind):
    """``text`` and ``rating``, a whole number."""

    inputs = ("text",)
    target = "rating"
    metrics = (Metric("mean_distance", distance, Scale("stars", 1, 2, lower_is_better=True)),)

    def read(self, column: str, value: Any, row: Row, place: str) -> Any:
        cell = super().read(column, value, row, place)
        if column == "rating" and not cell.isdecimal():
            raise ValueError(f"{place} must be a whole number, not {value!r}")
        return cell
''',
    "stages/tasks/star_rating.py": """
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from stages.kinds.rating import RatedText
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, PooledHead
from stages.tasks._task import Example, Task
from stages.text.batch import IGNORE_INDEX, Batch


class StarRating(Task):
    kind = RatedText()

    def head(self, backbone: Backbone) -> PooledHead:
        return PooledHead(backbone.d_model, 1, dropout=0.0, pooling="mean")

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> list[Example]:
        texts = self.tokenizer.encode([row["text"] for row in rows])
        return [
            Example(
                row["id"],
                np.array(self.tokenizer.wrap(ids)[: self.max_tokens]),
                np.array([int(row.get("rating", IGNORE_INDEX))]),
            )
            for row, ids in zip(rows, texts, strict=True)
        ]

    def targets(self, examples: list[Example]) -> dict[str, Any]:
        labels = torch.from_numpy(np.concatenate([example.labels for example in examples]))
        return {"labels": labels, "num_targets": {"star_rating": len(labels)}}

    def loss(self, model: ModelWithHead, batch: Batch) -> dict[str, tuple[float, Any]]:
        return {"star_rating": (1.0, (self._values(model, batch) - batch.labels).square().sum())}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        return [f"{value:.2f}" for value in self._values(model, batch).tolist()]

    def _values(self, model: ModelWithHead, batch: Batch) -> torch.Tensor:
        return model.head(model.backbone(batch), batch.document_ids).float()[:, 0]
""",
    "stages/sources/lines.py": '''
from collections.abc import Iterator
from pathlib import Path

from stages.kinds._kind import Kind
from stages.sources._source import Document, Labelled, Source, split_of


class Lines(Source):
    """``rating|text`` in each line of a file."""

    running_text = False

    def __init__(self, *, path: str) -> None:
        self.lines = Path(path).read_text().splitlines()

    def check(self, kind: Kind | None) -> None:
        if kind is not None and kind.target != "rating":
            raise ValueError(f"path: has ratings, not {kind.target}")

    def documents(self) -> Iterator[Document]:
        for line in self.lines:
            yield Document(line, split_of(line), [line.partition("|")[2]])

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        for number, line in enumerate(self.lines):
            rating, _, text = line.partition("|")
            yield Labelled(str(number), split_of(line), {"text": text, "rating": rating})
''',
    "stages/baselines/average.py": """
from collections.abc import Sequence

from stages.baselines._baseline import Baseline, Row, Score


class Average(Baseline):
    fits = ("rating",)

    def fit(self, train: Sequence[Row], validation: Sequence[Row], score: Score) -> None:
        self.mean = sum(float(row["rating"]) for row in train) / len(train)

    def predict(self, rows: Sequence[Row]) -> list[str]:
        return [f"{self.mean:.2f}" for _ in rows]
""",
    "stages/models/repeated_encoder.py": '''
"""An encoder whose blocks are applied twice (after Dehghani et al. 2019)."""

from jaxtyping import Float
from torch import Tensor

from stages.models._transformer import TransformerBackbone
from stages.models._blocks import Stack
from stages.models._dimensions import Dimensions
from stages.text.batch import Batch


class RepeatedEncoder(TransformerBackbone):
    architecture = "repeated_encoder"
    trained_like = "encoder"

    def __init__(self, vocab_size: int, dims: Dimensions) -> None:
        super().__init__(vocab_size, dims)
        self.stack = Stack(dims, causal=False)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        x = self.embedding(batch.input_ids, batch.document_ids, batch.segment_ids)
        return self.stack(self.stack(x, batch.document_ids), batch.document_ids)
''',
    "stages/objectives/autoencoding.py": '''
"""Each token from its own state: an autoencoder without corruption."""

import numpy as np
import torch

from stages.models._heads import ModelWithHead
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms
from stages.text.batch import Batch
from stages.text.packing import Row


class Autoencoding(Objective):
    """With ``weight`` for the only term."""

    def __init__(self, *from_code, weight: float = 1.0) -> None:
        super().__init__(*from_code)
        self.weight = weight

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        input_ids = torch.from_numpy(np.stack([row.tokens for row in examples]))
        return Batch(
            input_ids=input_ids,
            document_ids=torch.from_numpy(np.stack([row.document_ids for row in examples])),
            labels=input_ids,
            num_targets={"autoencoding": input_ids.numel()},
        )

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        logits = model.backbone.unembed(model.backbone(batch))
        return {"autoencoding": (self.weight, cross_entropy(logits, batch.labels))}
''',
    "stages/methods/norms.py": '''
"""The norms of the backbone and the head train, nothing else."""

import torch

from stages.methods._additions import freeze_backbone
from stages.methods._method import TrainedMethod
from stages.models._heads import ModelWithHead


class Norms(TrainedMethod):
    def apply(self, model: ModelWithHead, *, generator: torch.Generator) -> None:
        freeze_backbone(model)
        for name, weight in model.backbone.named_parameters():
            if "norm" in name:
                weight.requires_grad_(True)
''',
}
