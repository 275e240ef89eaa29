"""Transformers: models of the package transformers, of any family, trained from random weights.

A family is one file: a subclass of ``Transformer`` that names it and says where it differs from the
family's defaults. A checkpoint is what ``save_pretrained`` writes.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, GenerationConfig
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.auto import modeling_auto
from transformers.utils import logging

from stages.core.components import unknown
from stages.core.seeding import seeded
from stages.models._attention import ATTENTION, PREFIX, Documents, additive, document_mask
from stages.models._backbone import Architecture, Backbone, Start
from stages.text.batch import PADDING, Batch
from stages.text.checkpoints import LOCAL, config_of, line_of
from stages.text.tokenizer import BOS_ID, EOS_ID, MASK_ID, PAD_ID

RATIO = 64  # d_model per head, d_model per layer
LOCALITY = 11.0  # how much the logit of a token for itself exceeds that for a distant one
AUTO: dict[str, Any] = {
    "encoder": modeling_auto.AutoModelForMaskedLM,
    "decoder": modeling_auto.AutoModelForCausalLM,
    "encoder_decoder": modeling_auto.AutoModelForSeq2SeqLM,
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
# The fields of configurations that hold the sizes; a family has some of them.
SIZES = {
    "d_model": ("hidden_size",),
    "num_layers": ("num_hidden_layers", "num_decoder_layers", "decoder_layers"),
    "num_heads": ("num_attention_heads", "num_key_value_heads", "decoder_attention_heads"),
    "d_ff": ("intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"),
    "head_width": ("d_kv",),
}

logging.set_verbosity_error()  # no warnings about unused heads and lengths of texts
logging.disable_progress_bar()


class Transformer(Backbone):
    """A model of transformers with its language modelling head, until ``drop_output_layers`` leaves
    the model without its head, or the encoder of an encoder-decoder (Ni et al. 2022).

    Omitted sizes follow from d_model: d_model / 64 layers (Kaplan et al. 2020, section 3.1),
    d_model / 64 heads, and the ``d_ff`` of the family. ``config`` sets further fields of the
    family's configuration.

    ``start: local`` draws equal random biases of queries and keys, so that a token's attention
    logits decrease with the distance (the long-term decay of rotary positions; Su et al. 2021,
    section 3.4.3). With biases of 0, as is usual, a masked token finds its neighbours only after
    both biases have grown: small models predicted unigram frequencies for hundreds of steps.

    Raises ValueError for sizes and fields that the family does not have.
    """

    family: str  # the ``model_type`` of the configuration
    defaults: ClassVar[Mapping[str, Any]] = {}  # fields that differ from the family's defaults
    d_ff_factor: ClassVar[float] = 4.0  # default d_ff / d_model; smaller where the MLP is gated
    sizes = ("num_layers", "num_heads", "d_ff", "start")
    has_published_head: bool = False

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
        depth, heads = num_layers or d_model / RATIO, num_heads or d_model / RATIO
        if min(depth, heads) < 1 or depth % 1 or heads % 1 or d_model % heads:
            raise ValueError(
                f"d_model {d_model}: num_layers ({depth:g}) and num_heads ({heads:g}), which are "
                f"d_model / {RATIO} if left out, must be at least 1, and num_heads must divide it"
            )
        self.num_heads = int(heads)
        self.d_ff = d_ff or 8 * round(self.d_ff_factor * d_model / 8)
        values = {
            "d_model": d_model,
            "num_layers": int(depth),
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "head_width": d_model // self.num_heads,
        }
        if self.family not in CONFIG_MAPPING:
            raise ValueError(f"family: transformers has no model_type {self.family!r}")
        kind = CONFIG_MAPPING[self.family]
        own_name = kind.attribute_map
        known = {*kind().to_dict(), *own_name}
        fields = {
            own_name.get(field, field): values[name]
            for name, fields in SIZES.items()
            for field in fields
            if field in known
        }
        for field in config:
            if field not in known or own_name.get(field, field) in fields:
                settable = sorted({*known} - {*fields})
                raise ValueError(f"config: {unknown(field, settable)}")
        special = {key: value for key, value in SPECIAL_TOKENS.items() if key in known}
        # Some families would keep the published width of a head, such as Qwen3's 128.
        head = {"head_dim": d_model // self.num_heads} if "head_dim" in known else {}
        fields = {"vocab_size": vocab_size, **special, **head, **self.defaults, **fields, **config}
        try:
            configuration = kind(**fields)
        except Exception as error:  # a configuration raises errors of many types
            raise ValueError(f"config: {line_of(error)}") from None
        self._outline(vocab_size, configuration, start)

    def _outline(self, vocab_size: int, config: Any, start: Start) -> None:
        """Sets what follows from a configuration, and builds the model without weights."""
        super().__init__()
        config.use_cache = False  # keys and values are cached for generation only
        self.config, self.vocab_size, self.start = config, vocab_size, start
        self.num_layers, self.d_model = config.num_hidden_layers, config.hidden_size
        self.architecture = architecture_of(config)
        self._class = modeling_auto.AutoModel if is_headless(config) else AUTO[self.architecture]
        with torch.device("meta"):
            self.model: Any = self._with_attention(self._class.from_config(config))
        # RoBERTa's positions begin after the id of padding.
        padding = getattr(self._position_table, "padding_idx", None)
        self._first_position = 0 if padding is None else padding + 1
        if (most := getattr(config, "max_position_embeddings", None)) is not None:
            self.max_positions = most - self._first_position
        if start == "local" and not any(True for _ in self.query_key_biases()):
            raise ValueError(
                "start: local needs rotary positions and biases of queries and keys; "
                f"`query_key_biases` finds none in {self.family}; valid: usual"
            )

    # Weights -------------------------------------------------------------------------------------

    def _with_attention(self, model: Any) -> Any:
        """Returns the model without a pooler, and with our attention where its family allows it. A
        family that does not gets masks of padding, and one document a row."""
        model.set_attn_implementation(ATTENTION)
        self.takes_masks = model.config._attn_implementation == ATTENTION
        if self.architecture == "encoder_decoder" and not self.takes_masks:
            raise ValueError(f"path: encoder-decoders of {self.family!r} take no masks")
        if getattr(model, "pooler", None) is not None:
            model.pooler = None
        return model

    def initialise(self, *, generator: torch.Generator) -> None:
        with seeded(generator):
            self.model = self._with_attention(self._class.from_config(self.config))
        if self.start == "local":
            width = self.d_model // self.config.num_attention_heads
            with torch.no_grad():
                for query, key in self.query_key_biases():
                    query.normal_(0, (LOCALITY / width**0.5) ** 0.5, generator=generator)
                    key.copy_(query)

    def query_key_biases(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the biases of queries and keys of each attention with rotary positions, as parts
        of its parameters of equal shape. A family with other names for them overrides this."""
        if not getattr(self.config, "rope_parameters", None):
            return
        for module in self.model.modules():
            query = key = None
            if hasattr(module, "q_proj"):
                query, key = module.q_proj.bias, module.k_proj.bias
            elif hasattr(module, "Wqkv") and module.Wqkv.bias is not None:
                query, key, _ = module.Wqkv.bias.chunk(3)
            if query is not None and key is not None and query.shape == key.shape:
                yield query, key

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder, max_shard_size="1TB")

    def load(self, folder: Path) -> None:
        """Loads the weights in ``folder``. A head that is not among them, since the checkpoint was
        published without one, is drawn from torch's own generator."""
        try:
            model, report = self._class.from_pretrained(
                folder,
                config=self.config,
                dtype=torch.float32,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are refused by name below
                output_loading_info=True,
                **LOCAL,
            )
        except Exception as error:  # weights that do not fit raise errors of many types
            raise ValueError(f"path: the weights of {folder}: {line_of(error)}") from None
        body = f"{model.base_model_prefix}." if is_headless(config_of(folder)) else ""
        lost = [key for key in report["missing_keys"] if key.startswith(body)]
        lost += [key for key, *_ in report["mismatched_keys"]]
        if lost := sorted(key for key in lost if "pooler." not in key):
            raise ValueError(f"path: the weights of {folder} lack {lost[0]} in the model's shape")
        self.model = self._with_attention(model)

    # Parts ---------------------------------------------------------------------------------------

    @property
    def reader(self) -> Any:
        """The part that computes the states of input tokens."""
        base = self.model.base_model
        return getattr(base, "encoder", base) if self.architecture == "encoder_decoder" else base

    @property
    def blocks(self) -> list[nn.Module]:
        """The layers, which models of all families keep in their outermost lists of modules."""
        lists = {n: m for n, m in self.model.named_modules() if isinstance(m, nn.ModuleList)}
        inner = {n for n in lists for other in lists if n.startswith(f"{other}.")}
        return [block for n, blocks in lists.items() if n not in inner for block in blocks]

    @property
    def token_embedding(self) -> nn.Module:
        return self.model.get_input_embeddings()

    @property
    def _position_table(self) -> nn.Embedding | None:
        """The learnt embedding of absolute positions."""
        for name, table in self.model.named_modules():
            if name.endswith(("position_embeddings", "embed_positions", "wpe")):
                return table if isinstance(table, nn.Embedding) else None
        return None

    @property
    def design(self) -> str:
        part = "states" if self.model is self.reader else "all"
        config = {k: v for k, v in self.config.to_dict().items() if not k.startswith("_")}
        return f"{self.architecture}, {part}, {json.dumps(config, sort_keys=True)}"

    def drop_output_layers(self) -> None:
        self.model = self.reader
        if self.architecture == "encoder_decoder":
            self.architecture = "encoder"

    def compile(self, *args: object, **kwargs: object) -> None:
        self.reader.compile(*args, **kwargs)
        if self.architecture == "encoder_decoder":
            self.model.get_decoder().compile(*args, **kwargs)

    @property
    def can_generate(self) -> bool:
        return self.architecture != "encoder" and self.model.can_generate()

    @property
    def logit_bias(self) -> Tensor | None:
        """None for a published head. BART's is no parameter, but part of its checkpoints."""
        if self.has_published_head:
            return None
        bias = getattr(self.model.get_output_embeddings(), "bias", None)
        if bias is None and hasattr(self.model, "final_logits_bias"):
            return self.model.final_logits_bias[0]
        return bias

    # States --------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        is_packed = bool(batch.readable_document_ids.max() > 1)
        if is_packed and not self.takes_masks:
            return self._apart(batch)
        inputs = self._inputs(self.reader, batch, causal=self.is_causal, is_packed=is_packed)
        if batch.segment_ids is not None and getattr(self.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = batch.segment_ids
        return self.reader(**inputs).last_hidden_state

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """A causal model reads each input followed by its target, whose first token is left out:
        the input's last token predicts the target's first."""
        ids, documents = batch.decoder_input_ids, batch.decoder_document_ids
        assert ids is not None and documents is not None
        if self.is_causal:
            prompt, length = prompts(batch), ids.shape[1] - 1
            visible = prompt.visible
            row = Batch(
                input_ids=torch.cat([prompt.input_ids, ids[:, 1:]], dim=1),
                document_ids=torch.cat([prompt.document_ids, documents[:, 1:]], dim=1),
                visible=None if visible is None else F.pad(visible, (0, length), value=False),
                num_targets={},
            )
            return self(row)[:, batch.input_ids.shape[1] - 1 :]
        starts = batch.document_starts.get("decoder_document_ids")
        target = Batch(
            input_ids=ids,
            document_ids=documents,
            document_starts={} if starts is None else {"document_ids": starts},
            num_targets={},
        )
        states, decoder = self(batch), self.model.get_decoder()
        is_packed = bool(batch.readable_document_ids.max() > 1)
        # Padding attends to the whole input, so that no row of the softmax is empty.
        seen = document_mask(documents, batch.document_ids)
        seen |= (documents == PADDING)[:, None, :, None]
        inputs = self._inputs(decoder, target, causal=True, is_packed=is_packed) | {
            "encoder_hidden_states": states,
            "encoder_attention_mask": additive(seen, states.dtype),
        }
        return decoder(**inputs).last_hidden_state

    def _inputs(self, part: Any, batch: Batch, *, causal: bool, is_packed: bool) -> dict[str, Any]:
        """Returns the tokens, positions and mask with which a part of the model reads rows."""
        ids, documents, visible = batch.input_ids, batch.document_ids, batch.visible
        if not self.takes_masks:
            return {"input_ids": ids, "attention_mask": (documents != PADDING).long()}
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
        dtype = torch.get_autocast_dtype(device) if in_16_bits else torch.float32
        # The largest distance of attention in each type of layer; None for no limit.
        width = getattr(self.config, "sliding_window", None)
        types = getattr(self.config, "layer_types", None)
        types = types or ["full_attention" if width is None else "sliding_attention"]
        reach = None if width is None else width - 1 if causal else width
        windows = {t: reach if t == "sliding_attention" else None for t in types}
        # The kernels for documents know no windows, no position biases and only some widths.
        per_head = self.d_model // self.config.num_attention_heads
        has_bias = hasattr(self.config, "relative_attention_num_buckets")
        suits = {*windows.values()} == {None} and not has_bias and per_head in range(8, 257, 8)
        starts = batch.document_starts.get("document_ids")
        if starts is not None and visible is None and in_16_bits and suits:
            packed = Documents(starts, ids.shape[1], causal)
            return inputs | {"documents": packed, "attention_mask": ids.new_zeros(1, 1, 1, 1)}
        seen = {
            kind: document_mask(documents, documents, causal=causal, visible=visible, window=window)
            for kind, window in windows.items()
        }
        masks = {kind: additive(mask, dtype) for kind, mask in seen.items()}
        return inputs | {"attention_mask": masks if len(masks) > 1 else masks[types[0]]}

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

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits by the family's own code, which may transform states and logits: the whole model
        is run, with its body replaced by a function that returns ``states``."""
        row = states.reshape(1, -1, self.d_model)
        ids = torch.zeros(row.shape[:2], dtype=torch.long, device=row.device)
        given = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=row)
        inputs: dict[str, object] = {"input_ids": ids}
        if both := self.architecture == "encoder_decoder":
            inputs = {"encoder_outputs": given, "decoder_input_ids": ids}
        base = self.model.base_model
        # OPT's head reads the output of ``decoder``, a part of the model without a head.
        body = getattr(base, "decoder", base) if both or self.is_causal else base
        calls = []
        body.forward = lambda *_, **__: calls.append(given) or given
        try:
            logits = self.model(**inputs).logits
        finally:
            del body.forward
        assert calls, f"the head of {self.family} reads another part of the model"
        return logits.reshape(*states.shape[:-1], -1)

    @torch.no_grad()
    def generate(
        self,
        batch: Batch,
        *,
        max_new_tokens: int,
        start_id: int,
        eos_id: int,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        draws: bool = False,
    ) -> list[list[int]]:
        prompt = prompts(batch) if self.is_causal else batch
        documents = prompt.document_ids
        beams: dict[str, Any] = {}
        if num_beams > 1:  # transformers saves no settings of beams for a single beam
            beams = {"length_penalty": length_penalty, "early_stopping": "never"}
        self.model.generation_config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            do_sample=False,
            use_cache=True,
            decoder_start_token_id=None if self.is_causal else start_id,
            eos_token_id=eos_id,
            pad_token_id=eos_id,
            **beams,
        )
        # Given to the call, so that the checkpoint stays one that writes greedily.
        drawing: dict[str, Any] = {"do_sample": True, "top_k": 0} if draws else {}
        prefix = None
        if prompt.visible is not None:
            prefix = document_mask(documents, documents, causal=True, visible=prompt.visible)
        token = PREFIX.set(prefix)
        try:
            rows = self.model.generate(
                input_ids=prompt.input_ids,
                attention_mask=(documents != PADDING).long(),
                **drawing,
            )
        finally:
            PREFIX.reset(token)
        texts = rows[:, prompt.input_ids.shape[1] if self.is_causal else 1 :].tolist()
        return [text[: text.index(eos_id)] if eos_id in text else text for text in texts]


def architecture_of(config: Any) -> Architecture:
    """Returns our name for the architecture of a configuration. Raises ValueError if it is not that
    of a language model."""
    kind = config.model_type
    writes = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    fills_in = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if config.is_encoder_decoder and kind in writes:
        return "encoder_decoder"
    # BERT can be run as a decoder too, but was not published as one.
    if kind in fills_in and not getattr(config, "is_decoder", False):
        return "encoder"
    if kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "decoder"
    raise ValueError(f"path: a {kind!r} (config.json) is not a language model of transformers")


def is_headless(config: Any) -> bool:
    """Whether a checkpoint was published without a language modelling head: without any head, or
    with the head of ELECTRA's discriminator."""
    without = {modeling_auto.MODEL_MAPPING_NAMES.get(config.model_type), "ElectraForPreTraining"}
    return len(config.architectures or ()) == 1 and config.architectures[0] in without


def prompts(batch: Batch) -> Batch:
    """Returns the input's rows with padding on the left, so that a continuation directly follows
    each row. A row must hold one document."""
    real = batch.document_ids != PADDING
    order = real.int().argsort(dim=1, stable=True)
    visible = batch.visible
    return Batch(
        input_ids=batch.input_ids.gather(1, order),
        document_ids=batch.document_ids.gather(1, order),
        visible=None if visible is None else visible.gather(1, order),
        num_targets={},
    )


def positions_in_document(document_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Returns the positions 0, 1, 2, ... within each document of a row."""
    index = torch.arange(document_ids.shape[1], device=document_ids.device).expand_as(document_ids)
    begins = torch.ones_like(document_ids, dtype=torch.bool)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return index - torch.where(begins, index, 0).cummax(dim=1).values


@cache
def _parameters(part: type[nn.Module]) -> frozenset[str]:
    """The names of the arguments of a module's ``forward``."""
    return frozenset(signature(part.forward).parameters)
