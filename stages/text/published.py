"""The files of a public checkpoint and its tokenizer, by ``transformers``.

``path`` is a name on the hub (google-bert/bert-base-uncased) or a local folder in that layout. The
hub's cache is honoured, and so are HF_HOME and HF_HUB_OFFLINE. No code but that of transformers is
run.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging

from stages.core.artifacts import sha256
from stages.core.hub_names import COMMIT, ON_THE_HUB
from stages.text.tokenizer import TaskTokenizer, without_blanks

WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
VOCABULARY = (  # what the configuration and a tokenizer are read from
    *("config.json", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model"),
)
CONTENT_DIGITS = 12
LOCAL = {"local_files_only": True, "trust_remote_code": False}
SENTINEL = re.compile(r"<extra_id_(\d+)>")  # T5's name for it, and that of all that learnt from it

logging.set_verbosity_error()  # of heads that are left out, and of a tokenizer's lengths
logging.disable_progress_bar()
# Texts are few, and trials run in forked processes, which threads do not survive.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class PublishedTokenizer(TaskTokenizer):
    """The tokenizer of a checkpoint. If it adds no special tokens to a text, the text ends with its
    end-of-text token (GPT-2; Radford et al. 2018)."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError if it cannot be read, or cannot tell where words begin."""
        self.files = files_in(folder, VOCABULARY)
        self._texts = _load_tokenizer(folder)
        # GPT-2's and RoBERTa's words begin with the blank before them.
        self._words = _load_tokenizer(folder, add_prefix_space=True)
        self.before, self.between, self.after = self._marks(folder)
        pad_id, unk_id = self._texts.pad_token_id, self._texts.unk_token_id
        self.pad_id = 0 if pad_id is None else pad_id  # nothing attends to it
        self.unk_id = self.after[-1] if unk_id is None else unk_id
        self.mask_id = self._texts.mask_token_id
        eos_id, config = self._texts.eos_token_id, config_of(folder)
        self.eos_id = self.after[-1] if eos_id is None else eos_id
        if config.is_encoder_decoder:
            self.before_target = self.before  # BART writes <s>, too
        start_id = getattr(config, "decoder_start_token_id", None)
        self.start_id = self.pad_id if start_id is None else start_id  # T5's is padding

        ids = self._texts.get_vocab()
        self.vocab_size = max(ids.values()) + 1
        sentinels = {
            int(named[1]): i for token, i in ids.items() if (named := SENTINEL.fullmatch(token))
        }
        self.sentinel_ids = np.array([sentinels[k] for k in sorted(sentinels)], dtype=np.int64)
        special = {*self._texts.all_special_ids, *sentinels.values()}
        self.regular_ids = np.array(sorted({*ids.values()} - special), dtype=np.int64)

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

    @cached_property
    def starts_word(self) -> np.ndarray:  # type: ignore[override]
        """Bool [V]: whether the tokenizer, asked for the text, puts a blank before it."""
        (*_, anchor), ids = self.encode(["a"])[0], range(self.vocab_size)
        alone = len(self._texts.decode([anchor]))
        texts = self._texts.batch_decode([[anchor, i] for i in ids])
        return np.array([text[alone:][:1].isspace() for text in texts])

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self._encoded(self._texts, texts)["input_ids"] if texts else []

    def encode_running(self, sentences: list[str]) -> list[list[int]]:
        first, rest = self.encode(sentences[:1]), sentences[1:]
        return first + self._encoded(self._words, rest)["input_ids"] if rest else first

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
def folder_of(
    path: str, revision: str, patterns: tuple[str, ...] = (*WEIGHTS, *VOCABULARY)
) -> Path:
    """Where the files are: ``path`` if it is a folder, else the hub's cache, filled if need be.

    Raises ValueError if they cannot be had.
    """
    if Path(path).is_dir():
        return Path(path)
    refuse_unpinned(path, revision)
    try:
        return Path(
            snapshot_download(
                path, revision=revision, allow_patterns=[*patterns], ignore_patterns=["*/*"]
            )
        )
    except Exception as error:  # whatever a network can do
        raise ValueError(
            f"path: {path} at revision {revision} is not in the cache nor can be downloaded: "
            f"{line_of(error)}"
        ) from None


def refuse_unpinned(path: str, revision: str) -> None:
    """Raises ValueError for what cannot be a name on the hub, or no hash of a commit."""
    if not ON_THE_HUB.fullmatch(path):
        raise ValueError(
            f"path: no such folder, nor can it be a name on the hub such as "
            f"google-bert/bert-base-uncased: {path!r}"
        )
    if not COMMIT.fullmatch(revision):
        raise ValueError(
            f"revision: must be the hash of a commit of {path} (all 40 digits, since it is no "
            f"folder here; branches and tags can be moved), not {revision!r}; `python -m "
            f"stages.commands.pin` asks the hub for it and writes it"
        )


def refuse_other_content(folder: Path, revision: str) -> None:
    """Raises ValueError if a local folder's content is not what is pinned."""
    if revision != (content := content_of(folder)):
        raise ValueError(f"revision: the folder's content is {content!r}, not {revision!r}")


def files_in(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def content_of(folder: Path) -> str:
    """The hash of the files of a folder that are read, which pins it."""
    digest = hashlib.sha256()
    for file in files_in(folder, (*WEIGHTS, *VOCABULARY)):
        digest.update(file.name.encode())
        digest.update(sha256(file).encode())
    return digest.hexdigest()[:CONTENT_DIGITS]


def config_of(folder: Path) -> Any:
    """Raises ValueError for what transformers does not know."""
    try:
        return AutoConfig.from_pretrained(folder, **LOCAL)
    except Exception as error:  # transformers raises many kinds
        raise ValueError(f"path: {folder} is no model of transformers: {line_of(error)}") from None


def _load_tokenizer(folder: Path, **settings: Any) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL, **settings)
    except Exception as error:  # readers of vocabularies raise many kinds
        raise ValueError(f"path: the tokenizer of {folder}: {line_of(error)}") from None
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(f"path: {folder} has no tokenizer")
    if not tokenizer.is_fast:
        raise ValueError(
            f"path: the tokenizer of {folder} has no fast form (tokenizer.json), which alone "
            "tells where words begin"
        )
    return tokenizer


def line_of(error: Exception) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
