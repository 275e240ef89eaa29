"""Small random checkpoints of the most widely published families. Tokenizers are of the types that
the families are published with, with their special tokens, and learnt from the text of
``tests.small``."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.small import documents, new_folder

VOCAB_SIZE = 500
MAX_POSITIONS = 64

WIDTHS = {"num_hidden_layers": 2, "num_attention_heads": 2}
SIZES = WIDTHS | {"hidden_size": 32, "intermediate_size": 48}
SIZES |= {"max_position_embeddings": MAX_POSITIONS}
AFTER_PADDING = SIZES | {"max_position_embeddings": MAX_POSITIONS + 2}  # RoBERTa begins at 2
FEW_KEYS = SIZES | {"num_key_value_heads": 1}
WIDE_HEADS = FEW_KEYS | {"head_dim": 16}
LOCAL = SIZES | {"global_attn_every_n_layers": 2, "local_attention": 8}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 2}
T5 |= {"decoder_start_token_id": 0}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
DEBERTA = {"relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm"}
DEBERTA |= {"share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": MAX_POSITIONS}
DISTILBERT = {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 2}
OPT = WIDTHS | {"hidden_size": 32, "ffn_dim": 48, "max_position_embeddings": MAX_POSITIONS}


class Published(NamedTuple):
    """A family: its architecture here, its classes in transformers, its tokenizer and sizes."""

    architecture: str
    config: str
    model: str
    tokenizer: str
    settings: dict[str, Any]


FAMILIES = {
    "modernbert": Published("encoder", "ModernBert", "ForMaskedLM", "cls_bytes", LOCAL),
    "ettin_decoder": Published("decoder", "ModernBertDecoder", "ForCausalLM", "cls_bytes", LOCAL),
    "deberta_v3": Published(
        "encoder", "DebertaV2", "ForMaskedLM", "deberta", SIZES | DEBERTA | {"type_vocab_size": 0}
    ),
    "electra": Published(
        "encoder", "Electra", "ForPreTraining", "wordpiece", SIZES | {"embedding_size": 16}
    ),
    "albert": Published(
        "encoder", "Albert", "ForMaskedLM", "albert", SIZES | {"embedding_size": 16}
    ),
    "xlm_roberta": Published("encoder", "XLMRoberta", "ForMaskedLM", "xlm_r", AFTER_PADDING),
    "roberta": Published("encoder", "Roberta", "ForMaskedLM", "roberta", AFTER_PADDING),
    "distilbert": Published(
        "encoder",
        "DistilBert",
        "ForMaskedLM",
        "wordpiece",
        DISTILBERT | {"max_position_embeddings": MAX_POSITIONS},
    ),
    "gpt2": Published("decoder", "GPT2", "LMHeadModel", "gpt2", GPT2),
    "gpt_neox": Published("decoder", "GPTNeoX", "ForCausalLM", "gpt_neox", SIZES),
    "opt": Published("decoder", "OPT", "ForCausalLM", "opt", OPT | {"word_embed_proj_dim": 32}),
    "llama3": Published("decoder", "Llama", "ForCausalLM", "llama3", FEW_KEYS),
    "qwen3": Published("decoder", "Qwen3", "ForCausalLM", "qwen", WIDE_HEADS),
    "smollm3": Published(
        "decoder", "SmolLM3", "ForCausalLM", "llama3", FEW_KEYS | {"no_rope_layers": [1, 0]}
    ),
    "gemma": Published("decoder", "Gemma", "ForCausalLM", "gemma", WIDE_HEADS),
    "gemma3": Published(
        "decoder", "Gemma3Text", "ForCausalLM", "gemma", WIDE_HEADS | {"sliding_window": 8}
    ),
    "granite": Published(
        "decoder", "Granite", "ForCausalLM", "gpt2", FEW_KEYS | {"logits_scaling": 8.0}
    ),
    "phi": Published("decoder", "Phi", "ForCausalLM", "phi", SIZES),
    "phi3": Published("decoder", "Phi3", "ForCausalLM", "llama2", FEW_KEYS),
    "t5": Published("encoder_decoder", "T5", "ForConditionalGeneration", "t5", T5),
    "mt5": Published("encoder_decoder", "MT5", "ForConditionalGeneration", "t5", T5 | GATED),
}
MARKS = {  # first, last, pad, unk, mask; then the class that a published tokenizer_config.json has
    "wordpiece": ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "BertTokenizer"),
    "roberta": ("<s>", "</s>", "<pad>", "<unk>", "<mask>", "RobertaTokenizer"),
    "cls_bytes": ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "PreTrainedTokenizerFast"),
    "xlm_r": ("<s>", "</s>", "<pad>", "<unk>", "<mask>", "XLMRobertaTokenizer"),
    "albert": ("[CLS]", "[SEP]", "<pad>", "<unk>", "[MASK]", "AlbertTokenizer"),
    "deberta": ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "DebertaV2Tokenizer"),
    "t5": (None, "</s>", "<pad>", "<unk>", None, "T5Tokenizer"),
    "gemma": ("<bos>", None, "<pad>", "<unk>", "<mask>", "GemmaTokenizer"),
    "llama2": ("<s>", None, None, "<unk>", None, "LlamaTokenizer"),
    "llama3": ("<|begin_of_text|>", None, None, None, None, "PreTrainedTokenizerFast"),
    "opt": ("</s>", None, "<pad>", "<unk>", None, "GPT2Tokenizer"),
    "gpt2": (None, None, None, None, None, "GPT2Tokenizer"),
    "gpt_neox": (None, None, None, None, None, "GPTNeoXTokenizer"),
    "phi": (None, None, None, None, None, "CodeGenTokenizer"),
    "qwen": (None, None, "<|endoftext|>", None, None, "Qwen2Tokenizer"),
}
ENDS = {  # the ends of texts for tokenizers that add none
    "gemma": "<eos>",
    "llama2": "</s>",
    "llama3": "<|end_of_text|>",
    "opt": "</s>",
    "qwen": "<|im_end|>",
}
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
