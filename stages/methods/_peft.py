"""Vectors of ``peft`` before the inputs of a frozen model."""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from stages.models._backbone import Backbone
from stages.text.batch import Batch

Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # of a call of a model: positional and named


class LearntKeysAndValues(nn.Module):
    """Puts keys and values that ``vectors`` (peft's ``PrefixEncoder``) computes before those of
    each self-attention of a model."""

    def __init__(self, vectors: nn.Module, length: int, *, num_heads: int, width: int) -> None:
        super().__init__()
        self.vectors, self.length = vectors, length
        self.num_heads, self.width = num_heads, width

    def attach(self, backbone: Backbone) -> None:
        """Makes this module part of the backbone's model, and lets the model call it."""
        backbone.model.learnt = self
        backbone.register_forward_pre_hook(self.without_kernels)
        backbone.model.register_forward_pre_hook(self.before, with_kwargs=True)

    def without_kernels(self, backbone: nn.Module, inputs: tuple[Batch]) -> tuple[Batch]:
        """The kernels for documents of different lengths know no keys before the input."""
        return (replace(inputs[0], document_starts=None),)

    def before(self, model: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any]) -> Inputs:
        from transformers import DynamicCache

        vectors = _learnt(self.vectors, self.length, given)
        # [B P 2JHd] -> [J 2 B H P d]
        layers = vectors.unflatten(-1, (-1, 2, self.num_heads, self.width))
        cache: Any = DynamicCache()
        for number, (keys, values) in enumerate(layers.permute(2, 3, 0, 4, 1, 5)):
            cache.update(keys, values, number)
        mask = self._wider(given["attention_mask"])
        return inputs, given | {"past_key_values": cache, "attention_mask": mask}

    def _wider(self, mask: Any) -> Any:
        """Returns a mask, or one for each type of layer, in which all tokens see the vectors."""
        if isinstance(mask, dict):
            return {kind: self._wider(each) for kind, each in mask.items()}
        is_additive = mask.is_floating_point()
        return F.pad(mask, (self.length, 0), value=0.0 if is_additive else 1)


class LearntEmbeddings(nn.Module):
    """Puts the embeddings ``vectors`` (peft's ``PromptEmbedding``) before those of the tokens, and
    removes their states from the output of the backbone."""

    def __init__(self, vectors: nn.Module, length: int) -> None:
        super().__init__()
        self.vectors, self.length = vectors, length

    def attach(self, backbone: Backbone) -> None:
        """Makes this module part of the backbone's model, and lets both call it."""
        backbone.model.learnt = self
        backbone.register_forward_pre_hook(self.wider)
        backbone.model.register_forward_pre_hook(self.before, with_kwargs=True)
        backbone.register_forward_hook(self.after)

    def wider(self, backbone: nn.Module, inputs: tuple[Batch]) -> tuple[Batch]:
        """Returns the batch with room for the vectors before each row, which must be one
        document."""
        (batch,), room = inputs, (self.length, 0)
        segments, visible, on_host = batch.segment_ids, batch.visible, batch.host_document_ids
        wider = Batch(
            input_ids=F.pad(batch.input_ids, room),
            document_ids=F.pad(batch.document_ids, room, value=1),
            host_document_ids=None if on_host is None else F.pad(on_host, room, value=1),
            segment_ids=None if segments is None else F.pad(segments, room),
            visible=None if visible is None else F.pad(visible, room, value=True),
            num_targets={},
        )
        return (wider,)

    def before(self, model: Any, inputs: tuple[Any, ...], given: dict[str, Any]) -> Inputs:
        embedded = model.get_input_embeddings()(given["input_ids"][:, self.length :])
        vectors = _learnt(self.vectors, self.length, given).to(embedded.dtype)
        whole = torch.cat([vectors, embedded], dim=1)
        return inputs, given | {"input_ids": None, "inputs_embeds": whole}

    def after(self, backbone: nn.Module, inputs: tuple[Batch], states: Tensor) -> Tensor:
        return states[:, self.length :]


def _learnt(vectors: nn.Module, length: int, given: dict[str, Any]) -> Float[Tensor, "B P _"]:
    """Returns the vectors, once for each row of the input."""
    ids = given["input_ids"]
    return vectors(torch.arange(length, device=ids.device).expand(len(ids), -1))
