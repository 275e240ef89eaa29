"""Small checkpoints with the files that checkpoints have on the hub. ``transformers`` makes them;
their tokenizers are learnt from the text of ``tests.small``."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers

from stages.text.checkpoints import content_of
from stages.text.tokenizer import NUM_SPECIAL
from tests.small import documents, new_folder, small_tokenizer

VOCAB_SIZE = 500
MAX_POSITIONS = 64
FAMILIES = {
    "bert": "encoder",
    "roberta": "encoder",
    "distilbert": "encoder",
    "gpt2": "decoder",
    "t5": "encoder_decoder",
    "bart": "encoder_decoder",
}
BERT = {"num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = BERT | {"hidden_size": 32, "intermediate_size": 48}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": MAX_POSITIONS}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_decoder_layers": 2, "decoder_start_token_id": 0}
HALF = {"layers": 2, "attention_heads": 2, "ffn_dim": 48}
BART = {f"{half}_{key}": HALF[key] for half in ("encoder", "decoder") for key in HALF}
CLASSES: dict[str, tuple[str, str, str, dict[str, Any]]] = {  # model, head, tokenizer, sizes
    "bert": ("Bert", "ForMaskedLM", "Bert", WIDE),
    "sentence_bert": ("Bert", "Model", "Bert", WIDE),  # published without its head
    "roberta": ("Roberta", "ForMaskedLM", "Roberta", WIDE | {"type_vocab_size": 1}),
    "distilbert": ("DistilBert", "ForMaskedLM", "Bert", BERT | {"dim": 32, "hidden_dim": 48}),
    "gpt2": ("GPT2", "LMHeadModel", "GPT2", GPT2 | {"bos_token_id": 0, "eos_token_id": 0}),
    "t5": ("T5", "ForConditionalGeneration", "T5", BERT | T5),
    "bart": ("Bart", "ForConditionalGeneration", "Roberta", BART | {"d_model": 32}),
}


@cache
def checkpoint(family: str) -> Path:
    """A folder with config.json, model.safetensors and the tokenizer's files."""
    folder = new_folder() / family
    model, head, tokenizer_name, settings = CLASSES[family]
    tokenizer = tokenizer_of(tokenizer_name)
    if family not in ("gpt2", "t5"):
        pad_id = tokenizer.pad_token_id
        unused = pad_id + 1 if family == "roberta" else 0  # RoBERTa's first positions
        settings = settings | {"max_position_embeddings": MAX_POSITIONS + unused}
        settings |= {"pad_token_id": pad_id}
    config = getattr(transformers, f"{model}Config")(vocab_size=len(tokenizer) + 4, **settings)
    torch.manual_seed(0)
    getattr(transformers, f"{model}{head}")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def tokenizer_of(name: str) -> Any:
    kind = getattr(transformers, f"{name}Tokenizer")
    if name == "T5":  # learning one takes seconds; the pieces of our tokenizer will do
        (file,) = (each for each in small_tokenizer().files if each.name == "tokenizer.json")
        pieces = json.loads(file.read_text())["model"]["vocab"]
        learnt = [(piece, score) for piece, score in pieces[NUM_SPECIAL:]]
        return kind(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *learnt])
    lines = [line for document in documents() for line in document]
    return kind().train_new_from_iterator(lines, VOCAB_SIZE, show_progress=False)


def revision_of(folder: Path) -> str:
    """Returns the revision that pins the folder's content."""
    return content_of(folder)
