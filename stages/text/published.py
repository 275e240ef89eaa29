"""Files and tokenizers of public checkpoints, read with ``transformers``.

``path`` is a name on the hub (google-bert/bert-base-uncased) or a local folder in the same layout.
The hub's cache, HF_HOME and HF_HUB_OFFLINE are respected. No code of a checkpoint runs.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig
from transformers.utils import logging

from stages.core.artifacts import Json, sha256
from stages.core.hub_names import COMMIT, ON_THE_HUB
from stages.core.limited import limited
from stages.text.tokenizer import TaskTokenizer, without_blanks

WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
VOCABULARY = (  # files of the configuration and the tokenizer
    *("config.json", "tokenizer*.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model", "tekken.json", "entity_vocab.json", "normalizer.json"),
    *("chat_template.jinja", "additional_chat_templates/*.jinja"),
)
CONTENT_DIGITS = 12
MOST_BYTES = 2**28  # of a configuration or a vocabulary; the largest published ones have 2**25
LOCAL = {"local_files_only": True, "trust_remote_code": False}
# Of the names that a tokenizer's settings may give these files, transformers reads those that the
# tokenizer's class does not declare, unless they are given as None.
UNNAMED = {"vocab_file": None, "merges_file": None}
SENTINEL = re.compile(r"<extra_id_(\d+)>")  # as T5 and its successors name sentinels
CODE = ("configuration_*.py", "modeling_*.py", "tokenization_*.py")  # as transformers names it
# Settings of transformers that name code, or weights in another form.
NAMING_CODE = {
    *("auto_map", "custom_pipelines", "custom_generate", "trust_remote_code"),
    *("use_kernels", "kernel_config", "fusion_config", "quantization_config"),
    *("distributed_config", "transformers_weights"),
    "attribute_map",  # by which any other setting would be one of these
}
# Settings that choose an implementation of a layer: the name of a kernel on the hub is native code.
IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
OF_TORCH = (None, "eager", "sdpa")
# Settings that name a file to read in place of one that the pinned hash covers.
NAMING_FILES = {"configuration_files", "fast_tokenizer_files", "gguf_file"}
AS_FILE = ("vocab", "merges")  # the content itself, or else the name of a file
NOT_NEGATIVE = re.compile(r"^(num|n)_|layers$|initializer")  # counts, and spreads of a draw
UNLIMITED = ("time_step_limit",)  # settings that are infinite in published checkpoints (Mamba 2)
# The limits of a check: a constant, plus an amount for each byte of the checkpoint's files.
CHECKED_WITHIN_S, BYTES_PER_S = 30.0, 2**25
CHECKED_WITHIN_BYTES, MEMORY_PER_BYTE = 2**32, 4
MOST_GROWTH = 64  # tokens or characters that a tokenizer makes of a character; bytes are 4
TOGETHER = 64  # characters or tokens that are probed at once
NUM_PROBED = 2**17  # the characters of all living languages, and emoji
SLOW = ("An ordinary sentence of a data set, with 12 numbers (and marks).", "a" * TOGETHER + "!")
MAYBE_EMPTY = re.compile(r"[*?|^$]|\\[bBAzZGK]|\{0|\{,|\(\)|^$")  # may match no character
PANIC = "PanicException"  # of a library in Rust; no Exception
TOKENS_MAP = "special_tokens_map.json"  # its settings replace even the names of files
OF_TOKENS = ("_token", "_tokens")

logging.set_verbosity_error()  # about unused heads and about the lengths of texts
logging.disable_progress_bar()
# There are few texts, and trials run in forked processes, in which threads do not survive.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class PublishedTokenizer(TaskTokenizer):
    """The tokenizer of a public checkpoint. If it adds no special tokens, a text ends with its
    end-of-text token (GPT-2; Radford et al. 2018)."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError if the tokenizer cannot be read or does not mark where words begin."""
        self.files, self._folder = read_files(folder, VOCABULARY), folder
        self._texts = _load_tokenizer(folder)
        self._blank = self._blank_before_words()
        self.before, self.between, self.after = self._marks(folder)
        pad_id, unk_id = self._texts.pad_token_id, self._texts.unk_token_id
        self.pad_id = 0 if pad_id is None else pad_id  # nothing attends to it
        self.unk_id = self.after[-1] if unk_id is None else unk_id
        self.mask_id = self._texts.mask_token_id
        eos_id, config = self._texts.eos_token_id, config_of(folder)
        self.eos_id = self.after[-1] if eos_id is None else eos_id
        if config.is_encoder_decoder:
            self.before_target = self.before  # BART's targets begin with <s>, too
        start_id = getattr(config, "decoder_start_token_id", None)
        self.start_id = self.pad_id if start_id is None else start_id  # T5 starts with padding

        ids = self._texts.get_vocab()
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
        """Returns what to put before a word so that it is encoded as it is after another word.

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
        """Returns ``work(...)`` of the published tokenizer; raises ValueError where it fails."""
        try:
            return work(*args, **how)
        except BaseException as error:  # a pattern may take too many steps for a text
            if type(error) is not Exception and type(error).__name__ != PANIC:
                raise
            raise ValueError(
                f"path: the tokenizer of {self._folder} fails: {line_of(error)}"
            ) from None

    def probed(self) -> int:
        """Returns the number of tokens, after tokens and characters have been read as texts, which
        may take any time and memory.

        Raises ValueError if a short text becomes a long one, which a few rules can do.
        """
        backend = self._texts.backend_tokenizer
        rules = [
            json.loads(part.__getstate__())
            for part in (backend.normalizer, backend.pre_tokenizer, backend.decoder)
            if part is not None
        ]
        if (growth := math.prod(map(_growth, _nodes_in(rules)))) > MOST_GROWTH:
            self._refuse_growth("a character", growth)
        if (marks := len(self.before) + len(self.between) + len(self.after)) > MOST_GROWTH:
            self._refuse_growth("no text", marks)
        alphabet = [chr(i) for i in range(NUM_PROBED) if not 0xD800 <= i < 0xE000]
        parts = ["".join(alphabet[i : i + TOGETHER]) for i in range(0, len(alphabet), TOGETHER)]
        texts = [node[:1000] for node in _nodes_in(rules) if isinstance(node, str) and node]
        for text in [*SLOW, *texts, *parts]:
            if (size := self._longest_of(text)) > MOST_GROWTH * len(text):
                self._refuse_growth(f"{len(text)} characters", size)
        named = [*self._texts.get_vocab().items()]
        for begin in range(0, len(named), TOGETHER):
            tokens, ids = zip(*named[begin : begin + TOGETHER], strict=True)
            size, most = len(self.decode(ids)), MOST_GROWTH * (len(ids) + sum(map(len, tokens)))
            if size > most:
                self._refuse_growth(f"{len(ids)} tokens", size)
        return self.vocab_size

    def _longest_of(self, text: str) -> int:
        """Returns the most characters or tokens that a text has while it is encoded."""
        backend, size = self._texts.backend_tokenizer, len(self.encode([text])[0])
        if backend.normalizer:
            text = self._run(backend.normalizer.normalize_str, text)
        cut = (
            self._run(backend.pre_tokenizer.pre_tokenize_str, text) if backend.pre_tokenizer else []
        )
        return max(size, len(text), sum(len(piece) for piece, _ in cut))

    def _refuse_growth(self, of: str, size: float) -> None:
        raise ValueError(
            f"path: the tokenizer of {self._folder} makes {size:,.0f} characters or tokens of {of}"
        )


@cache
def folder_of(
    path: str, revision: str, patterns: tuple[str, ...] = (*WEIGHTS, *VOCABULARY)
) -> Path:
    """Returns the folder with the files: ``path`` if it is a folder, else the hub's cache, into
    which missing files are downloaded.

    Raises ValueError if the download fails.
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
    """Raises ValueError for a path that cannot be a name on the hub, or a revision that is not the
    hash of a commit."""
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
    """Raises ValueError if the content of a local folder is not the pinned one."""
    if revision != (content := content_of(folder)):
        raise ValueError(f"revision: the folder's content is {content!r}, not {revision!r}")


def files_in(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


def read_files(folder: Path, patterns: Iterable[str] = (*WEIGHTS, *VOCABULARY)) -> list[Path]:
    """Returns the files that are read, by default all of them.

    Raises ValueError for a file that is no regular file of the folder, or is too large. The folder
    of a commit in the hub's cache may also link to files in the rest of the repository's cache.
    """
    root = (folder.parents[1] if folder.parent.name == "snapshots" else folder).resolve()
    files = files_in(folder, patterns)
    for file in files:
        target = Path(os.path.realpath(file))  # also if links form a circle
        if not target.is_relative_to(root):
            raise ValueError(
                f"path: {file} is a link to {target}, outside of the checkpoint's folder; copy the "
                "file into the folder"
            )
        if not target.is_file():
            raise ValueError(f"path: {file} is no regular file; remove it or replace it by a file")
        if file.suffix != ".safetensors" and target.stat().st_size > MOST_BYTES:
            raise ValueError(
                f"path: {file} has {target.stat().st_size:,} bytes; such a file may have "
                f"{MOST_BYTES:,} at most"
            )
    return files


def read_settings(file: Path) -> Json:
    """Returns the content of a checkpoint's JSON file; raises ValueError if it is no object."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"path: {file} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"path: {file} cannot be read: {line_of(error)}") from None
    if not isinstance(settings, dict):
        raise ValueError(f"path: {file} must be a JSON object")
    return settings


def content_of(folder: Path) -> str:
    """Returns the hash that pins a folder, computed from all files that are read.

    Raises the errors of ``read_files``.
    """
    digest = hashlib.sha256()
    for file in read_files(folder):
        digest.update(file.name.encode())
        digest.update(sha256(file).encode())
    return digest.hexdigest()[:CONTENT_DIGITS]


def refuse_code(folder: Path) -> None:
    """Raises ValueError for a checkpoint with code of its own, which is never run, or with a
    setting that names code elsewhere, or a file in place of those that the pinned hash covers."""
    if files := files_in(folder, CODE):
        _refuse_code(folder, files[0].name)
    for file in read_files(folder, ("config.json", "tokenizer_config.json")):
        for key, value in _settings_in(read_settings(file)):
            is_other = key.strip("_").removesuffix("_internal") in IMPLEMENTATIONS
            if key in NAMING_CODE or (is_other and value not in OF_TORCH):
                _refuse_code(folder, f"{file.name} ({key})")
            named = key in AS_FILE and isinstance(value, str)
            if key in NAMING_FILES or named or (key == "init_inputs" and value):
                _refuse_names(file, key)
    for file in read_files(folder, (TOKENS_MAP,)):
        for key in read_settings(file):
            if not key.endswith(OF_TOKENS):
                _refuse_names(file, key)


def _refuse_code(folder: Path, what: str) -> None:
    raise ValueError(
        f"path: {folder} has code of its own, {what}; no code of a checkpoint is run, only models "
        "that transformers has itself"
    )


def _refuse_names(file: Path, key: str) -> None:
    raise ValueError(
        f"path: {file} may name other files ({key}); only files that the pinned hash covers are "
        "read, by the names that transformers gives them"
    )


def _settings_in(node: object) -> Iterator[tuple[str, object]]:
    """Yields the keys and values at any depth."""
    for key, value in node.items() if isinstance(node, dict) else ():
        yield str(key), value
        yield from _settings_in(value)
    for item in node if isinstance(node, list) else ():
        yield from _settings_in(item)


def config_of(folder: Path) -> Any:
    """Returns the model's configuration; raises ValueError if transformers cannot read it, or as
    ``refuse_code`` does."""
    refuse_code(folder)
    try:
        config = AutoConfig.from_pretrained(folder, **LOCAL)
    except Exception as error:  # transformers raises many kinds
        raise ValueError(f"path: {folder} is no model of transformers: {line_of(error)}") from None
    for part in _parts(config):
        _refuse_attributes(part, folder)
        for name, value in _settings_in({**vars(part)}):
            _refuse_number(name, value, folder)
    return config


def _refuse_attributes(part: PreTrainedConfig, folder: Path) -> None:
    """Raises ValueError for a configuration that names code by whatever setting, or in which a
    setting hides a function."""
    for name, value in vars(part).items():
        is_other = name.strip("_").removesuffix("_internal") in IMPLEMENTATIONS
        hides = callable(getattr(type(part), name, None))
        named = name in NAMING_CODE and value is not None
        if hides or named or (is_other and value not in OF_TORCH):
            _refuse_code(folder, f"config.json ({name})")


def _refuse_number(name: str, value: object, folder: Path) -> None:
    """Raises ValueError for a setting with a number that no model has, which would be an error or
    NaN only in training."""
    for number in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(number, int | float):
            continue
        reason = ""
        if number != number or (number in (math.inf, -math.inf) and name not in UNLIMITED):
            reason = "must be finite"
        elif "drop" in name and not 0 <= number < 1:
            reason = "must be at least 0 and less than 1"
        elif NOT_NEGATIVE.search(name) and number < 0:
            reason = "must not be negative"
        if reason:
            raise ValueError(f"path: {folder / 'config.json'}: {name} {reason}, not {number}")


def _parts(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """Yields a configuration and those that it is made of."""
    yield config
    for value in vars(config).values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, PreTrainedConfig):
                yield from _parts(item)


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


def _growth(rule: object) -> float:
    """Returns by how much at most a rule that replaces text makes it longer; else 1."""
    if not isinstance(rule, dict) or rule.get("type") != "Replace":
        return 1.0
    (kind, pattern), size = *rule["pattern"].items(), len(rule["content"])
    if kind == "String":
        return max(1.0, size / len(pattern)) if pattern else 1.0 + size
    return max(1.0, size) + (size if MAYBE_EMPTY.search(pattern) else 0)


def _nodes_in(node: object) -> Iterator[object]:
    """Yields all values at any depth."""
    yield node
    for value in node.values() if isinstance(node, dict) else ():
        yield from _nodes_in(value)
    for item in node if isinstance(node, list) else ():
        yield from _nodes_in(item)


def examined(work: Callable[[], int], folder: Path, files: Iterable[Path]) -> int:
    """Returns ``work()`` on the files of a folder, done in a process of its own with limits of time
    and memory.

    Raises ValueError for a folder that cannot be used.
    """
    num_bytes = sum(file.stat().st_size for file in files)
    return limited(
        work,
        seconds=CHECKED_WITHIN_S + num_bytes / BYTES_PER_S,
        num_bytes=CHECKED_WITHIN_BYTES + MEMORY_PER_BYTE * num_bytes,
        what=f"path: reading {folder}",
    )


def line_of(error: BaseException) -> str:
    """Returns the message of an error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
