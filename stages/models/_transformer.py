"""Transformers: models of the package transformers, of any family, trained from random weights.

A family is one file: a subclass of ``Transformer`` that says how the family's configuration calls
the sizes that all families share. A checkpoint is what ``save_pretrained`` writes.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.utils import logging

from stages.core.components import unknown
from stages.models._attention import ATTENTION, Documents, additive, document_mask, memory_mask
from stages.models._backbone import Backbone, Start
from stages.models._embedding import positions_in_document
from stages.models._generation import Decoding, continued, generated
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, PAD_ID

HEAD_WIDTH, ASPECT_RATIO = 64, 64  # d_model per head, d_model per layer
LOCALITY = 11.0  # how much the logit of a token for itself exceeds that for a distant one
AUTO = {
    "encoder": AutoModelForMaskedLM,
    "decoder": AutoModelForCausalLM,
    "encoder_decoder": AutoModelForSeq2SeqLM,
}
SPECIAL_TOKENS = {
    "pad_token_id": PAD_ID,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "cls_token_id": BOS_ID,
    "sep_token_id": EOS_ID,
    "mask_token_id": MASK_ID,
    "decoder_start_token_id": BOS_ID,
}
LOCAL = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}

logging.set_verbosity_error()  # no warnings about unused heads and lengths of texts
logging.disable_progress_bar()


class Transformer(Backbone):
    """A model of transformers with its language modelling head, until ``drop_output_layers`` leaves
    the part that computes the states of input tokens: the model without its head, or the encoder
    of an encoder-decoder (as in encoders taken from T5; Ni et al. 2022).

    Omitted sizes follow from d_model: d_model / 64 layers (Kaplan et al. 2020, section 3.1),
    d_model / 64 heads, and the ``d_ff`` of the family. ``config`` sets further fields of the
    family's configuration.

    ``start: local`` draws equal random biases of queries and keys, so that a token's attention
    logits decrease with the distance (the long-term decay of rotary positions; Su et al. 2021,
    section 3.4.3). With biases of 0, as is usual, a masked token finds its neighbours only after
    both biases have grown: small models predicted unigram frequencies for hundreds of steps.

    Raises ValueError for sizes and fields that the family does not have.
    """

    names: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # our sizes, as the family's fields
    defaults: ClassVar[Mapping[str, Any]] = {}  # fields that differ from the family's defaults
    d_ff_factor: ClassVar[float] = 4.0  # of the default d_ff; fewer where the MLP is gated
    sizes = ("num_layers", "num_heads", "d_ff", "start")
    takes_masks: bool = True  # if not, the model gets masks of padding, and one document a row

    def __init__(
        self,
        vocab_size: int,
        *,
        d_model: int,
        num_layers: int | None = None,
        num_heads: int | None = None,
        d_ff: int | None = None,
        start: Start = "usual",
        config: dict[str, Any] = {},  # noqa: B006 (never changed)
    ) -> None:
        self.num_heads = num_heads or _quotient("num_heads", d_model, HEAD_WIDTH)
        self.d_ff = d_ff or 8 * round(self.d_ff_factor * d_model / 8)
        given = {
            "d_model": d_model,
            "num_layers": num_layers or _quotient("num_layers", d_model, ASPECT_RATIO),
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "head_width": d_model // self.num_heads,
        }
        for name, value in given.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if d_model % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} must divide d_model {d_model}")
        shared = {field: given[name] for name, fields in self.names.items() for field in fields}
        self._prepare(vocab_size, self._configured(vocab_size, shared, config), start)

    def _prepare(self, vocab_size: int, config: Any, start: Start) -> None:
        """Sets what follows from a configuration, and builds the model without weights."""
        super().__init__()
        config.use_cache = False  # keys and values are cached for generation only
        self.config, self.vocab_size, self.start = config, vocab_size, start
        self.num_layers, self.d_model = config.num_hidden_layers, config.hidden_size
        self.used_architecture = self.architecture
        with torch.device("meta"):
            self.model: Any = self._with_attention(self._class().from_config(config))
        if start == "local" and not any(True for _ in self.query_key_biases()):
            raise ValueError(
                "start: local needs rotary positions and biases of queries and keys, which "
                f"{self.family} lacks; valid: usual"
            )

    @classmethod
    def _configured(
        cls, vocab_size: int, sizes: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Any:
        kind = CONFIG_MAPPING[cls.family]
        known = {*kind().to_dict(), *kind.attribute_map}
        for field in config:
            if field not in known:
                raise ValueError(f"config: {unknown(field, sorted(known))}")
            if field in sizes or kind.attribute_map.get(field) in sizes:
                raise ValueError(f"config.{field}: is set by d_model and the other sizes")
        special = {key: value for key, value in SPECIAL_TOKENS.items() if key in known}
        try:
            return kind(**{"vocab_size": vocab_size, **special, **cls.defaults, **sizes, **config})
        except Exception as error:  # a configuration raises errors of many types
            raise ValueError(f"config: {' '.join(str(error).split())}") from None

    def _class(self) -> Any:
        """The class of transformers that builds and loads the model."""
        return AUTO[self.architecture]

    def _with_attention(self, model: Any) -> Any:
        """Returns the model without a pooler, and with our attention where its family allows it."""
        model.set_attn_implementation(ATTENTION)
        self.takes_masks = model.config._attn_implementation == ATTENTION
        if getattr(model, "pooler", None) is not None:
            model.pooler = None
        return model

    # Weights -------------------------------------------------------------------------------------

    def initialise(self, *, generator: torch.Generator) -> None:
        with seeded(generator):
            self.model = self._with_attention(self._class().from_config(self.config))
        if self.start == "local":
            with torch.no_grad():
                for query, key in self.query_key_biases():
                    width = self.d_model // self.config.num_attention_heads
                    query.normal_(0, (LOCALITY / width**0.5) ** 0.5, generator=generator)
                    key.copy_(query)

    def query_key_biases(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the biases of queries and keys of each block with rotary positions, as parts of
        its parameters of equal shape."""
        return iter(())

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder, max_shard_size="1TB")

    def load(self, folder: Path) -> None:
        self.model = self._loaded(folder)

    def _loaded(self, folder: Path, *, head: bool = True) -> Any:
        """Returns the model with the weights in ``folder``. Without ``head``, the layers between
        states and logits may be missing there; they are then random."""
        try:
            model, report = self._class().from_pretrained(
                folder,
                config=self.config,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # mismatches are refused by name below
                output_loading_info=True,
                **LOCAL,
            )
        except Exception as error:  # weights that do not fit raise errors of many types
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"path: the weights of {folder}: {reason}") from None
        for name, stored, expected in sorted(report["mismatched_keys"]):
            raise ValueError(
                f"path: the weights of {folder}: {name} has the shape {[*stored]}, but the model "
                f"has {[*expected]}"
            )
        body = "" if head else f"{model.base_model_prefix}."
        missing = sorted(
            key for key in report["missing_keys"] if key.startswith(body) and "pooler." not in key
        )
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ValueError(f"path: the weights of {folder} lack {missing[0]}{more}")
        return self._with_attention(model)

    # Parts ---------------------------------------------------------------------------------------

    @property
    def reader(self) -> Any:
        """The part that computes the states of input tokens."""
        base = self.model.base_model
        is_whole = self.used_architecture == "encoder_decoder"
        return getattr(base, "encoder", base) if is_whole else base

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

    @cached_property
    def max_positions(self) -> int | None:  # type: ignore[override]
        table = self._position_table
        if table is not None:
            return table.num_embeddings - self._first_position - getattr(table, "offset", 0)
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def _position_table(self) -> nn.Embedding | None:
        """The learnt embedding of absolute positions."""
        for name, table in self.model.named_modules():
            if name.endswith(("position_embeddings", "embed_positions", "wpe")):
                return table if isinstance(table, nn.Embedding) else None
        return None

    @cached_property
    def _first_position(self) -> int:
        """The first position: RoBERTa's positions begin after the id of padding."""
        padding = getattr(self._position_table, "padding_idx", None)
        return 0 if padding is None else padding + 1

    @property
    def design(self) -> str:
        left = "states" if self.model is self.reader else "all"
        config = {k: v for k, v in self.config.to_dict().items() if not k.startswith("_")}
        return f"{self.used_architecture}, {left}, {json.dumps(config, sort_keys=True)}"

    @property
    def compiled_alone(self) -> list[nn.Module]:
        has_decoder = self.used_architecture == "encoder_decoder"
        return [self.reader, *([self.model.get_decoder()] if has_decoder else [])]

    def drop_output_layers(self) -> None:
        self.model = self.reader
        if self.used_architecture == "encoder_decoder":
            self.used_architecture = "encoder"

    @property
    def can_generate(self) -> bool:
        return self.used_architecture != "encoder" and self.model.can_generate()

    @property
    def logit_bias(self) -> Tensor | None:
        """BART's is no parameter, but part of its checkpoints."""
        output = self.model.get_output_embeddings()
        bias = getattr(output, "bias", None)
        if bias is None and hasattr(self.model, "final_logits_bias"):
            return self.model.final_logits_bias[0]
        return bias

    # States --------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        is_packed = bool(batch.readable_document_ids.max() > 1)
        if is_packed and not self.takes_masks:
            return self._apart(batch)
        inputs = self._inputs(
            self.reader,
            batch.input_ids,
            batch.document_ids,
            is_packed=is_packed,
            visible=batch.visible,
            starts=batch.document_starts,
        )
        if batch.segment_ids is not None and getattr(self.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = batch.segment_ids
        return self.reader(**inputs).last_hidden_state

    def _inputs(
        self,
        part: Any,
        ids: Int[Tensor, "B T"],
        documents: Int[Tensor, "B T"],
        *,
        is_packed: bool,
        visible: Tensor | None = None,
        starts: Tensor | None = None,
        causal: bool | None = None,
    ) -> dict[str, Any]:
        """Returns the tokens, positions and mask with which a part of the model reads rows."""
        if not self.takes_masks:
            return {"input_ids": ids, "attention_mask": (documents != PADDING).long()}
        causal = self.is_causal if causal is None else causal
        positions = positions_in_document(documents)
        inputs: dict[str, Any] = {"input_ids": ids}
        if "position_ids" in _parameters(type(part)):
            inputs["position_ids"] = positions + self._first_position
        elif is_packed and self._position_table is not None:
            # BART counts positions by itself, from the beginning of the row.
            table, offset = part.embed_positions.weight, part.embed_positions.offset
            index = torch.arange(ids.shape[1], device=ids.device)
            moved = table[positions + offset] - table[index + offset]
            inputs = {"inputs_embeds": part.embed_tokens(ids) + moved}
        device = "cuda" if ids.is_cuda else "cpu"
        in_16_bits = torch.is_autocast_enabled(device)
        if starts is not None and visible is None and in_16_bits and self._takes_starts:
            packed = Documents(starts, ids.shape[1], causal)
            return inputs | {"documents": packed, "attention_mask": ids.new_zeros(1, 1, 1, 1)}
        dtype = torch.get_autocast_dtype(device) if in_16_bits else torch.float32

        def mask(window: int | None) -> Tensor:
            seen = document_mask(
                documents, documents, causal=causal, visible=visible, window=window
            )
            return additive(seen, dtype)

        windows = self._windows(causal)
        if len(windows) == 1:
            (window,) = windows.values()
            return inputs | {"attention_mask": mask(window)}
        return inputs | {"attention_mask": {kind: mask(window) for kind, window in windows.items()}}

    def _windows(self, causal: bool) -> dict[str, int | None]:
        """The largest distance of attention in each type of layer; None for no limit."""
        width = getattr(self.config, "sliding_window", None)
        types = getattr(self.config, "layer_types", None) or [
            "full_attention" if width is None else "sliding_attention"
        ]
        reach = None if width is None else width - 1 if causal else width
        return {kind: reach if kind == "sliding_attention" else None for kind in types}

    @property
    def _takes_starts(self) -> bool:
        """Whether kernels for documents of different lengths compute the attention: they know no
        position biases and windows, and only some widths of heads."""
        width = self.d_model // self.config.num_attention_heads
        no_windows = [*self._windows(self.is_causal).values()] == [None]
        has_bias = hasattr(self.config, "relative_attention_num_buckets")
        return no_windows and not has_bias and width % 8 == 0 and width <= 256

    def _apart(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """The states of packed documents, each read in a row of its own, by a family that does not
        take our masks."""
        documents = batch.readable_document_ids
        number = documents + (documents.max() + 1) * torch.arange(len(documents))[:, None]
        flat = torch.where(documents == PADDING, -1, number).flatten()
        places = [(flat == i).nonzero()[:, 0] for i in flat.unique().tolist() if i >= 0]
        index = nn.utils.rnn.pad_sequence(places, batch_first=True, padding_value=-1)
        index = index.to(batch.input_ids.device)
        ids = batch.input_ids.flatten()[index.clamp(min=0)]
        read = self.reader(input_ids=ids, attention_mask=(index >= 0).long()).last_hidden_state
        states = read.new_zeros(documents.numel(), read.shape[2])
        states[index[index >= 0]] = read[index >= 0]
        return states.unflatten(0, documents.shape)

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        ids, documents = batch.decoder_input_ids, batch.decoder_document_ids
        assert ids is not None and documents is not None
        states, decoder = self(batch), self.model.get_decoder()
        is_packed = bool(batch.readable_document_ids.max() > 1)
        if is_packed and not self.takes_masks:
            raise ValueError(
                f"architecture: a {self.family} cannot be pretrained here: it does not keep packed "
                "documents apart"
            )
        inputs = self._inputs(
            decoder,
            ids,
            documents,
            is_packed=is_packed,
            starts=batch.decoder_document_starts,
            causal=True,
        )
        if self.takes_masks:
            memory = additive(memory_mask(documents, batch.document_ids), states.dtype)
        else:
            memory = (batch.document_ids != PADDING).long()
        return decoder(
            **inputs, encoder_hidden_states=states, encoder_attention_mask=memory
        ).last_hidden_state

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits by the family's own code, which may transform states and logits: the whole model
        is run, with its body replaced by a function that returns ``states``.

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

    # Writing -------------------------------------------------------------------------------------

    def logits(self, batch: Batch) -> Float[Tensor, "B U V"]:
        if self.architecture == "encoder_decoder":
            return self.unembed(self.decode(batch))
        row, num_inputs = continued(batch), batch.input_ids.shape[1]
        return self.unembed(self(row)[:, num_inputs - 1 :])

    @torch.no_grad()
    def generate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        return generated(self.model, batch, decoding, is_causal=self.is_causal)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Within this context torch's own generator, which transformers draws weights from, continues
    ``generator``."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield


@contextmanager
def _giving(module: Any, states: Float[Tensor, "1 N D"]) -> Iterator[None]:
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


_PARAMETERS = dict[type, frozenset[str]]()


def _parameters(part: type[nn.Module]) -> frozenset[str]:
    """The names of the arguments of a module's ``forward``."""
    if part not in _PARAMETERS:
        _PARAMETERS[part] = frozenset(signature(part.forward).parameters)
    return _PARAMETERS[part]


def _quotient(name: str, d_model: int, ratio: int) -> int:
    if d_model % ratio:
        raise ValueError(
            f"{name} is d_model / {ratio} if it is left out, and {d_model} is no multiple of "
            f"{ratio}; give {name} a value"
        )
    return d_model // ratio
