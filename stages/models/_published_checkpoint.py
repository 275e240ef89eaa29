"""Reads a public checkpoint: its architecture, its class in transformers, its weights."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
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

from stages.text.published_files import WEIGHTS, files_in, line_of, read_files, read_settings
from stages.text.untrusted import refuse_code

# A model and a configuration of transformers, without a type: their classes declare few of the
# attributes that all families have.
PublishedModel = Any
Config = Any
AutoClass = (
    type[AutoModel]
    | type[AutoModelForCausalLM]
    | type[AutoModelForMaskedLM]
    | type[AutoModelForSeq2SeqLM]
)

PROBED = 8  # tokens of a text; their states are compared with and without further tokens
TOLERANCE = 1e-4  # relative to the largest state: padding changes the last bits of a sum
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"model[\w.-]*\.safetensors")  # files that the pinned hash covers
MOST_MISSING = 2  # weights in config.json per stored weight; if more, not only a head is missing
LARGEST = 1e18  # absolute weight; the squares of much larger ones overflow float32
INTEGERS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.pkl")


def architecture_of(config: Config) -> str:
    """Returns our name for the checkpoint's architecture. Raises ValueError if the checkpoint is
    not a language model."""
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
    """Returns transformers' class for the checkpoint. For a decoder or encoder-decoder it has a
    language modelling head, unless the checkpoint was published without that head and its
    embeddings are not tied."""
    architecture = architecture_of(config)
    tied = getattr(config, "tie_word_embeddings", True)
    if architecture == "encoder" or (is_headless(config) and not tied):
        return AutoModel
    return AutoModelForCausalLM if architecture == "decoder" else AutoModelForSeq2SeqLM


def is_headless(config: Config) -> bool:
    """Returns whether the checkpoint was published without a language modelling head: without any
    head, or with the head of ELECTRA's discriminator."""
    without = {MODEL_MAPPING_NAMES.get(config.model_type), "ElectraForPreTraining"}
    return len(config.architectures or ()) == 1 and config.architectures[0] in without


def uninitialised(cls: AutoClass, config: Config) -> PublishedModel:
    """Returns the model without the published weights."""
    model = cls.from_config(config, dtype=torch.float32, trust_remote_code=False)
    return _without_pooler(model)


def published(
    cls: AutoClass, config: Config, folder: Path, *, generator: torch.Generator
) -> PublishedModel:
    """Returns the model with the weights in ``folder``. The files are read here, so that
    transformers opens no other file and no other format. If an encoder was published without its
    language modelling head, ``generator`` draws the head's weights as transformers would.

    Raises ValueError for weights that cannot be read, are incomplete, or are not finite numbers.
    """
    refuse_code(folder)
    files = weight_files(folder)
    try:
        weights = {name: weight for file in files for name, weight in load_file(file).items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"path: the weights of {folder}: {line_of(error)}") from None
    for name, weight in weights.items():
        if weight.is_floating_point() and not _is_finite(weight):
            raise ValueError(f"path: the weights of {folder}: {name} has NaN or infinite values")
        if not weight.is_floating_point() and weight.dtype not in INTEGERS:
            raise ValueError(f"path: the weights of {folder}: {name} has numbers of {weight.dtype}")
    num_stored = sum(weight.numel() for weight in weights.values())
    if (layers := config.num_hidden_layers) > len(weights):
        raise ValueError(
            f"path: {folder / 'config.json'} has {layers} layers, but the weights are only "
            f"{len(weights)} tensors"
        )
    try:
        with torch.device("meta"):
            outline = cls.from_config(config, dtype=torch.float32, trust_remote_code=False)
        num_expected = sum(parameter.numel() for parameter in outline.parameters())
    except Exception as error:  # an impossible size raises errors of many types
        raise ValueError(
            f"path: {folder / 'config.json'} describes no model: {line_of(error)}"
        ) from None
    if num_expected > MOST_MISSING * num_stored:
        raise ValueError(
            f"path: {folder / 'config.json'} describes {num_expected:,} weights, but the files "
            f"have only {num_stored:,}"
        )
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            loaded: Any = type(outline).from_pretrained(
                None,
                config=config,
                state_dict=weights,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # mismatches are refused by name below
                output_loading_info=True,
            )
    except Exception as error:  # weights that do not fit raise errors of many types
        raise ValueError(f"path: the weights of {folder}: {line_of(error)}") from None
    model, report = loaded
    for name, stored, expected in sorted(report["mismatched_keys"]):
        raise ValueError(
            f"path: the weights of {folder}: {name} has the shape {[*stored]}, but config.json "
            f"describes {[*expected]}"
        )
    head = cls is AutoModelForMaskedLM and is_headless(config)
    body = f"{model.base_model_prefix}." if head else ""
    missing = sorted(
        key
        for key in report["missing_keys"]
        if key.startswith(body) and not key.startswith("pooler.")
    )
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(f"path: the weights of {folder} lack {missing[0]}{more}")
    for name, weight in model.named_parameters():
        if weight.numel() and max(map(abs, weight.aminmax())) > LARGEST:
            raise ValueError(
                f"path: the weights of {folder}: {name} has numbers beyond {LARGEST:.0e}"
            )
    if getattr(model, "final_logits_bias", torch.zeros(1)).any():
        raise ValueError(f"path: {folder} has a final_logits_bias, which is not supported")
    return _without_pooler(model)


def reader_of(model: PublishedModel, config: Config) -> PublishedModel:
    """Returns the part that computes the states of input tokens: the model without its head, or the
    encoder of an encoder-decoder."""
    base = model.base_model
    both = architecture_of(config) == "encoder_decoder"
    return getattr(base, "encoder", base) if both else base


@torch.no_grad()
def refuse_reading_further(
    reader: PublishedModel, config: Config, regular_ids: Int[np.ndarray, " V"]
) -> None:
    """Raises ValueError if the states of a text depend on what follows the text: in a decoder on
    later tokens (XLNet, which reads in both directions), in another model on padding, so that a
    prediction would depend on the other texts of its batch (FNet, ConvBERT). Also raises it if the
    final states differ in width from those between the blocks (OPT with 350 million weights), are
    not finite, or cannot be computed in training mode."""
    kind, is_decoder = config.model_type, architecture_of(config) == "decoder"
    ids = torch.from_numpy(np.resize(regular_ids[: 2 * PROBED], (1, 2 * PROBED)))
    mask = torch.ones_like(ids)
    if not is_decoder:
        ids[:, PROBED:] = mask[:, PROBED:] = 0
    try:
        alone, followed = (
            reader(input_ids=i, attention_mask=m, return_dict=True).last_hidden_state[:, :PROBED]
            for i, m in ((ids[:, :PROBED], mask[:, :PROBED]), (ids, mask))
        )
        with torch.random.fork_rng(devices=()):
            trained = reader.train()(input_ids=ids, attention_mask=mask, return_dict=True)
        reader.eval()
    except Exception as error:  # a model that needs other inputs raises errors of many types
        raise ValueError(f"path: a {kind!r} cannot read a text: {line_of(error)}") from None
    states = (alone, followed, trained.last_hidden_state[:, :PROBED])
    if not all(each.isfinite().all() for each in states):
        raise ValueError(f"path: the states of this {kind!r} have NaN or infinite values")
    if alone.shape[-1] != config.hidden_size:
        raise ValueError(
            f"path: the states of this {kind!r} have {alone.shape[-1]} numbers, but its blocks "
            f"{config.hidden_size} (config.json), which is not supported; choose another size"
        )
    difference = float((followed - alone).abs().max() / alone.abs().max())
    if difference <= TOLERANCE:
        return
    if is_decoder:
        raise ValueError(
            f"path: a {kind!r} is no decoder as it is run here: its states depend on later tokens; "
            "choose a checkpoint of another family"
        )
    raise ValueError(
        f"path: a {kind!r} does not mask padding: its states of a text change by {difference:.1%} "
        "when the text is padded, so a prediction would depend on the other texts of its batch; "
        "choose a checkpoint of another family"
    )


def weight_files(folder: Path) -> list[Path]:
    """Returns the files with the weights, all of which the pinned hash covers.

    Raises ValueError if there are no safetensors, if a file that the index lists is missing, or if
    the index lists a file of another kind or in another folder.
    """
    present = read_files(folder, WEIGHTS)
    if not present:
        pickles = files_in(folder, PICKLES)
        what = f"only {pickles[0].name}, a pickle" if pickles else "no weights"
        raise ValueError(
            f"path: {folder} has {what}; it needs model.safetensors, since weights in other "
            "formats may hold code and are not loaded"
        )
    index, whole = folder / INDEX, folder / "model.safetensors"
    listed: set[str] = set()
    if index in present:
        weight_map = read_settings(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError(f"path: {index} cannot be read: it has no weight_map")
        for name in weight_map.values():
            if not isinstance(name, str) or not SHARD.fullmatch(name):
                raise ValueError(
                    f"path: {index} lists {name!r}; weights must be files of the folder that are "
                    "named like model-00001-of-00002.safetensors"
                )
            listed.add(name)
        if absent := sorted(listed - {file.name for file in present}):
            raise ValueError(f"path: {folder} lacks {absent[0]}, which {index.name} lists")
    if whole in present:  # transformers, too, prefers this file
        return [whole]
    if not listed:
        raise ValueError(f"path: {folder} lacks model.safetensors, or the index of its parts")
    return [folder / name for name in sorted(listed)]


def refuse_damaged(folder: Path) -> None:
    """Raises ValueError if a file of weights ends too early or has no header."""
    for file in read_files(folder, [name for name in WEIGHTS if name != INDEX]):
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise ValueError(f"path: {file} is damaged: {line_of(error)}") from None


def _is_finite(weight: torch.Tensor) -> bool:
    """Whether all values are finite. Only the extremes are tested, which needs no large mask."""
    return not weight.numel() or all(bool(v.isfinite()) for v in weight.float().aminmax())


def _without_pooler(model: PublishedModel) -> PublishedModel:
    if hasattr(model, "pooler"):
        model.pooler = None
    return model
