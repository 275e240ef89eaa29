"""Checks of public checkpoints. They refuse those that name code or other files, have numbers that
no model has, make long texts of short ones, or take unlimited time and memory."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedConfig

from stages.core.limited import T, limited
from stages.text.published_files import files_in, read_files, read_settings

if TYPE_CHECKING:
    from stages.text.published import PublishedTokenizer

CODE = ("configuration_*.py", "modeling_*.py", "tokenization_*.py")  # as transformers names it
# Settings of transformers that name code, or weights in another form.
NAMING_CODE = {
    *("auto_map", "custom_pipelines", "custom_generate", "trust_remote_code"),
    *("use_kernels", "kernel_config", "fusion_config", "quantization_config"),
    *("distributed_config", "transformers_weights"),
    "attribute_map",  # renames settings: any other name could become one of these
}
# Settings that choose an implementation of a layer; a kernel on the hub would be native code.
IMPLEMENTATIONS = ("attn_implementation", "experts_implementation")
OF_TORCH = (None, "eager", "sdpa")
# Settings that name a file to read in place of one that the pinned hash covers.
NAMING_FILES = {"configuration_files", "fast_tokenizer_files", "gguf_file"}
AS_FILE = ("vocab", "merges")  # the content itself, or else the name of a file
NOT_NEGATIVE = re.compile(r"^(num|n)_|layers$|initializer")  # counts, spreads of weights
UNLIMITED = ("time_step_limit",)  # settings that are infinite in published checkpoints (Mamba 2)
# The limits of a check: a constant, plus an amount for each byte of the checkpoint's files.
CHECKED_WITHIN_S, BYTES_PER_S = 30.0, 2**25
CHECKED_WITHIN_BYTES, MEMORY_PER_BYTE = 2**32, 4
MOST_GROWTH = 64  # most tokens or characters made of one character, which has up to 4 bytes
TOGETHER = 64  # characters or tokens that are probed at once
NUM_PROBED = 2**17  # code points: the characters of all living languages, and emoji
SLOW = ("An ordinary sentence of a data set, with 12 numbers (and marks).", "a" * TOGETHER + "!")
MAYBE_EMPTY = re.compile(r"[*?|^$]|\\[bBAzZGK]|\{0|\{,|\(\)|^$")  # may match an empty text
TOKENS_MAP = "special_tokens_map.json"  # its settings can replace even the names of files
OF_TOKENS = ("_token", "_tokens")


def refuse_code(folder: Path) -> None:
    """Raises ValueError for a checkpoint with code of its own (which is never run), or with a
    setting that names code elsewhere or a file that the pinned hash does not cover."""
    if files := files_in(folder, CODE):
        _refuse_code(folder, files[0].name)
    for file in read_files(folder, ("config.json", "tokenizer_config.json")):
        for key, value in _settings(read_settings(file)):
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


def _values(node: object, key: str | None = None) -> Iterator[tuple[str | None, object]]:
    """Yields (key, value) of a node and of all values at any depth inside it. The key is None for a
    value that is in no mapping."""
    yield key, node
    for name, value in node.items() if isinstance(node, dict) else ():
        yield from _values(value, str(name))
    for item in node if isinstance(node, list) else ():
        yield from _values(item)


def _settings(node: object) -> Iterator[tuple[str, object]]:
    """Yields the (key, value) pairs of all mappings at any depth."""
    return ((key, value) for key, value in _values(node) if key is not None)


def refuse_settings(config: PreTrainedConfig, folder: Path) -> None:
    """Raises ValueError for a configuration that names code, or has a number that no model has."""
    for part in _parts(config):
        _refuse_attributes(part, folder)
        for name, value in _settings({**vars(part)}):
            _refuse_number(name, value, folder)


def _refuse_attributes(part: PreTrainedConfig, folder: Path) -> None:
    """Raises ValueError if any setting of a configuration names code or hides a method."""
    for name, value in vars(part).items():
        is_other = name.strip("_").removesuffix("_internal") in IMPLEMENTATIONS
        hides = callable(getattr(type(part), name, None))
        named = name in NAMING_CODE and value is not None
        if hides or named or (is_other and value not in OF_TORCH):
            _refuse_code(folder, f"config.json ({name})")


def _refuse_number(name: str, value: object, folder: Path) -> None:
    """Raises ValueError for a setting with a number that no model has, which would otherwise cause
    an error or NaN later, in training."""
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
    """Yields a configuration and all configurations inside it."""
    yield config
    for value in vars(config).values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, PreTrainedConfig):
                yield from _parts(item)


def refuse_growth(tokenizer: "PublishedTokenizer", folder: Path) -> None:
    """Raises ValueError if the tokenizer makes a long text of a short one, as a few rules can do.
    Texts, characters and tokens are tried out; ``examined`` limits the time and memory of this."""
    rules = [value for _, value in _values(tokenizer.rules())]
    if (growth := math.prod(map(_growth, rules))) > MOST_GROWTH:
        _refuse_growth(folder, "a character", growth)
    marks = (tokenizer.before, tokenizer.between, tokenizer.after)
    if (number := sum(map(len, marks))) > MOST_GROWTH:
        _refuse_growth(folder, "no text", number)
    alphabet = [chr(i) for i in range(NUM_PROBED) if not 0xD800 <= i < 0xE000]
    parts = ["".join(alphabet[i : i + TOGETHER]) for i in range(0, len(alphabet), TOGETHER)]
    texts = [rule[:1000] for rule in rules if isinstance(rule, str) and rule]
    for text in [*SLOW, *texts, *parts]:
        if (size := tokenizer.longest_form(text)) > MOST_GROWTH * len(text):
            _refuse_growth(folder, f"{len(text)} characters", size)
    named = [*tokenizer.ids().items()]
    for begin in range(0, len(named), TOGETHER):
        tokens, ids = zip(*named[begin : begin + TOGETHER], strict=True)
        size, most = len(tokenizer.decode(ids)), MOST_GROWTH * (len(ids) + sum(map(len, tokens)))
        if size > most:
            _refuse_growth(folder, f"{len(ids)} tokens", size)


def _refuse_growth(folder: Path, of: str, size: float) -> None:
    raise ValueError(
        f"path: the tokenizer of {folder} makes {size:,.0f} characters or tokens of {of}"
    )


def _growth(rule: object) -> float:
    """Returns the largest factor by which a rule lengthens text; 1 unless its type is Replace."""
    if not isinstance(rule, dict) or rule.get("type") != "Replace":
        return 1.0
    (kind, pattern), size = *rule["pattern"].items(), len(rule["content"])
    if kind == "String":
        return max(1.0, size / len(pattern)) if pattern else 1.0 + size
    return max(1.0, size) + (size if MAYBE_EMPTY.search(pattern) else 0)


def examined(work: Callable[[], T], folder: Path, files: Iterable[Path]) -> T:
    """Runs ``work``, which reads ``files`` of a folder, in a process of its own with limited time
    and memory; returns its result.

    Raises ValueError for a folder that cannot be used.
    """
    num_bytes = sum(file.stat().st_size for file in files)
    return limited(
        work,
        seconds=CHECKED_WITHIN_S + num_bytes / BYTES_PER_S,
        num_bytes=CHECKED_WITHIN_BYTES + MEMORY_PER_BYTE * num_bytes,
        what=f"path: reading {folder}",
    )
