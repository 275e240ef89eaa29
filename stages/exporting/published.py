"""A fine-tuned public checkpoint with its head, as a model of ``transformers``."""

import copy
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from stages.core.artifacts import read_json, write_json
from stages.exporting.counterpart import TEXT_LABELS, TOKEN_LABELS
from stages.models._heads import LinearHead, ModelWithHead, PooledHead
from stages.models._published_checkpoint import reader_of
from stages.models.hub import Hub
from stages.text.tokenizer import TaskTokenizer

# BERT's class for texts has a layer and tanh before the classifier. The layer becomes the identity
# times this factor, so small that tanh is linear to float32's precision (its error is x^3 / 3). The
# classifier's weight is divided by the factor, a power of two, so that nothing is rounded.
POOLER_SCALE = 2.0**-12
CLASSIFIERS = ("classifier", "score")  # transformers' names of the layer that computes labels


@torch.no_grad()
def with_head(model: ModelWithHead, labels: list[str]) -> tuple[str, Any]:
    """Returns the name of the auto class, and its model with the weights of backbone and head.

    Only a BERT whose head reads the first token gets the class for text labels. Other models get
    the class for token labels: a text is classified by the logits of its tokens. Raises ValueError
    for a model that writes text, or if no class of ``transformers`` has the model's weights.
    """
    backbone, head = model.backbone, model.head
    assert isinstance(backbone, Hub)
    if not isinstance(head, LinearHead):
        raise ValueError("what writes text on a public checkpoint cannot be exported")
    config = copy.deepcopy(backbone.config)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    reads_first = isinstance(head, PooledHead) and head.pooling == "first"
    auto_class = TEXT_LABELS if reads_first and config.model_type == "bert" else TOKEN_LABELS
    try:
        theirs: Any = getattr(transformers, auto_class).from_config(
            config, dtype=torch.float32, trust_remote_code=False
        )
    except ValueError:
        raise ValueError(
            f"transformers has no class for labels of tokens on a {config.model_type!r}"
        ) from None
    reader = reader_of(theirs, backbone.config)
    loaded = reader.load_state_dict(backbone.model.state_dict(), strict=False)
    lost = [*loaded.unexpected_keys, *(k for k in loaded.missing_keys if "pooler." not in k)]
    body = f"{theirs.base_model_prefix}."
    of_head = [name for name, _ in theirs.named_parameters() if not name.startswith(body)]
    lost += [name for name in of_head if not name.startswith(CLASSIFIERS)]  # ModernBERT's head
    layers = [getattr(theirs, name, None) for name in CLASSIFIERS]
    classifier = next((layer for layer in layers if layer is not None), None)
    if lost or not isinstance(classifier, nn.Linear):
        raise ValueError(
            f"transformers' {type(theirs).__name__} has other weights than this trial "
            f"({lost[0] if lost else 'no classifier of one layer'})"
        )
    scale = 1.0
    if auto_class == TEXT_LABELS:
        scale, dense = POOLER_SCALE, theirs.base_model.pooler.dense
        dense.weight.copy_(scale * torch.eye(config.hidden_size))
        dense.bias.zero_()
    classifier.weight.copy_(head.linear.weight / scale)
    classifier.bias.copy_(head.linear.bias)
    return auto_class, theirs.eval()


def save_tokenizer(tokenizer: TaskTokenizer, folder: Path, max_tokens: int) -> str:
    """Writes the published tokenizer, which cuts texts at ``max_tokens``; returns a note on the
    final special token if the tokenizer does not add it to texts, else "".

    ``folder`` already has the configuration of the model.
    """
    for file in tokenizer.files:
        if file.name != "config.json":
            shutil.copyfile(file, folder / file.name)
    path = folder / "tokenizer_config.json"
    settings = read_json(path) if path.is_file() else {}
    write_json(path, settings | {"model_max_length": max_tokens})
    theirs, end = transformers.AutoTokenizer.from_pretrained(folder), tokenizer.after[-1:]
    if tuple(theirs("a")["input_ids"][-1:]) == end:
        return ""
    return f"Put {theirs.decode(end)} at the end of each text, as the model was trained."
