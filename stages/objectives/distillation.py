"""Distillation: a smaller student learns the predictions of a teacher (DistilBERT; Sanh et al.
2019)."""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, gather
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._masking import MASK_PROB, MaskedObjective
from stages.objectives._objective import Terms
from stages.text.batch import IGNORE_INDEX, PADDING, Batch
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary


class Distillation(MaskedObjective):
    """A weighted sum of three terms (section 2 of the paper; the default weights are those of the
    paper's code):

        soft    cross-entropy of the student's distribution against the teacher's, both softened
                by the temperature, at the masked positions
        mlm     cross-entropy against the original tokens
        cosine  1 - cosine of the final states of student and teacher, at every token

    Teacher and student read the same corrupted row. By default the paper's code computes the soft
    term at every token; here logits are computed only at the masked positions.

    The student is initialised with every second layer of the teacher, including the first, and with
    the teacher's embeddings and norms (section 3).
    """

    has_teacher = True
    teacher: Backbone

    def __init__(
        self,
        vocabulary: Vocabulary,
        max_tokens: int,
        *,
        mask_prob: float = MASK_PROB,
        temperature: float = 2.0,
        soft_weight: float = 5.0,
        mlm_weight: float = 2.0,
        cosine_weight: float = 1.0,
    ) -> None:
        super().__init__(vocabulary, max_tokens, mask_prob=mask_prob)
        if temperature <= 0 or min(soft_weight, mlm_weight, cosine_weight) < 0:
            raise ValueError("temperature must be more than 0, and every weight at least 0")
        self.temperature = temperature
        self.soft_weight, self.mlm_weight = soft_weight, mlm_weight
        self.cosine_weight = cosine_weight

    @torch.no_grad()
    def learn_from(self, teacher: Backbone, student: Backbone) -> None:
        """Copies the teacher's block 2 i into the student's block i, and all other weights."""
        kept = teacher.blocks[::2]
        if teacher.family != student.family or len(student.blocks) != len(kept):
            raise ValueError(
                f"a student has every second of the {len(teacher.blocks)} layers of its teacher: "
                f"make this model a {teacher.family} with num_layers {len(kept)}"
            )
        in_blocks = {weight for block in student.blocks for weight in block.parameters()}
        outside = [(name, w) for name, w in student.named_parameters() if w not in in_blocks]
        copied = [(teacher.get_parameter(name), weight) for name, weight in outside]
        for block, own in zip(kept, student.blocks, strict=True):
            copied += zip(block.parameters(), own.parameters(), strict=True)
        for source, weight in copied:
            if source.shape != weight.shape:
                raise ValueError(
                    f"a student has the weights of its teacher, whose shapes are {[*source.shape]} "
                    f"there and {[*weight.shape]} here; make all sizes but num_layers equal"
                )
            weight.copy_(source)
        self.teacher = teacher

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        batch = super().collate(examples, rngs=rngs)
        masked, real = batch.num_targets[self.term], int((batch.document_ids != PADDING).sum())
        return replace(batch, num_targets={"soft": masked, "mlm": masked, "cosine": real})

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.target_positions is not None and batch.labels is not None
        states = model.backbone(batch)
        with torch.no_grad():
            taught = self.teacher(batch)
            targets = self.teacher.unembed(gather(taught, batch.target_positions))
        logits = model.backbone.unembed(gather(states, batch.target_positions))
        counted = batch.labels != IGNORE_INDEX
        soft = soft_cross_entropy(logits, targets, counted, temperature=self.temperature)
        cosines = F.cosine_similarity(states.float(), taught.float(), dim=-1)
        distances = (1 - cosines) * (batch.document_ids != PADDING)
        return {
            "soft": (self.soft_weight, soft),
            "mlm": (self.mlm_weight, cross_entropy(logits, batch.labels)),
            "cosine": (self.cosine_weight, distances.sum()),
        }


def soft_cross_entropy(
    student: Float[Tensor, "B M V"],
    teacher: Float[Tensor, "B M V"],
    counted: Bool[Tensor, "B M"],
    *,
    temperature: float,
) -> Float[Tensor, ""]:
    """T^2 * sum over the counted positions of - softmax(teacher / T) . log softmax(student / T).

    T^2 makes the magnitude of the gradients independent of T (Hinton et al. 2015, section 2). The
    cross-entropy exceeds the Kullback-Leibler divergence by the teacher's entropy, which does not
    depend on the student.
    """
    losses = F.cross_entropy(
        student.flatten(0, 1).float() / temperature,
        (teacher.flatten(0, 1).float() / temperature).softmax(dim=-1),
        reduction="none",
    )
    return temperature**2 * (losses * counted.flatten()).sum()
