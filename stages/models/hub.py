"""A public checkpoint: a model of the Hugging Face hub, by ``transformers``.

Only safetensors are loaded (``text/published.py`` says what of a checkpoint is read, and how it is
pinned).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    LogitsProcessor,
)
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from stages.models._backbone import Backbone
from stages.models._documents import Documents, documents_of, pairs_of
from stages.models._generation import Decoding, before_end, continued, drawn, prompts
from stages.text.batch import PADDING, Batch
from stages.text.published import (
    LOCAL,
    WEIGHTS,
    PublishedTokenizer,
    config_of,
    files_in,
    folder_of,
    line_of,
    refuse_other_content,
    refuse_unpinned,
)
from stages.text.tokenizer import TaskTokenizer

PROBED = (8, 16)  # tokens of the rows whose operations are counted


class Hub(Backbone):
    """The states are those of the last layer; of an encoder-decoder, the encoder's. Text is written
    by ``generate`` of transformers, with the settings of ours and none that was published.

    ``revision`` pins what is compared. Of a name on the hub it is the whole hash of a commit, since
    a branch or a tag can be moved and the hub does not resolve a shorter hash; of a folder, the
    first 12 hex digits of the hash of its content, which DVC does not watch.

    BERT's pooler, a layer on the first token's state, is left out: all models get the same head.
    What gives an encoder the logits of words is there while it is pretrained further, and not kept.
    Documents that are packed in a row are run each by itself.
    """

    is_transformer = True

    def __init__(self, vocab_size: int, *, path: str, revision: str) -> None:
        """Raises ValueError for what cannot be found, or is no language model."""
        super().__init__()
        self._origin, self._folder = {"path": path, "revision": revision}, folder_of(path, revision)
        self.config = config_of(self._folder)
        self.config.use_cache = False  # of attention, for text that is written token by token
        self.architecture = self.trained_like = _architecture(self.config)
        self.pooling = "last" if self.architecture == "decoder" else "mean"
        self.vocab_size = vocab_size
        self.num_layers = self.config.num_hidden_layers
        self._class = _class_of(self.config)
        self.model: Any = self._outline()
        known = self.model.get_input_embeddings().num_embeddings
        if vocab_size > known:
            raise ValueError(f"path: {path} has {vocab_size} tokens, but embeds only {known}")

    def _outline(self) -> Any:
        """The model, its weights not those published as yet."""
        model = self._class.from_config(self.config, dtype=torch.float32, trust_remote_code=False)
        return _without_pooler(model)

    @classmethod
    def tokenizer_of(cls, settings: Mapping[str, Any], folder: Path) -> TaskTokenizer:
        """The tokenizer that the checkpoint brings along."""
        return PublishedTokenizer(folder_of(settings["path"], settings["revision"]))

    @classmethod
    def check(cls, *, path: str, revision: str) -> int | None:
        """The tokenizer's number of tokens, or None where only the hub knows it.

        Raises ValueError for what is wrong with a name's form, or with the content of a folder.
        """
        if not Path(path).is_dir():
            refuse_unpinned(path, revision)
            return None
        folder = Path(path)
        _refuse_pickles(folder)
        _architecture(config_of(folder))
        tokenizer = PublishedTokenizer(folder)
        refuse_other_content(folder, revision)
        return tokenizer.vocab_size

    @property
    def d_model(self) -> int:
        return self.config.hidden_size

    @cached_property
    def max_positions(self) -> int | None:  # type: ignore[override]
        for name, table in self.model.named_modules():
            if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
                # RoBERTa's begin behind the id of padding.
                unused = 0 if table.padding_idx is None else table.padding_idx + 1
                return table.num_embeddings - unused
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def embedding(self) -> nn.ModuleList:  # type: ignore[override]
        """All tables that are looked up: of tokens, positions and segments."""
        return nn.ModuleList(m for m in self.model.modules() if isinstance(m, nn.Embedding))

    @property
    def blocks(self) -> list[nn.Module]:
        """What the outermost lists of modules hold: layers, in all of transformers."""
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

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """By their names in transformers, which so can read the stored weights, too."""
        return self.model.named_parameters(*args, **kwargs)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        ids, segment_ids = batch.input_ids, batch.segment_ids
        if batch.document_ids.max() <= 1:
            return self._states(ids, (batch.document_ids != PADDING).long(), segment_ids)
        documents = documents_of(batch.document_ids)
        segment_ids = None if segment_ids is None else documents.apart(segment_ids)
        return documents.together(self._states(documents.apart(ids), documents.mask, segment_ids))

    def _states(
        self, ids: Int[Tensor, "N L"], mask: Int[Tensor, "N L"], segment_ids: Tensor | None = None
    ) -> Float[Tensor, "N L D"]:
        """Of rows of one document each."""
        segments = {}
        if segment_ids is not None and getattr(self.config, "type_vocab_size", 0) > 1:
            segments["token_type_ids"] = segment_ids
        return self._reader(
            input_ids=ids, attention_mask=mask, return_dict=True, **segments
        ).last_hidden_state

    def decode(self, batch: Batch) -> Float[Tensor, "B U D"]:
        """The decoder's states, from the encoder's of the same document; zeros of padding."""
        assert batch.decoder_input_ids is not None
        read, written = self._pairs(batch)
        memory = self._states(read.apart(batch.input_ids), read.mask)
        decoded = self.model.get_decoder()(
            input_ids=written.apart(batch.decoder_input_ids),
            encoder_hidden_states=memory,
            encoder_attention_mask=read.mask,
            return_dict=True,
        )
        return written.together(decoded.last_hidden_state)

    @staticmethod
    def _pairs(batch: Batch) -> tuple[Documents, Documents]:
        assert batch.decoder_document_ids is not None
        return pairs_of(batch.document_ids, batch.decoder_document_ids)

    @property
    def _reader(self) -> Any:
        """What reads the input: the model without its head, or its encoder."""
        base = self.model.base_model
        both = self.architecture == "encoder_decoder"
        return getattr(base, "encoder", base) if both else base

    def add_pretraining_layers(self) -> None:
        """Add the published layers that compute an encoder's logits over the vocabulary.

        Raises ValueError for a checkpoint that was published without them.
        """
        if self.architecture == "encoder" and not _is_headless(self.config):
            self._class = AutoModelForMaskedLM
            with self._device:
                self.model = self._outline()
        if self.model.get_output_embeddings() is None:
            raise ValueError(
                f"path: {self._origin['path']} was published without a language modelling head, so "
                "it cannot be pretrained further"
            )

    def drop_pretraining_layers(self) -> None:
        if self.architecture == "encoder":
            self.model = self.model.base_model

    def drop_output_layers(self) -> None:
        """Keep the model without its head; of an encoder-decoder the encoder alone."""
        self.model = self._reader

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
        found = self.model(
            input_ids=row.input_ids,
            attention_mask=real,
            **{name: value for name, value in settings.items() if name in known},
        )
        return found.logits[:, -num_targets:]

    @torch.no_grad()
    def generate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        decoder = self.architecture == "decoder"
        prompt = prompts(batch) if decoder else batch
        beams: dict[str, Any] = {}
        if decoding.num_beams > 1:
            beams = {"length_penalty": decoding.length_penalty, "early_stopping": "never"}
        self.model.generation_config = GenerationConfig(
            max_new_tokens=decoding.max_new_tokens,
            num_beams=decoding.num_beams,
            do_sample=False,
            use_cache=True,
            decoder_start_token_id=None if decoder else decoding.start_id,
            eos_token_id=decoding.eos_id,
            pad_token_id=decoding.eos_id,
            **beams,
        )
        given = prompt.input_ids.shape[1] if decoder else 1
        found = self.model.generate(
            input_ids=prompt.input_ids,
            attention_mask=(prompt.document_ids != PADDING).long(),
            logits_processor=[] if decoding.draws is None else [_Drawn(decoding.draws, given)],
        )
        return [before_end(row, decoding.eos_id) for row in found[:, given:].tolist()]

    def forward_flops(self, batch: Batch) -> int:
        """Counted by torch in short rows; each token adds alike, each pair of tokens too.
        Documents that are packed are filled up to the longest."""
        rows, length = batch.input_ids.shape
        written = 0 if batch.decoder_input_ids is None else batch.decoder_input_ids.shape[1]
        if written and self.architecture == "decoder":
            length, written = length + written - 1, 0
        elif written:
            each, targets = self._pairs(batch)
            rows, length, written = each.number, each.length, targets.length
        elif batch.document_ids.max() > 1:
            documents = documents_of(batch.document_ids)
            rows, length = documents.number, documents.length
        total = np.dot(self._flops, [length, length**2])
        if written:
            total += np.dot(self._decoder_flops, [written, written**2, length, written * length])
        return round(rows * float(total))

    @cached_property
    def _flops(self) -> np.ndarray:
        """Of each token, and of each pair."""
        counted = [self._counted(lambda n=n: self._reader(self._probe(n))) for n in PROBED]
        return np.linalg.solve([[n, n**2] for n in PROBED], counted)

    @cached_property
    def _decoder_flops(self) -> np.ndarray:
        """Of each token that is written, of each pair, of each of the input, of each pair of two
        such."""
        decoder, lengths = self.model.get_decoder(), list(product(PROBED, PROBED))
        counted = [
            self._counted(
                lambda u=u, t=t: decoder(
                    self._probe(u),
                    encoder_hidden_states=torch.zeros(1, t, self.d_model, device=self._device),
                )
            )
            for u, t in lengths
        ]
        return np.linalg.solve([[u, u**2, t, u * t] for u, t in lengths], counted)

    @property
    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def _probe(self, length: int) -> Tensor:
        return torch.zeros(1, length, dtype=torch.long, device=self._device)

    @torch.no_grad()
    def _counted(self, forward: Callable[[], Any]) -> int:
        training = self.training
        self.eval()
        # Nothing is computed, and transformers asks no value of such tensors, as it would of those
        # on "meta". Plain matrix products: torch does not count those of every fused attention.
        with (
            FakeTensorMode(allow_non_fake_inputs=True),
            FlopCounterMode(display=False) as counter,
            sdpa_kernel(SDPBackend.MATH),
        ):
            forward()
        self.train(training)
        return counter.get_total_flops()

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """By the family's own code, whatever that does to states and to logits: the whole model is
        run, and what would read its input gives these states instead.

        Raises ValueError for a checkpoint without a language model's head.
        """
        if self.model.get_output_embeddings() is None:
            raise ValueError(
                f"path: a {self.config.model_type!r} does not give the likelihood of text here: "
                "it has no head for words"
            )
        row = states.reshape(1, -1, self.d_model)
        ids = torch.zeros(row.shape[:2], dtype=torch.long, device=row.device)
        inputs: dict[str, Any] = {"input_ids": ids}
        if both := self.architecture == "encoder_decoder":
            encoded = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=row)
            inputs = {"encoder_outputs": encoded, "decoder_input_ids": ids}
        last = self.model.get_decoder() if both else self.model.base_model
        with _giving(last, row):
            return self.model(**inputs).logits.reshape(*states.shape[:-1], -1)

    def unembed_flops(self, num_positions: int) -> int:
        return num_positions * self._unembed_flops

    @cached_property
    def _unembed_flops(self) -> int:
        """Of one position."""
        states = torch.zeros(1, self.d_model, device=self._device)
        return self._counted(lambda: self.unembed(states))

    def initialise(self, *, generator: torch.Generator) -> None:
        """The published weights; nothing is drawn.

        Raises ValueError if they cannot be read, are not all there, or are others than pinned.
        """
        self.check(**self._origin)
        _refuse_pickles(self._folder)
        try:
            model, found = self._class.from_pretrained(
                self._folder,
                config=self.config,
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                **LOCAL,
            )
        except Exception as error:  # a damaged file raises what its reader likes
            raise ValueError(f"path: the weights of {self._folder}: {line_of(error)}") from None
        missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ValueError(f"path: the weights of {self._folder} lack {missing[0]}{more}")
        if getattr(model, "final_logits_bias", torch.zeros(1)).any():
            raise ValueError(
                f"path: {self._folder} has a final_logits_bias, which is not supported"
            )
        self.model = _without_pooler(model)


class _Drawn(LogitsProcessor):
    """Leaves of each row's logits the token that is drawn, as our own models draw it."""

    def __init__(self, draws: Float[Tensor, "R U"], given: int) -> None:
        self._draws, self._given = draws, given

    def __call__(self, input_ids: Int[Tensor, "R T"], scores: Float[Tensor, "R V"]) -> Tensor:
        tokens = drawn(scores, self._draws[:, input_ids.shape[1] - self._given])
        return torch.full_like(scores, -torch.inf).scatter(1, tokens.unsqueeze(1), 0.0)


def _refuse_pickles(folder: Path) -> None:
    if not files_in(folder, WEIGHTS):
        raise ValueError(
            f"path: {folder} has no model.safetensors; weights in other formats, which may hold "
            "code, are not loaded"
        )


def _architecture(config: Any) -> str:
    """Raises ValueError for what is no language model."""
    kind = config.model_type
    if config.is_encoder_decoder and kind in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return "encoder_decoder"
    # BERT can be run as a decoder too, but was not published as one.
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return "encoder"
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "decoder"
    raise ValueError(f"path: a {kind!r} (config.json) is no language model of transformers")


def _class_of(config: Any) -> Any:
    """With the layer that gives logits where a model writes text, unless it came without."""
    architecture = _architecture(config)
    tied = getattr(config, "tie_word_embeddings", True)
    if architecture == "encoder" or (_is_headless(config) and not tied):
        return AutoModel
    return AutoModelForCausalLM if architecture == "decoder" else AutoModelForSeq2SeqLM


def _is_headless(config: Any) -> bool:
    """Whether a checkpoint says that it came as the model alone."""
    return config.architectures == [MODEL_MAPPING_NAMES.get(config.model_type)]


@contextmanager
def _giving(module: nn.Module, states: Float[Tensor, "1 N D"]) -> Iterator[None]:
    """Have a module of transformers give these states, whatever it is given."""
    output = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states)
    module.forward = lambda *args, **kwargs: output
    try:
        yield
    finally:
        del module.forward


def _without_pooler(model: Any) -> Any:
    if hasattr(model, "pooler"):
        model.pooler = None
    return model
