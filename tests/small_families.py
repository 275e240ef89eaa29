"""Small random checkpoints of the most widely published families. Tokenizers are of the types that
the families are published with, with their special tokens, and learnt from the text of
``tests.small``."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from ruamel.yaml import YAML
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.small import documents, new_folder

VOCAB_SIZE = 500
MAX_POSITIONS = 64


class Published(NamedTuple):
    """A family: its architecture here, its classes in transformers, its tokenizer and sizes."""

    architecture: str
    config: str
    model: str
    tokenizer: str
    settings: dict[str, Any]


TABLES = YAML(typ="safe").load(Path(__file__).with_suffix(".yaml").read_text())
FAMILIES = {name: Published(*family) for name, family in TABLES["families"].items()}
MARKS, ENDS = TABLES["marks"], TABLES["ends"]
UNIGRAM = ("xlm_r", "albert", "deberta", "t5")
METASPACE_BPE = ("llama2", "gemma")


@cache
def checkpoint(name: str, **settings: Any) -> Path:
    """A folder with config.json, model.safetensors and the tokenizer's files."""
    family = FAMILIES[name]
    first, last, pad, unk, mask, cls = MARKS[family.tokenizer]
    end = last or ENDS.get(family.tokenizer, "<|endoftext|>")
    special = {"bos_token": first, "eos_token": end, "pad_token": pad, "unk_token": unk}
    if family.architecture == "encoder" or family.tokenizer == "cls_bytes":
        special |= {"cls_token": first, "sep_token": last, "mask_token": mask}
    special = {key: mark for key, mark in special.items() if mark is not None}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=learnt(family.tokenizer), model_max_length=MAX_POSITIONS, **special
    )
    ids = {
        f"{key}_id": tokenizer.convert_tokens_to_ids(mark)
        for key, mark in special.items()
        if key not in ("unk_token", "mask_token")
    }
    if pad is None:
        ids["pad_token_id"] = None  # a family's default may lie beyond this vocabulary
    config = getattr(transformers, f"{family.config}Config")(
        vocab_size=len(tokenizer) + 4, **ids, **(family.settings | settings)
    )
    folder = new_folder() / name
    torch.manual_seed(0)
    body = family.config.removesuffix("Text")
    getattr(transformers, f"{body}{family.model}")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": cls}))
    return folder


@cache
def learnt(kind: str) -> Tokenizer:
    """Returns a tokenizer of a published type, learnt from the text of ``tests.small``."""
    first, last, pad, unk, mask, _ = MARKS[kind]
    marks = [*dict.fromkeys(filter(None, (first, pad, last, unk, mask, ENDS.get(kind))))]
    options: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "special_tokens": marks or ["<|endoftext|>"],
        "show_progress": False,
    }
    words: Any = pre_tokenizers.Metaspace()
    joined: Any = decoders.Metaspace()
    if kind == "wordpiece":
        model: Any = models.WordPiece(unk_token=unk)
        words, joined = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        trainer: Any = trainers.WordPieceTrainer(**options)
    elif kind in UNIGRAM:
        model, trainer = models.Unigram(), trainers.UnigramTrainer(unk_token=unk, **options)
    elif kind in METASPACE_BPE:
        model, trainer = models.BPE(unk_token=unk), trainers.BpeTrainer(**options)
    else:
        model = models.BPE()
        words, joined = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **options)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = words, joined
    tokenizer.train_from_iterator((line for lines in documents() for line in lines), trainer)
    if kind == "t5":
        tokenizer.add_special_tokens([f"<extra_id_{k}>" for k in reversed(range(100))])
    if first or last:
        single = " ".join(filter(None, (first, "$A", last)))
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single,
            pair=f"{single} $B {last or ''}".strip(),
            special_tokens=[(m, tokenizer.token_to_id(m)) for m in filter(None, {first, last})],
        )
    return tokenizer
