"""A public checkpoint: a model of the Hugging Face hub and its tokenizer, by ``transformers``.

``path`` is a name on the hub (google-bert/bert-base-uncased) or a local folder in that layout. The
hub's cache is honoured, and so are HF_HOME and HF_HUB_OFFLINE. Only safetensors are loaded and no
code but that of transformers is run.
"""

import hashlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)
from transformers.utils import logging

from stages.artifacts import sha256
from stages.models._backbone import Backbone
from stages.models._generation import Decoding, before_end, continued, prompts
from stages.text.batch import PADDING, Batch
from stages.text.tokenizer import TaskTokenizer, without_blanks

WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
VOCABULARY = (  # what the configuration and a tokenizer are read from
    *("config.json", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model"),
)
ON_THE_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")
COMMIT = re.compile(r"[0-9a-f]{40}")
CONTENT_DIGITS = 12
LOCAL = {"local_files_only": True, "trust_remote_code": False}
SCALED = ("final_logit_softcapping", "logits_scaling", "logit_scale")  # of some families
PROBED = (8, 16)  # tokens of the rows whose operations are counted

logging.set_verbosity_error()  # of heads that are left out, and of a tokenizer's lengths
logging.disable_progress_bar()
# Texts are few, and trials run in forked processes, which threads do not survive.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Hub(Backbone):
    """The states are those of the last layer; of an encoder-decoder, the encoder's. Text is written
    by ``generate`` of transformers, with the settings of ours and none that was published.

    ``revision`` pins what is compared. Of a name on the hub it is the whole hash of a commit, since
    a branch or a tag can be moved and the hub does not resolve a shorter hash; of a folder, the
    first 12 hex digits of the hash of its content, which DVC does not watch.

    BERT's pooler, a layer on the first token's state, is left out: all models get the same head.
    """

    def __init__(self, vocab_size: int, *, path: str, revision: str) -> None:
        """Raises ValueError for what cannot be found, or is no language model."""
        super().__init__()
        self._origin, self._folder = {"path": path, "revision": revision}, _folder(path, revision)
        self.config = _config(self._folder)
        self.config.use_cache = False  # of attention, for text that is written token by token
        self.architecture = _architecture(self.config)
        self.pooling = "last" if self.architecture == "decoder" else "mean"
        self.vocab_size = vocab_size
        self.num_layers = self.config.num_hidden_layers
        self._class = _class_of(self.config)
        model = self._class.from_config(self.config, dtype=torch.float32, trust_remote_code=False)
        self.model: Any = _without_pooler(model)
        known = self.model.get_input_embeddings().num_embeddings
        if vocab_size > known:
            raise ValueError(f"path: {path} has {vocab_size} tokens, but embeds only {known}")

    @classmethod
    def tokenizer_of(cls, settings: Mapping[str, Any], folder: Path) -> TaskTokenizer:
        """The tokenizer that the checkpoint brings along."""
        return _Tokenizer(_folder(settings["path"], settings["revision"]))

    @classmethod
    def check(cls, *, path: str, revision: str) -> int | None:
        """The tokenizer's number of tokens, or None where only the hub knows it.

        Raises ValueError for what is wrong with a name's form, or with the content of a folder.
        """
        if not Path(path).is_dir():
            _refuse_unpinned(path, revision)
            return None
        folder = Path(path)
        _refuse_pickles(folder)
        _architecture(_config(folder))
        tokenizer = _Tokenizer(folder)
        if revision != (content := _content(folder)):
            raise ValueError(f"revision: the folder's content is {content!r}, not {revision!r}")
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
        assert batch.document_ids.max() <= 1, "one document in a row"
        segments = {}
        if batch.segment_ids is not None and getattr(self.config, "type_vocab_size", 0) > 1:
            segments["token_type_ids"] = batch.segment_ids
        return self._reader(
            input_ids=batch.input_ids,
            attention_mask=(batch.document_ids != PADDING).long(),
            return_dict=True,
            **segments,
        ).last_hidden_state

    @property
    def _reader(self) -> Any:
        """What reads the input: the model without its head, or its encoder."""
        base = self.model.base_model
        both = self.architecture == "encoder_decoder"
        return getattr(base, "encoder", base) if both else base

    def for_tokens(self) -> "Hub":
        """Without the head; the encoder alone, as of our own encoder-decoders."""
        self.model = self._reader
        return self

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
        assert decoding.draws is None, "what is published writes for tasks alone"
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
        found = self.model.generate(
            input_ids=prompt.input_ids, attention_mask=(prompt.document_ids != PADDING).long()
        )
        given = prompt.input_ids.shape[1] if decoder else 1
        return [before_end(row, decoding.eos_id) for row in found[:, given:].tolist()]

    def flops(self, batch: Batch) -> int:
        """Counted by torch in short rows; each token adds alike, each pair of tokens too."""
        rows, length = batch.input_ids.shape
        written = 0 if batch.decoder_input_ids is None else batch.decoder_input_ids.shape[1]
        if written and self.architecture == "decoder":
            length, written = length + written - 1, 0
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
        # Plain matrix products: torch does not count those of every fused attention.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            forward()
        self.train(training)
        return counter.get_total_flops()

    def unembed(self, states: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Raises ValueError for a checkpoint without a language model's head, and for logits that
        are more than what that gives."""
        head = self.model.get_output_embeddings()
        scaled = [key for key in SCALED if getattr(self.config, key, None) not in (None, 1)]
        if head is None or scaled:
            raise ValueError(
                f"path: a {self.config.model_type!r} does not give the likelihood of text here: "
                + (f"its logits have a {scaled[0]}" if scaled else "it has no head for words")
            )
        return head(states)

    def unembed_flops(self, num_positions: int) -> int:
        return 2 * num_positions * self.model.get_output_embeddings().weight.numel()

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
            raise ValueError(f"path: the weights of {self._folder}: {_line(error)}") from None
        missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ValueError(f"path: the weights of {self._folder} lack {missing[0]}{more}")
        if getattr(model, "final_logits_bias", torch.zeros(1)).any():
            raise ValueError(
                f"path: {self._folder} has a final_logits_bias, which is not supported"
            )
        self.model = _without_pooler(model)


class _Tokenizer(TaskTokenizer):
    """The tokenizer of a checkpoint, as it comes; a text that it would leave unmarked ends with its
    end-of-text token (GPT-2; Radford et al. 2018)."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError if it cannot be read, or cannot tell where words begin."""
        self.files = _files(folder, VOCABULARY)
        self._texts = _load_tokenizer(folder)
        # GPT-2's and RoBERTa's words begin with the blank before them.
        self._words = _load_tokenizer(folder, add_prefix_space=True)
        self.vocab_size = len(self._texts)
        self.before, self.between, self.after = self._marks(folder)
        pad_id, unk_id = self._texts.pad_token_id, self._texts.unk_token_id
        self.pad_id = 0 if pad_id is None else pad_id  # nothing attends to it
        self.unk_id = self.after[-1] if unk_id is None else unk_id
        eos_id, config = self._texts.eos_token_id, _config(folder)
        self.eos_id = self.after[-1] if eos_id is None else eos_id
        if config.is_encoder_decoder:
            self.before_target = self.before  # BART writes <s>, too
        start_id = getattr(config, "decoder_start_token_id", None)
        self.start_id = self.pad_id if start_id is None else start_id  # T5's is padding

    def _marks(self, folder: Path) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Before a text, between the texts of a pair, and after them."""
        pair = self._texts("a", "a")
        parts: tuple[list[int], ...] = ([], [], [])
        text_of = pair.sequence_ids()
        for place, (token, text) in enumerate(zip(pair["input_ids"], text_of, strict=True)):
            if text is None:
                seen = {number for number in text_of[:place] if number is not None}
                parts[len(seen)].append(token)
        before, between, after = map(tuple, parts)
        ends = self._texts.eos_token_id
        after = after or (() if ends is None else (ends,))
        if not after:
            raise ValueError(f"path: the tokenizer of {folder} has no token that ends a text")
        return before, between or after, after

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self._encoded(self._texts, texts)["input_ids"]

    def encode_with_offsets(
        self, texts: list[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        found = self._encoded(self._texts, texts, return_offsets_mapping=True)
        return [
            (ids, without_blanks(text, offsets))
            for text, ids, offsets in zip(
                texts, found["input_ids"], found["offset_mapping"], strict=True
            )
        ]

    def decode(self, ids: Iterable[int]) -> str:
        return self._texts.decode(list(ids), skip_special_tokens=True).strip()

    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        found = self._encoded(self._words, [list(row) for row in rows], is_split_into_words=True)
        result: list[list[list[int]]] = []
        for i, row in enumerate(rows):
            words: list[list[int]] = [[] for _ in row]
            for token, word in zip(found["input_ids"][i], found.word_ids(i), strict=True):
                words[word].append(token)
            result.append(words)
        return result

    @staticmethod
    def _encoded(tokenizer: Any, texts: list[Any], **how: Any) -> Any:
        # "[SEP]" in a text is text.
        return tokenizer(texts, add_special_tokens=False, split_special_tokens=True, **how)


@cache
def _folder(path: str, revision: str) -> Path:
    """Where the files are: ``path`` if it is a folder, else the hub's cache, filled if need be.

    Raises ValueError if they cannot be had.
    """
    if Path(path).is_dir():
        return Path(path)
    _refuse_unpinned(path, revision)
    try:
        patterns = [*WEIGHTS, *VOCABULARY]
        return Path(
            snapshot_download(
                path, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"]
            )
        )
    except Exception as error:  # whatever a network can do
        raise ValueError(
            f"path: {path} at revision {revision} is not in the cache nor can be downloaded: "
            f"{_line(error)}"
        ) from None


def _refuse_unpinned(path: str, revision: str) -> None:
    if not ON_THE_HUB.fullmatch(path):
        raise ValueError(
            f"path: no such folder, nor can it be a name on the hub such as "
            f"google-bert/bert-base-uncased: {path!r}"
        )
    if not COMMIT.fullmatch(revision):
        raise ValueError(
            f"revision: must be the hash of a commit of {path} (all 40 digits, since it is no "
            f"folder here; branches and tags can be moved), not {revision!r}"
        )


def _refuse_pickles(folder: Path) -> None:
    if not _files(folder, WEIGHTS):
        raise ValueError(
            f"path: {folder} has no model.safetensors; weights in other formats, which may hold "
            "code, are not loaded"
        )


def _files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def _content(folder: Path) -> str:
    """What is in a folder, of the files that are read."""
    digest = hashlib.sha256()
    for file in _files(folder, (*WEIGHTS, *VOCABULARY)):
        digest.update(file.name.encode())
        digest.update(sha256(file).encode())
    return digest.hexdigest()[:CONTENT_DIGITS]


def _config(folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder, **LOCAL)
    except Exception as error:  # transformers raises many kinds
        raise ValueError(f"path: {folder} is no model of transformers: {_line(error)}") from None


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
    base = MODEL_MAPPING_NAMES.get(config.model_type)
    tied = getattr(config, "tie_word_embeddings", True)
    if architecture == "encoder" or (config.architectures == [base] and not tied):
        return AutoModel
    return AutoModelForCausalLM if architecture == "decoder" else AutoModelForSeq2SeqLM


def _without_pooler(model: Any) -> Any:
    if hasattr(model, "pooler"):
        model.pooler = None
    return model


def _load_tokenizer(folder: Path, **settings: Any) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL, **settings)
    except Exception as error:  # readers of vocabularies raise many kinds
        raise ValueError(f"path: the tokenizer of {folder}: {_line(error)}") from None
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(f"path: {folder} has no tokenizer")
    if not tokenizer.is_fast:
        raise ValueError(
            f"path: the tokenizer of {folder} has no fast form (tokenizer.json), which alone "
            "tells where words begin"
        )
    return tokenizer


def _line(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
