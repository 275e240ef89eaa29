"""A published checkpoint of the Hugging Face hub, or its configuration with random weights."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from stages.core import paths
from stages.core.seeding import seeded
from stages.models._backbone import Start
from stages.models._transformer import AUTO, Transformer, is_headless
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
    encoder's last), without BERT's pooler: all models get the same head. Text is written with our
    settings, not the published ones.

    ``revision`` pins the checkpoint. For a name on the hub it is the full hash of a commit; for a
    folder it is the first 12 hex digits of the hash of its content. With ``weights: random`` the
    model is built from the checkpoint's configuration: the twin of the published model.

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
        if start == "local" and weights == "published":
            raise ValueError("start: local needs `weights: random`; published weights have theirs")
        self._folder, self._weights = folder_of(path, revision), weights
        self._pinned = revision if Path(path).is_dir() else None
        config = config_of(self._folder)
        self.family = config.model_type
        self.has_published_head = weights == "published" and not is_headless(config)
        self._outline(vocab_size, config, start)
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
        is_downloaded = folder.parent == paths.CHECKPOINTS  # by a stage, which checks its content
        if not folder.is_dir():
            if not is_downloaded:
                refuse_unpinned(path, revision)
            return None
        content = content_of(folder)
        if revision == content:
            return _num_tokens(folder, content)
        if is_downloaded:
            return None
        raise ValueError(f"revision: is {revision!r}; the folder needs `revision: {content}`")

    def add_output_layers(self) -> None:
        if self._class is AUTO[self.architecture]:
            return
        self._class = AUTO[self.architecture]
        with torch.device("meta"):
            self.model = self._with_attention(self._class.from_config(self.config))
        output = self.model.get_output_embeddings()
        if output is None or output.weight is not self.token_embedding.weight:
            raise ValueError(
                f"path: {self._folder} was published without a language modelling head, and its "
                "token embeddings cannot be the head's, so it cannot be pretrained further"
            )

    def initialise(self, *, generator: torch.Generator) -> None:
        """Loads the published weights, or draws random ones; raises ValueError for a folder whose
        content is not the pinned one."""
        if self._weights == "random":
            super().initialise(generator=generator)
            return
        if self._pinned:
            refuse_other_content(self._folder, self._pinned)
        with seeded(generator):  # for a head that was not published
            self.load(self._folder)


@cache
@torch.no_grad()
def _num_tokens(folder: Path, content: str) -> int:
    """Loads the whole checkpoint and returns its tokenizer's number of tokens; ``content`` is its
    hash.

    Raises ValueError for a folder that cannot be used, and if the states of a text depend on what
    follows the text: in a decoder on later tokens (XLNet), in another model on padding, so that a
    prediction would depend on the other texts of its batch (FNet, ConvBERT).
    """
    refuse_unusable(folder)
    tokenizer = Tokenizer(folder)
    model = Hub(tokenizer.vocab_size, path=str(folder), revision=content)
    model.initialise(generator=torch.Generator())
    ids = torch.from_numpy(np.resize(tokenizer.regular_ids[: 2 * PROBED], (1, 2 * PROBED)))
    mask = torch.ones_like(ids)
    if not model.is_causal:
        ids[:, PROBED:] = mask[:, PROBED:] = 0
    reader = model.reader.eval()
    alone, followed = (
        reader(input_ids=ids[:, :n], attention_mask=mask[:, :n]).last_hidden_state[:, :PROBED]
        for n in (PROBED, 2 * PROBED)
    )
    difference = (followed - alone).abs().max() / alone.abs().max()
    if not difference <= TOLERANCE or alone.shape[-1] != model.d_model:
        raise ValueError(
            f"path: the states of this {model.family!r} depend on what follows a text (later "
            "tokens or padding), are not finite, or are not as wide as its blocks; choose another"
        )
    return tokenizer.vocab_size
