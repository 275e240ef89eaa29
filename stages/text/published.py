"""Configurations and tokenizers of public checkpoints, read with ``transformers``. No code of a
checkpoint runs."""

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging

from stages.text.published_files import VOCABULARY, line_of, read_files
from stages.text.tokenizer import TaskTokenizer, without_blanks
from stages.text.untrusted import refuse_code, refuse_settings

LOCAL = {"local_files_only": True, "trust_remote_code": False}
# A tokenizer's settings may name other files under these keys. Where the tokenizer's class does not
# declare the keys, transformers reads the named files unless None is given.
UNNAMED = {"vocab_file": None, "merges_file": None}
SENTINEL = re.compile(r"<extra_id_(\d+)>")  # as T5 and its successors name sentinels
PANIC = "PanicException"  # raised by a library in Rust; not an Exception

logging.set_verbosity_error()  # no warnings about unused heads and lengths of texts
logging.disable_progress_bar()
# Threads gain little on few texts, and do not survive in the forked processes of trials.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class PublishedTokenizer(TaskTokenizer):
    """The tokenizer of a public checkpoint. If it adds no special tokens, a text ends with its
    end-of-text token (GPT-2; Radford et al. 2019)."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError if the tokenizer cannot be read or does not mark where words begin."""
        self.files, self._folder = read_files(folder, VOCABULARY), folder
        self._texts = _load_tokenizer(folder)
        self._blank = self._blank_before_words()
        self.before, self.between, self.after = self._marks(folder)
        pad_id, unk_id = self._texts.pad_token_id, self._texts.unk_token_id
        self.pad_id = 0 if pad_id is None else pad_id  # any id: nothing attends to padding
        self.unk_id = self.after[-1] if unk_id is None else unk_id
        self.mask_id = self._texts.mask_token_id
        eos_id, config = self._texts.eos_token_id, config_of(folder)
        self.eos_id = self.after[-1] if eos_id is None else eos_id
        if config.is_encoder_decoder:
            self.before_target = self.before  # BART's targets begin with <s>, too
        start_id = getattr(config, "decoder_start_token_id", None)
        self.start_id = self.pad_id if start_id is None else start_id  # T5 starts with padding

        ids = self.ids()
        self.vocab_size = max(ids.values()) + 1
        sentinels = {
            int(named[1]): i for token, i in ids.items() if (named := SENTINEL.fullmatch(token))
        }
        self.sentinel_ids = np.array([sentinels[k] for k in sorted(sentinels)], dtype=np.int64)
        special = {*self._texts.all_special_ids, *sentinels.values()}
        self.regular_ids = np.array(sorted({*ids.values()} - special), dtype=np.int64)

    def _marks(self, folder: Path) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Returns the special tokens before a text, between the texts of a pair, and after them."""
        pair = self._run(self._texts, "a", "a")
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

    def _blank_before_words(self) -> str:
        """Returns the text to put before a word so that it is encoded as in mid-sentence.

        It is a blank where the token of a word includes the blank before it, as in all byte-level
        tokenizers and in Gemma's, and "" where no token does (WordPiece) or where the tokenizer
        adds the blank itself (sentencepiece). The setting ``add_prefix_space`` does not help: the
        tokenizers of ModernBERT, Llama 3 and Gemma ignore it, and Qwen's adds a blank before each
        part of a word.
        """
        alone, spaced, both = self.encode(["a", " a", "a a"])
        return " " if alone + alone != both == alone + spaced else ""

    @cached_property
    def starts_word(self) -> np.ndarray:  # type: ignore[override]
        """Bool [V]: whether the decoded text of an id begins with a blank."""
        (*_, anchor), ids = self.encode(["a"])[0], range(self.vocab_size)
        alone = len(self._texts.decode([anchor]))
        texts = self._run(self._texts.batch_decode, [[anchor, i] for i in ids])
        return np.array([text[alone:][:1].isspace() for text in texts])

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self._encoded(texts)["input_ids"] if texts else []

    def encode_running(self, sentences: list[str]) -> list[list[int]]:
        return self.encode(sentences[:1] + [self._blank + sentence for sentence in sentences[1:]])

    def encode_with_offsets(
        self, texts: list[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        encodings = self._encoded(texts, return_offsets_mapping=True)
        return [
            (ids, without_blanks(text, offsets))
            for text, ids, offsets in zip(
                texts, encodings["input_ids"], encodings["offset_mapping"], strict=True
            )
        ]

    def decode(self, ids: Iterable[int]) -> str:
        return self._run(self._texts.decode, list(ids), skip_special_tokens=True).strip()

    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        words = (word and self._blank + word for row in rows for word in row)
        ids = iter(self.encode([*words]))
        return [list(islice(ids, len(row))) for row in rows]

    def _encoded(self, texts: list[str], **how: Any) -> Any:
        # "[SEP]" in a text is ordinary text.
        settings = {"add_special_tokens": False, "split_special_tokens": True}
        return self._run(self._texts, texts, **settings, **how)

    def _run(self, work: Callable[..., Any], *args: object, **how: Any) -> Any:
        """Returns the result of ``work``, a call of the published tokenizer; raises ValueError if
        the call fails."""
        try:
            return work(*args, **how)
        except BaseException as error:  # a pattern may take too many steps for a text
            if type(error) is not Exception and type(error).__name__ != PANIC:
                raise
            raise ValueError(
                f"path: the tokenizer of {self._folder} fails: {line_of(error)}"
            ) from None

    def ids(self) -> dict[str, int]:
        """Returns the id of each token."""
        return self._texts.get_vocab()

    def rules(self) -> list[object]:
        """Returns the rules that normalise and split texts, and that decode ids, as JSON."""
        backend = self._texts.backend_tokenizer
        parts = (backend.normalizer, backend.pre_tokenizer, backend.decoder)
        return [json.loads(part.__getstate__()) for part in parts if part is not None]

    def longest_form(self, text: str) -> int:
        """Returns the most characters or tokens that a text has at any stage of its encoding."""
        backend, size = self._texts.backend_tokenizer, len(self.encode([text])[0])
        if backend.normalizer:
            text = self._run(backend.normalizer.normalize_str, text)
        pieces = []
        if backend.pre_tokenizer:
            pieces = self._run(backend.pre_tokenizer.pre_tokenize_str, text)
        return max(size, len(text), sum(len(piece) for piece, _ in pieces))


def config_of(folder: Path) -> Any:
    """Returns the model's configuration; raises ValueError if transformers cannot read it, and the
    errors of ``refuse_code`` and ``refuse_settings``."""
    refuse_code(folder)
    try:
        config = AutoConfig.from_pretrained(folder, **LOCAL)
    except Exception as error:  # transformers raises many kinds
        raise ValueError(f"path: {folder} is no model of transformers: {line_of(error)}") from None
    refuse_settings(config, folder)
    return config


def _load_tokenizer(folder: Path) -> Any:
    refuse_code(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL, **UNNAMED)
    except Exception as error:  # readers of vocabularies raise many kinds
        raise ValueError(f"path: the tokenizer of {folder}: {line_of(error)}") from None
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(f"path: {folder} has no tokenizer")
    if not tokenizer.is_fast:
        raise ValueError(
            f"path: the tokenizer of {folder} has no fast form (tokenizer.json), which "
            "is needed to find where words begin"
        )
    return tokenizer
