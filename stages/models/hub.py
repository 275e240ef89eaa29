"""A published checkpoint of the Hugging Face hub, or its configuration with random weights."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from transformers import AutoModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from stages.core import paths
from stages.models._backbone import MODELS, Architecture, Start
from stages.models._transformer import Transformer, seeded
from stages.text.checkpoints import (
    config_of,
    content_of,
    folder_of,
    refuse_other_content,
    refuse_unpinned,
    refuse_unusable,
)
from stages.text.tokenizer import Tokenizer

PROBED = 8  # tokens of a text; their states are compared with and without further tokens
TOLERANCE = 1e-4  # relative to the largest state: padding changes the last bits of a sum


class Hub(Transformer):
    """A model of the hub. Its states are those of its last layer (in an encoder-decoder, the
    encoder's last). Text is written with our settings, not the published ones.

    ``revision`` pins the checkpoint. For a name on the hub it is the full hash of a commit; for a
    folder it is the first 12 hex digits of the hash of its content. With ``weights: random`` the
    model is built from the checkpoint's configuration: the twin of the published model.

    BERT's pooler, a layer on the first token's state, is left out: all models get the same head.
    An encoder that was published without its language modelling head gets a random one if it is
    pretrained further.
    """

    sizes = ()

    def __init__(
        self,
        vocab_size: int,
        *,
        path: str,
        revision: str,
        weights: Literal["published", "random"] = "published",
        start: Start = "usual",
    ) -> None:
        """Raises ValueError for a checkpoint that cannot be found or is not a language model."""
        self._folder, self.weights = folder_of(path, revision), weights
        self._pinned = revision if Path(path).is_dir() else None
        config = config_of(self._folder)
        self.architecture, self.family = architecture_of(config), config.model_type
        self._has_head = not _is_headless(config)
        if start == "local" and weights == "published":
            raise ValueError("start: local needs `weights: random`; published weights have theirs")
        self._prepare(vocab_size, config, start)
        known = self.model.get_input_embeddings().num_embeddings
        if vocab_size > known:
            raise ValueError(f"path: {path} has {vocab_size} tokens, but embeds only {known}")

    @classmethod
    def check(cls, *, path: str, revision: str, **others: Any) -> int | None:
        """The tokenizer's number of tokens, or None if it is not known before a download.

        Raises ValueError for a malformed name, or a folder whose content is unusable or differs
        from ``revision``.
        """
        folder = Path(path)
        if folder.parent == paths.CHECKPOINTS:
            # A stage downloads the checkpoint and checks its content.
            if not folder.is_dir() or content_of(folder) != revision:
                return None
        elif not folder.is_dir():
            refuse_unpinned(path, revision)
            return None
        if revision != (content := content_of(folder)):
            raise ValueError(
                f"revision: the folder's content is {content!r}, not {revision!r}; write "
                f"`revision: {content}`"
            )
        return _num_tokens(folder, content)

    def _class(self) -> Any:
        return super()._class() if self._has_head else AutoModel

    def add_output_layers(self) -> None:
        if self._has_head:
            return
        self._has_head = True
        with torch.device("meta"):
            self.model = self._with_attention(self._class().from_config(self.config))
        output = self.model.get_output_embeddings()
        if output is None or output.weight is not self.token_embedding.weight:
            raise ValueError(
                f"path: {self._folder} was published without a language modelling head, and its "
                "token embeddings cannot be the head's, so it cannot be pretrained further"
            )

    def initialise(self, *, generator: torch.Generator) -> None:
        """Loads the published weights, or draws random ones; raises ValueError for a folder whose
        content is not the pinned one."""
        if self.weights == "random":
            super().initialise(generator=generator)
            return
        if self._pinned:
            refuse_other_content(self._folder, self._pinned)
        with seeded(generator):
            self.model = self._loaded(self._folder, head=not _is_headless(self.config))

    def load(self, folder: Path) -> None:
        """Loads the weights in ``folder``. A head that is not among them, since the checkpoint was
        published without one, is drawn from torch's own generator."""
        self.model = self._loaded(folder, head=not _is_headless(config_of(folder)))

    def query_key_biases(self) -> Any:
        if f"{self.family}" not in MODELS.names():
            return iter(())
        family: Any = MODELS.find(self.family, where="")
        return family.query_key_biases(self)

    @property
    def logit_bias(self) -> torch.Tensor | None:
        """None if the language modelling head was published."""
        is_new = self.weights == "random" or _is_headless(self.config)
        return super().logit_bias if is_new else None


def architecture_of(config: Any) -> Architecture:
    """Returns our name for the checkpoint's architecture. Raises ValueError if the checkpoint is
    not a language model."""
    kind = config.model_type
    if config.is_encoder_decoder and kind in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return "encoder_decoder"
    # BERT can be run as a decoder too, but was not published as one.
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return "encoder"
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "decoder"
    raise ValueError(f"path: a {kind!r} (config.json) is not a language model of transformers")


def _is_headless(config: Any) -> bool:
    """Whether the checkpoint was published without a language modelling head: without any head, or
    with the head of ELECTRA's discriminator."""
    without = {MODEL_MAPPING_NAMES.get(config.model_type), "ElectraForPreTraining"}
    return len(config.architectures or ()) == 1 and config.architectures[0] in without


@cache
def _num_tokens(folder: Path, content: str) -> int:
    """Loads the whole checkpoint and returns its tokenizer's number of tokens; ``content`` is its
    hash. Raises ValueError for a folder that cannot be used."""
    refuse_unusable(folder)
    tokenizer = Tokenizer(folder)
    model = Hub(tokenizer.vocab_size, path=str(folder), revision=content)
    model.initialise(generator=torch.Generator())
    refuse_reading_further(model, tokenizer.regular_ids)
    return tokenizer.vocab_size


@torch.no_grad()
def refuse_reading_further(model: Transformer, regular_ids: Int[np.ndarray, " V"]) -> None:
    """Raises ValueError if the states of a text depend on what follows the text: in a decoder on
    later tokens (XLNet, which reads in both directions), in another model on padding, so that a
    prediction would depend on the other texts of its batch (FNet, ConvBERT). Also raises it if the
    final states differ in width from those between the blocks, or are not finite."""
    kind, reader = model.family, model.reader.eval()
    ids = torch.from_numpy(np.resize(regular_ids[: 2 * PROBED], (1, 2 * PROBED)))
    mask = torch.ones_like(ids)
    if not model.is_causal:
        ids[:, PROBED:] = mask[:, PROBED:] = 0
    try:
        alone, followed = (
            reader(input_ids=i, attention_mask=m).last_hidden_state[:, :PROBED]
            for i, m in ((ids[:, :PROBED], mask[:, :PROBED]), (ids, mask))
        )
    except Exception as error:  # a model that needs other inputs raises errors of many types
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"path: a {kind!r} cannot read a text: {reason}") from None
    if not (alone.isfinite().all() and followed.isfinite().all()):
        raise ValueError(f"path: the states of this {kind!r} have NaN or infinite values")
    if alone.shape[-1] != model.d_model:
        raise ValueError(
            f"path: the states of this {kind!r} have {alone.shape[-1]} numbers, but its blocks "
            f"{model.d_model} (config.json), which is not supported; choose another size"
        )
    difference = float((followed - alone).abs().max() / alone.abs().max())
    if difference > TOLERANCE and model.is_causal:
        raise ValueError(
            f"path: a {kind!r} is no decoder as it is run here: its states depend on later tokens; "
            "choose a checkpoint of another family"
        )
    if difference > TOLERANCE:
        raise ValueError(
            f"path: a {kind!r} does not mask padding: its states of a text change by "
            f"{difference:.1%} when the text is padded, so a prediction would depend on the other "
            "texts of its batch; choose a checkpoint of another family"
        )
