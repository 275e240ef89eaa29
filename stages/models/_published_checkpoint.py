"""Reads a public checkpoint: its architecture, its class in transformers, its weights."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from stages.core.artifacts import read_json
from stages.text.published import LOCAL, WEIGHTS, files_in, line_of

# A model and a configuration of transformers. Their classes declare few of the attributes that
# every family has, so no type says more.
PublishedModel = Any
Config = Any
AutoClass = (
    type[AutoModel]
    | type[AutoModelForCausalLM]
    | type[AutoModelForMaskedLM]
    | type[AutoModelForSeq2SeqLM]
)

INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.pkl")
CODE = ("configuration_*.py", "modeling_*.py", "tokenization_*.py")  # as transformers names it


def architecture_of(config: Config) -> str:
    """Returns our name of the checkpoint's architecture. Raises ValueError if it is not a language
    model."""
    kind = config.model_type
    if config.is_encoder_decoder and kind in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        return "encoder_decoder"
    # BERT can be run as a decoder too, but was not published as one.
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return "encoder"
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "decoder"
    raise ValueError(f"path: a {kind!r} (config.json) is not a language model of transformers")


def class_of(config: Config) -> AutoClass:
    """Returns the class of the checkpoint's model: with a language modelling head if it generates
    text, unless it was published without the head."""
    architecture = architecture_of(config)
    tied = getattr(config, "tie_word_embeddings", True)
    if architecture == "encoder" or (is_headless(config) and not tied):
        return AutoModel
    return AutoModelForCausalLM if architecture == "decoder" else AutoModelForSeq2SeqLM


def is_headless(config: Config) -> bool:
    """Returns whether the checkpoint was published without a language modelling head."""
    return config.architectures == [MODEL_MAPPING_NAMES.get(config.model_type)]


def uninitialised(cls: AutoClass, config: Config) -> PublishedModel:
    """Returns the model without the published weights."""
    model = cls.from_config(config, dtype=torch.float32, trust_remote_code=False)
    return _without_pooler(model)


def published(cls: AutoClass, config: Config, folder: Path) -> PublishedModel:
    """Returns the model with the weights in ``folder``.

    Raises ValueError if they cannot be read or are incomplete.
    """
    refuse_code(folder)
    refuse_pickles(folder)
    try:
        loaded: Any = cls.from_pretrained(  # a pair, which the types of transformers do not say
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **LOCAL,
        )
    except Exception as error:  # a damaged file raises whatever its reader raises
        raise ValueError(f"path: the weights of {folder}: {line_of(error)}") from None
    model, report = loaded
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"path: the weights of {folder} lack {missing[0]}{more}")
    if getattr(model, "final_logits_bias", torch.zeros(1)).any():
        raise ValueError(f"path: {folder} has a final_logits_bias, which is not supported")
    return _without_pooler(model)


def refuse_code(folder: Path) -> None:
    """Raises ValueError for a model or a tokenizer with code of its own: transformers would replace
    it by a class of another model, or by none."""
    files = files_in(folder, CODE)
    for name in ("config.json", "tokenizer_config.json"):
        with suppress(OSError, ValueError):  # which the readers of these files report
            if "auto_map" in read_json(folder / name):
                files.append(folder / name)
    if files:
        where = " (auto_map)" if files[0].suffix == ".json" else ""
        raise ValueError(
            f"path: {folder} has code of its own, {files[0].name}{where}; no code of a checkpoint "
            "is run, only models that transformers has itself"
        )


def refuse_pickles(folder: Path) -> None:
    """Raises ValueError if a folder has no safetensors, or not all that its index lists."""
    if not files_in(folder, WEIGHTS):
        pickles = files_in(folder, PICKLES)
        what = f"only {pickles[0].name}, a pickle" if pickles else "no weights"
        raise ValueError(
            f"path: {folder} has {what}; it needs model.safetensors, since weights in other "
            "formats may hold code and are not loaded"
        )
    for index in files_in(folder, [INDEX]):
        try:
            listed = {folder / name for name in read_json(index)["weight_map"].values()}
        except (ValueError, KeyError, AttributeError):
            raise ValueError(f"path: {index} cannot be read") from None
        if absent := sorted(file.name for file in listed if not file.is_file()):
            raise ValueError(f"path: {folder} lacks {absent[0]}, which {index.name} lists")


def refuse_damaged(folder: Path) -> None:
    """Raises ValueError for weights whose file ends too early or has no header."""
    for file in files_in(folder, [name for name in WEIGHTS if name != INDEX]):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise ValueError(f"path: {file} is damaged: {line_of(error)}") from None


def _without_pooler(model: PublishedModel) -> PublishedModel:
    if hasattr(model, "pooler"):
        model.pooler = None
    return model
