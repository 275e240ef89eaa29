"""Folders of checkpoints that were made to mislead, or are damaged: each is checked, and loaded if
it is accepted, in a process of its own."""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stages.core.process import exit_on_mistake
from stages.models._backbone import draw_weights
from stages.models.hub import Hub
from stages.text.published_files import content_of
from tests.models.test_untrusted_checkpoints import RENAMED, edit, linked, replacing, sharded, write
from tests.small_hub import FAMILIES, checkpoint
from tests.torture.edits import VALUES
from tests.torture.tally import Tally, message_fault

SLOWEST_S = 35.0  # a check of a small checkpoint is stopped after 30 s
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER, ITS_CONFIG = "tokenizer.json", "tokenizer_config.json"
RAN = "RAN"  # the file that code of a checkpoint would write next to its folder

Change = Callable[[Path], object]


class Evil:
    """An object whose pickle writes a file when it is opened."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.ran}",)


def pickled(name: str, *, alone: bool = False) -> Change:
    def change(folder: Path) -> None:
        if alone:
            (folder / WEIGHTS).unlink()
        torch.save(Evil(folder.parent / RAN), folder / name)

    return change


def with_code(name: str, **settings: object) -> Change:
    """Names code in a file of settings, and puts a module of that name into the folder."""

    def change(folder: Path) -> None:
        code = f"open({str(folder.parent / RAN)!r}, 'w')\nclass E: pass\n"
        for module in ("evil.py", "configuration_evil.py", "modeling_evil.py"):
            (folder / module).write_text(code)
        edit(name, **settings)(folder)

    return change


def in_tokenizer(**changes: object) -> Change:
    return edit(TOKENIZER, **changes)


def with_token_id(number: int) -> Change:
    def change(folder: Path) -> None:
        settings = json.loads((folder / TOKENIZER).read_text())
        settings["model"]["vocab"]["zz"] = number
        (folder / TOKENIZER).write_text(json.dumps(settings))

    return change


def header(settings: object, num_bytes: int = 64) -> bytes:
    """Returns the bytes of a safetensors file: this header, then zeros."""
    text = settings if isinstance(settings, bytes) else json.dumps(settings).encode()
    return len(text).to_bytes(8, "little") + text + bytes(num_bytes)


def emptied(name: str) -> Change:
    return lambda folder: ((folder / name).unlink(), (folder / name).mkdir())


def fifo(folder: Path) -> None:
    (folder / CONFIG).unlink()
    os.mkfifo(folder / CONFIG)


def cut(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


EVIL = {"AutoConfig": "evil.E", "AutoModel": "evil.E", "AutoModelForMaskedLM": "evil.E"}
OVERLAPPING = {
    "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
    "b": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]},
}
NEGATIVE = {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [64, 0]}}
NAMED: dict[str, Change] = {
    "unchanged": lambda folder: None,
    "pickle alone": pickled("pytorch_model.bin", alone=True),
    "pickle beside the weights": pickled("pytorch_model.bin"),
    "pickle as safetensors": pickled(WEIGHTS),
    "pickles of training and adapter": lambda folder: (
        pickled("training_args.bin")(folder),
        pickled("adapter_model.bin")(folder),
        write("adapter_config.json", b'{"base_model_name_or_path": "/x", "peft_type": "LORA"}')(
            folder
        ),
    ),
    "code in the config": with_code(CONFIG, auto_map=EVIL),
    "code in a part of the config": with_code(CONFIG, text_config={"auto_map": EVIL}),
    "code of the hub": edit(CONFIG, auto_map={"AutoConfig": "evil/repo--configuration_e.E"}),
    "code in the tokenizer": with_code(ITS_CONFIG, auto_map={"AutoTokenizer": ["evil.E", None]}),
    "code in a processor": with_code(CONFIG, processor_class="evil.E"),
    "trust_remote_code": with_code(CONFIG, trust_remote_code=True, auto_map=EVIL),
    "pipelines": with_code(CONFIG, custom_pipelines={"a": {"impl": "evil.E"}}),
    "class of the tokenizer": edit(ITS_CONFIG, tokenizer_class="../../evil.E"),
    "os.system as tokenizer": edit(ITS_CONFIG, tokenizer_class="os.system"),
    "files of the tokenizer": edit(
        ITS_CONFIG, vocab_file="/etc/passwd", tokenizer_file="/dev/zero"
    ),
    "template": edit(ITS_CONFIG, chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "another config": lambda folder: (
        shutil.copyfile(folder / CONFIG, folder / "config.4.0.0.json"),
        edit(CONFIG, configuration_files=["config.4.0.0.json"])(folder),
    ),
    "another tokenizer": edit(ITS_CONFIG, fast_tokenizer_files=["../tokenizer.4.0.0.json"]),
    "file among the special tokens": write(
        "special_tokens_map.json", b'{"tokenizer_file": "/etc/passwd"}'
    ),
    "renamed kernel": edit(CONFIG, **RENAMED),
    "-1 layers": edit(CONFIG, num_hidden_layers=-1),
    "dropout NaN": edit(CONFIG, attention_probs_dropout_prob=float("nan")),
    "tokenizer: 22 doublings": replacing("q", 22),
    "kernel": edit(CONFIG, _attn_implementation="evil/kernel"),
    "kernels": edit(CONFIG, use_kernels=True),
    "quantization": edit(CONFIG, quantization_config={"quant_method": "bitsandbytes"}),
    "dtype": edit(CONFIG, dtype="__import__('os').system('id')", torch_dtype="os"),
    "family as a path": edit(CONFIG, model_type="../../evil"),
    "family of images": edit(CONFIG, model_type="vit"),
    "activation": edit(CONFIG, hidden_act="__import__('os').system('id')"),
    "architectures": edit(CONFIG, architectures=["os.system"]),
    "labels": edit(CONFIG, id2label={"x": "y"}),
    "name of another folder": edit(CONFIG, _name_or_path="/etc/passwd"),
    "other weights": edit(CONFIG, transformers_weights="other.safetensors"),
    "width 10^9": edit(CONFIG, hidden_size=10**9),
    "width -16": edit(CONFIG, hidden_size=-16),
    "10^9 layers": edit(CONFIG, num_hidden_layers=10**9),
    "10^5 layers": edit(CONFIG, num_hidden_layers=10**5),
    "vocabulary 10^12": edit(CONFIG, vocab_size=10**12),
    "vocabulary x": edit(CONFIG, vocab_size="x"),
    "0 heads": edit(CONFIG, num_attention_heads=0),
    "3 heads": edit(CONFIG, num_attention_heads=3),
    "0 positions": edit(CONFIG, max_position_embeddings=0),
    "10^12 positions": edit(CONFIG, max_position_embeddings=10**12),
    "config: list": write(CONFIG, b"[]"),
    "config: null": write(CONFIG, b"null"),
    "config: deep": write(CONFIG, b"[" * 100_000 + b"]" * 100_000),
    "config: latin-1": write(CONFIG, b'{"model_type": "bert", "x": "\xe9"}'),
    "config: mark of order": lambda folder: write(
        CONFIG, b"\xef\xbb\xbf" + (folder / CONFIG).read_bytes()
    )(folder),
    "config: folder": emptied(CONFIG),
    "config: fifo": fifo,
    "config: /dev/zero": linked(CONFIG, "/dev/zero"),
    "weights: folder": emptied(WEIGHTS),
    "weights: /etc/passwd": linked(WEIGHTS, "/etc/passwd"),
    "weights: /dev/zero": linked(WEIGHTS, "/dev/zero"),
    "weights: nowhere": linked(WEIGHTS, "/nonexistent"),
    "weights: itself": linked(WEIGHTS, WEIGHTS),
    "index: pickle": lambda folder: (sharded("x.bin")(folder), pickled("x.bin")(folder)),
    "index: outside": sharded("../outside.safetensors"),
    "index: no JSON": write(INDEX, b"{"),
    "index: list": write(INDEX, b'{"weight_map": [1]}'),
    "index: number": write(INDEX, b'{"weight_map": {"a": 1}}'),
    "index: /etc/passwd": write(INDEX, b'{"weight_map": {"a": "/etc/passwd"}}'),
    "header of 2^63 bytes": write(WEIGHTS, (2**63).to_bytes(8, "little") + b"{}"),
    "header of 2^64 bytes": write(WEIGHTS, b"\xff" * 8 + b"{}"),
    "header of blanks": write(WEIGHTS, header(b" " * 90_000_000, 0)),
    "header: deep": write(WEIGHTS, header(b"[" * 1_000_000, 0)),
    "overlapping weights": write(WEIGHTS, header(OVERLAPPING, 24)),
    "negative shape": write(WEIGHTS, header(NEGATIVE)),
    "no weights": write(WEIGHTS, b""),
    "three bytes": write(WEIGHTS, b"abc"),
    "cut weights": cut,
    "more bytes": lambda folder: write(WEIGHTS, (folder / WEIGHTS).read_bytes() + b"x" * 100)(
        folder
    ),
    "tokenizer: {]": write(TOKENIZER, b"{]"),
    "tokenizer: {}": write(TOKENIZER, b"{}"),
    "tokenizer: deep": write(TOKENIZER, b'{"a":' * 200_000),
    "tokenizer: slow pattern": in_tokenizer(
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": "(a+)+$"},
            "behavior": "Isolated",
            "invert": False,
        }
    ),
    "tokenizer: id 2^31": with_token_id(2**31),
    "tokenizer: id -1": with_token_id(-1),
    "tokenizer: none": lambda folder: [
        file.unlink() for pattern in ("*token*", "vocab*") for file in folder.glob(pattern)
    ],
    "tokens: no ids": write("added_tokens.json", b'{"x": "y"}'),
}


def random_change(rng: random.Random, folder: Path) -> str:
    """Changes a setting of a JSON file or bytes of any file; returns what was done."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    file = rng.choice(files)
    if file.name in (CONFIG, ITS_CONFIG) and rng.random() < 0.8:
        settings = json.loads(file.read_text())
        values = [v for v in VALUES if not isinstance(v, bytes | set) and _is_json(v)]
        key, value = rng.choice(sorted(settings)), rng.choice(values)
        file.write_text(json.dumps(settings | {key: value}))
        return f"{file.name}: {key}={str(value)[:60]}"
    content = bytearray(file.read_bytes())
    begin = rng.randrange(min(len(content), rng.choice((16, 2000, 10**9))))
    length = rng.choice((1, 1, 8, 1000))
    content[begin : begin + length] = rng.randbytes(rng.choice((0, length, length)))
    file.write_bytes(content)
    return f"{file.name}: bytes from {begin}"


def _is_json(value: object) -> bool:
    try:
        return bool(json.dumps(value))
    except TypeError:
        return False


def open_folders(numbers: range, seed: int, seconds: float) -> Tally:
    """Opens the named folders of a BERT, then folders of all families that are changed at
    random."""
    tally = Tally("hostile", seed)
    named = [*NAMED.items()]
    check_and_load(checkpoint("bert"))  # imports what each process needs
    for number, rng in tally.numbers(numbers, seconds):
        with tempfile.TemporaryDirectory() as name:
            family = "bert" if number < len(named) else rng.choice(sorted(FAMILIES))
            folder = Path(shutil.copytree(checkpoint(family), Path(name, "mine")))
            if number < len(named):
                what, change = named[number]
                change(folder)
            else:
                what = f"{family}, {random_change(rng, folder)}"
            problem, outcome = opened(folder)
        if problem:
            tally.fault(number, f"{what}: {problem}")
        else:
            tally.count(outcome)
    return tally


def check_and_load(folder: Path) -> None:
    """Checks a folder as ``stages.resolve`` does, and loads it as ``stages.pretrain`` does."""
    revision = content_of(folder)
    num_tokens = Hub.check(path=str(folder), revision=revision)
    assert num_tokens is not None
    draw_weights(Hub(num_tokens, path=str(folder), revision=revision), seed=1)


def opened(folder: Path) -> tuple[str, str]:
    """Opens a folder in a forked process; returns what is wrong, or nothing, and whether the folder
    was accepted or refused."""
    log = folder.parent / "printed"
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _open_here(folder, log)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    took, printed = time.monotonic() - began, log.read_text(errors="replace")
    if (folder.parent / RAN).exists():
        return "code of the checkpoint ran", ""
    if took > SLOWEST_S:
        return f"took {took:.0f} s", ""
    return message_fault(code, printed), "accepted" if code == 0 else "refused"


def _open_here(folder: Path, log: Path) -> None:
    code: object = 1
    try:
        signal.alarm(int(SLOWEST_S) + 5)
        output = os.open(log, os.O_CREAT | os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        exit_on_mistake(lambda: check_and_load(folder))
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code if isinstance(code, int) else 1)
