"""What was fine-tuned on a public checkpoint, as the class of transformers with such a head."""

import copy
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from stages.core.artifacts import read_json, write_json
from stages.exporting.correspondence import Goal
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.models.hub import Hub

# BERT's class for texts has a layer and tanh before the classifier. The layer is made the identity
# times this, so small that tanh is linear to float32's precision (its error is x^3 / 3), and the
# classifier's weight is divided by it: a power of two, which rounds nothing.
POOLER_SCALE = 2.0**-12
TOKENIZER_CONFIG = "tokenizer_config.json"


@torch.no_grad()
def with_head(model: ModelWithHead, labels: list[str]) -> tuple[Any, Goal]:
    """The model of transformers with the backbone's weights and the head's, and of what its logits
    are: of texts, or of tokens, from which those of texts are pooled.

    Raises ValueError if transformers has no such class.
    """
    backbone, head = model.backbone, model.head
    assert isinstance(backbone, Hub)
    if not isinstance(head, LinearHead):
        raise ValueError("what writes text on a public checkpoint cannot be exported")
    config = copy.deepcopy(backbone.config)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    config.dtype = "float32"
    of_first = isinstance(head, PooledHead) and head.pooling == "first"
    of_texts = of_first and config.model_type == "bert"
    cls = AutoModelForSequenceClassification if of_texts else AutoModelForTokenClassification
    try:
        theirs: Any = cls.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except ValueError:
        raise ValueError(
            f"transformers has no class for labels of tokens on a {config.model_type!r}"
        ) from None
    absent = theirs.base_model.load_state_dict(backbone.model.state_dict(), strict=False)
    lost = [*absent.unexpected_keys, *(k for k in absent.missing_keys if "pooler." not in k)]
    classifier = getattr(theirs, "classifier", None)
    if lost or not isinstance(classifier, nn.Linear):
        raise ValueError(
            f"transformers' {type(theirs).__name__} has other weights than this trial "
            f"({lost[0] if lost else 'no classifier of one layer'})"
        )
    scale = POOLER_SCALE if of_texts else 1.0
    if of_texts:
        dense = theirs.base_model.pooler.dense
        dense.weight.copy_(scale * torch.eye(config.hidden_size))
        dense.bias.zero_()
    classifier.weight.copy_(head.linear.weight / scale)
    classifier.bias.copy_(head.linear.bias)
    return theirs.eval(), "classification" if of_texts else "tagging"


def save(theirs: Any, folder: Path, vocabulary: Iterable[Path], max_tokens: int) -> None:
    """Write the model and the published tokenizer, which cuts texts at ``max_tokens``."""
    theirs.save_pretrained(folder)
    for file in vocabulary:
        if file.name != "config.json":
            shutil.copyfile(file, folder / file.name)
    settings = folder / TOKENIZER_CONFIG
    told = read_json(settings) if settings.is_file() else {}
    write_json(settings, told | {"model_max_length": max_tokens})
