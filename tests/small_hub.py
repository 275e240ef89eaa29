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
CLASSES = {  # model, its head, tokenizer
    "bert": ("Bert", "ForMaskedLM", "Bert"),
    "sentence_bert": ("Bert", "Model", "Bert"),  # published without its head
    "roberta": ("Roberta", "ForMaskedLM", "Roberta"),
    "distilbert": ("DistilBert", "ForMaskedLM", "Bert"),
    "gpt2": ("GPT2", "LMHeadModel", "GPT2"),
    "t5": ("T5", "ForConditionalGeneration", "T5"),
    "bart": ("Bart", "ForConditionalGeneration", "Roberta"),
}


def settings_of(family: str, pad_id: int | None) -> dict[str, Any]:
    both: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2}
    match family:
        case "bert" | "sentence_bert":
            own = {"hidden_size": 32, "intermediate_size": 48}
        case "roberta":  # its first positions are never used
            assert pad_id is not None
            positions = MAX_POSITIONS + pad_id + 1
            own = {"hidden_size": 32, "intermediate_size": 48, "type_vocab_size": 1}
            return both | own | {"max_position_embeddings": positions, "pad_token_id": pad_id}
        case "distilbert":
            own = {"dim": 32, "hidden_dim": 48}
        case "gpt2":
            return {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": MAX_POSITIONS} | {
                "bos_token_id": 0,
                "eos_token_id": 0,
            }
        case "t5":
            own = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_decoder_layers": 2}
            return both | own | {"decoder_start_token_id": 0}
        case _:
            sizes = {"layers": 2, "attention_heads": 2, "ffn_dim": 48}
            own = {"d_model": 32} | {
                f"{half}_{key}": value
                for half in ("encoder", "decoder")
                for key, value in sizes.items()
            }
            both = {}
    return both | own | {"max_position_embeddings": MAX_POSITIONS, "pad_token_id": pad_id}


@cache
def checkpoint(family: str) -> Path:
    """A folder with config.json, model.safetensors and the tokenizer's files."""
    folder = new_folder() / family
    model, head, tokenizer_name = CLASSES[family]
    tokenizer = tokenizer_of(tokenizer_name)
    config = getattr(transformers, f"{model}Config")(
        vocab_size=len(tokenizer) + 4, **settings_of(family, tokenizer.pad_token_id)
    )
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
