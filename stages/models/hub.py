"""A public checkpoint: a model of the Hugging Face hub, run by ``transformers``.

Only safetensors are loaded (``_published_checkpoint.py``); ``text/published_files.py`` says which
files of a checkpoint are read and how it is pinned.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from stages.core import paths
from stages.models._backbone import Backbone, Settings
from stages.models._documents import documents_of, pairs_of, together
from stages.models._generation import Decoding, continued, prompts
from stages.models._published_checkpoint import (
    PublishedModel,
    architecture_of,
    class_of,
    is_headless,
    published,
    reader_of,
    refuse_damaged,
    refuse_reading_further,
    uninitialised,
    weight_files,
)
from stages.models._published_text import generated
from stages.text.batch import PADDING, Batch
from stages.text.published import PublishedTokenizer, config_of
from stages.text.published_files import (
    content_of,
    folder_of,
    read_files,
    refuse_other_content,
    refuse_unpinned,
)
from stages.text.tokenizer import TaskTokenizer
from stages.text.untrusted import examined, refuse_code, refuse_growth


class Hub(Backbone):
    """A model of the Hugging Face hub. Its states are those of its last layer (in an
    encoder-decoder, the encoder's last). Text is written by ``generate`` of transformers with our
    settings, not the published ones.

    ``revision`` pins the checkpoint. For a name on the hub it is the full hash of a commit, since a
    branch or a tag can move and the hub does not resolve a shorter hash; for a folder it is the
    first 12 hex digits of the hash of its content, since DVC does not watch the folder.

    BERT's pooler, a layer on the first token's state, is left out: all models get the same head.
    An encoder has its language modelling head only while it is pretrained further. An encoder that
    was published without the head (a sentence encoder) gets the head of its family: logits are
    products with its token embeddings, as in BERT (Devlin et al. 2019, section 3.1), and the layers
    between states and logits are initialised at random, as in transformers. Documents packed in a
    row are run separately, in groups of similar length.
    """

    is_transformer = True

    def __init__(self, vocab_size: int, *, path: str, revision: str) -> None:
        """Raises ValueError for a checkpoint that cannot be found or is not a language model."""
        super().__init__()
        self._origin, self._folder = {"path": path, "revision": revision}, folder_of(path, revision)
        if self._folder != Path(path):  # ``check`` has already examined a local folder
            num_tokens_of(self._folder)
        self.config = config_of(self._folder)
        self.config.use_cache = False  # keys and values are cached for generation only
        self.architecture = self.trained_like = architecture_of(self.config)
        self.vocab_size, self._has_decoder = vocab_size, True  # until the decoder is dropped
        self.num_layers = self.config.num_hidden_layers
        self._class = class_of(self.config)
        self.model: PublishedModel = uninitialised(self._class, self.config)
        known = self.model.get_input_embeddings().num_embeddings
        if vocab_size > known:
            raise ValueError(f"path: {path} has {vocab_size} tokens, but embeds only {known}")

    @classmethod
    def tokenizer_of(cls, settings: Settings, folder: Path) -> TaskTokenizer:
        """The tokenizer of the checkpoint."""
        origin = folder_of(settings["path"], settings["revision"])
        if origin != Path(settings["path"]):  # ``check`` has already examined a local folder
            num_tokens_of(origin)
        return PublishedTokenizer(origin)

    @classmethod
    def check(cls, *, path: str, revision: str) -> int | None:
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
        num_tokens = num_tokens_of(folder)
        refuse_other_content(folder, revision)
        return num_tokens

    @property
    def d_model(self) -> int:
        return self.config.hidden_size

    @cached_property
    def max_positions(self) -> int | None:  # type: ignore[override]
        for name, table in self.model.named_modules():
            if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
                # RoBERTa's positions begin after the id of padding.
                unused = 0 if table.padding_idx is None else table.padding_idx + 1
                return table.num_embeddings - unused
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def lookup_tables(self) -> nn.ModuleList:
        return nn.ModuleList(m for m in self.model.modules() if isinstance(m, nn.Embedding))

    @property
    def blocks(self) -> list[nn.Module]:
        """The layers, which models of all families keep in their outermost lists of modules."""
        lists = {n: m for n, m in self.model.named_modules() if isinstance(m, nn.ModuleList)}
        outermost = [
            blocks
            for name, blocks in lists.items()
            if not any(name.startswith(f"{other}.") for other in lists)
        ]
        return [block for blocks in outermost for block in blocks]

    @property
    def token_embedding(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields parameters by their names in transformers, which can then read stored weights."""
        return self.model.named_parameters(prefix, recurse, remove_duplicate)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        ids, segment_ids = batch.input_ids, batch.segment_ids
        if batch.readable_document_ids.max() <= 1:
            return self._states(ids, (batch.document_ids != PADDING).long(), segment_ids)
        groups = documents_of(batch.document_ids)
        states = [
            self._states(
                group.apart(ids),
                group.mask,
                None if segment_ids is None else group.apart(segment_ids),
            )
            for group in groups
        ]
        return together(groups, states, ids)

    def _states(
        self, ids: Int[Tensor, "N L"], mask: Int[Tensor, "N L"], segment_ids: Tensor | None = None
    ) -> Float[Tensor, "N L D"]:
        """The states of rows that hold one document each."""
        segments = {}
        if segment_ids is not None and getattr(self.config, "type_vocab_size", 0) > 1:
            segments["token_type_ids"] = segment_ids
        return self._reader(
            input_ids=ids, attention_mask=mask, return_dict=True, **segments
        ).last_hidden_state

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """The decoder's states, computed with attention to the encoder's states of the same
        document; zeros at padding."""
        assert batch.decoder_input_ids is not None and batch.decoder_document_ids is not None
        groups = pairs_of(batch.document_ids, batch.decoder_document_ids)
        states = [
            self.model.get_decoder()(
                input_ids=written.apart(batch.decoder_input_ids),
                encoder_hidden_states=self._states(read.apart(batch.input_ids), read.mask),
                encoder_attention_mask=read.mask,
                return_dict=True,
            ).last_hidden_state
            for read, written in groups
        ]
        return together([written for _, written in groups], states, batch.decoder_input_ids)

    @property
    def _reader(self) -> PublishedModel:
        return reader_of(self.model, self.config)

    @property
    def compiled_alone(self) -> list[nn.Module]:
        """The parts that compute states. The grouping of packed documents is not compiled, since it
        runs on the host."""
        has_decoder = self.architecture == "encoder_decoder" and self._has_decoder
        return [self._reader, *([self.model.get_decoder()] if has_decoder else [])]

    def add_pretraining_layers(self) -> None:
        """Adds the layers that compute an encoder's logits over the vocabulary.

        Raises ValueError for a checkpoint that was published without them and whose family does not
        compute logits from the token embeddings.
        """
        if self.architecture == "encoder":
            self._class = AutoModelForMaskedLM
            with self._device:
                self.model = uninitialised(self._class, self.config)
        output = self.model.get_output_embeddings()
        is_tied = output is not None and output.weight is self.token_embedding.weight
        if output is None or (is_headless(self.config) and not is_tied):
            raise ValueError(
                f"path: {self._origin['path']} was published without a language modelling head, "
                "and its token embeddings cannot be the head's, so it cannot be pretrained further"
            )

    def drop_pretraining_layers(self) -> None:
        self.model = self.stored_part

    @property
    def stored_part(self) -> PublishedModel:
        """The model without an encoder's language modelling head."""
        return self.model.base_model if self.architecture == "encoder" else self.model

    @property
    def logit_bias(self) -> nn.Parameter | None:
        """The bias of the language modelling head, if that head was not published; else None."""
        return self.model.get_output_embeddings().bias if is_headless(self.config) else None

    def drop_output_layers(self) -> None:
        """Keeps the model without its head, or only the encoder of an encoder-decoder."""
        self.model = self._reader
        self._has_decoder = False

    @property
    def used_architecture(self) -> str:
        dropped = self.architecture == "encoder_decoder" and not self._has_decoder
        return "encoder" if dropped else self.architecture

    @property
    def can_generate(self) -> bool:
        return self.architecture != "encoder" and self.model.can_generate()

    def logits(self, batch: Batch) -> Float[Tensor, "B U V"]:
        assert batch.decoder_input_ids is not None
        if self.architecture == "encoder_decoder":
            return self.model(
                input_ids=batch.input_ids,
                attention_mask=(batch.document_ids != PADDING).long(),
                decoder_input_ids=batch.decoder_input_ids,
            ).logits
        row, num_targets = continued(batch), batch.decoder_input_ids.shape[1]
        real = (row.document_ids != PADDING).long()
        settings = {
            "position_ids": (real.cumsum(dim=1) - 1).clamp(min=0),
            "logits_to_keep": num_targets,
        }
        known = inspect.signature(self.model.forward).parameters
        output = self.model(
            input_ids=row.input_ids,
            attention_mask=real,
            **{name: value for name, value in settings.items() if name in known},
        )
        return output.logits[:, -num_targets:]

    @torch.no_grad()
    def generate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        prompt = prompts(batch) if self.is_causal else batch
        return generated(self.model, prompt, decoding, is_causal=self.is_causal)

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Returns logits from the family's own code, which may transform states and logits: the
        whole model is run, with its body replaced by a function that returns ``states``.

        Raises ValueError for a checkpoint without a language modelling head.
        """
        if self.model.get_output_embeddings() is None:
            raise ValueError(
                f"path: a {self.config.model_type!r} cannot compute the likelihood of text here: "
                "it has no language modelling head"
            )
        row = states.reshape(1, -1, self.d_model)
        ids = torch.zeros(row.shape[:2], dtype=torch.long, device=row.device)
        inputs: dict[str, object] = {"input_ids": ids}
        if both := self.architecture == "encoder_decoder":
            encoded = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=row)
            inputs = {"encoder_outputs": encoded, "decoder_input_ids": ids}
        base = self.model.base_model
        # OPT's head reads the output of ``decoder``, a part of the model without a head.
        last = getattr(base, "decoder", base) if both or self.is_causal else base
        with _giving(last, row):
            return self.model(**inputs).logits.reshape(*states.shape[:-1], -1)

    def initialise(self, *, generator: torch.Generator) -> None:
        """Loads the published weights. If the checkpoint was published without a language modelling
        head, the layers of an added head are random.

        Raises ValueError for weights that are unreadable, incomplete, or not the pinned ones.
        """
        self.check(**self._origin)
        self.model = published(self._class, self.config, self._folder, generator=generator)


def num_tokens_of(folder: Path) -> int:
    """Tests that the checkpoint can be used, and returns its tokenizer's number of tokens. A
    separate process, with limits of time and memory, loads the whole checkpoint. The result is
    remembered until a file changes.

    Raises ValueError for a folder that cannot be used.
    """
    files = [(file, file.stat() if file.exists() else file.lstat()) for file in folder.rglob("*")]
    return _num_tokens_of(
        folder,
        frozenset((file, about.st_ino, about.st_mtime_ns, about.st_size) for file, about in files),
    )


@cache
def _num_tokens_of(folder: Path, files: frozenset[tuple[Path, int, int, int]]) -> int:
    """Returns ``num_tokens_of(folder)``. ``files`` (all files below the folder, each with inode,
    time and size) is only a part of the cache's key."""
    return examined(lambda: _examined(folder), folder, read_files(folder))


def _examined(folder: Path) -> int:
    """Loads the whole checkpoint and returns its tokenizer's number of tokens. Raises ValueError
    for a folder that cannot be used."""
    torch.set_num_threads(1)  # a fork has none of the threads of its parent
    refuse_code(folder)
    weight_files(folder)
    config = config_of(folder)
    architecture_of(config)
    tokenizer = PublishedTokenizer(folder)
    refuse_growth(tokenizer, folder)
    refuse_damaged(folder)
    if tokenizer.vocab_size > (known := getattr(config, "vocab_size", tokenizer.vocab_size)):
        raise ValueError(
            f"path: the tokenizer of {folder} has {tokenizer.vocab_size} tokens, but the model "
            f"embeds only {known}: it belongs to another model"
        )
    model = published(class_of(config), config, folder, generator=torch.Generator())
    refuse_reading_further(reader_of(model, config), config, tokenizer.regular_ids)
    return tokenizer.vocab_size


@contextmanager
def _giving(module: PublishedModel, states: Float[Tensor, "1 N D"]) -> Iterator[None]:
    """Makes a module of transformers return ``states`` for any input.

    Raises ValueError if the module was not called, because the model then used other states.
    """
    output = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states)
    calls = []

    def forward(*_: object, **__: object) -> object:
        calls.append(output)
        return output

    module.forward = forward
    try:
        yield
    finally:
        del module.forward
    if not calls:
        raise ValueError(
            f"path: logits of a {module.config.model_type!r} cannot be computed from its states "
            f"here: its head does not call its {type(module).__name__}"
        )
