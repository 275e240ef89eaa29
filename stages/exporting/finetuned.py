"""The model of a kept trial without the additions of its method."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from stages.methods._method import METHODS
from stages.methods.lora import LoRA
from stages.models._heads import ModelWithHead
from stages.tasks._writing import Writing
from stages.trials.kept import KeptTrial
from stages.trials.setup import TrialSetup

A, B = ".lora.a", ".lora.b"  # the two factors of an update, after the name of its layer
EXPORTED = ("classification", "tagging")


def finetuned(kept: KeptTrial, setup: TrialSetup, path: Path) -> tuple[ModelWithHead, list[str]]:
    """Returns the trial's model with the weights in ``path``, and its labels. LoRA's updates are
    added to the weights.

    Raises ValueError if the task or the method has parts that a plain model lacks.
    """
    task = setup.task_record["task"]["name"]
    writes = isinstance(setup.task, Writing)
    if not writes and task not in EXPORTED:
        raise ValueError(f"tasks.{kept.task}: {task} cannot be exported")
    if setup.task.has_prefix:
        raise ValueError(
            f"{kept.run}: objective: a fine-tuned model that sees its input in both "
            "directions has no counterpart in transformers, whose decoders are causal"
        )
    model = setup.headed(seed=kept.finetune_seed)
    trained = load_file(path)
    if not trained:
        raise ValueError(
            f"finetune.methods.{kept.method}: trains nothing; leave out --task and export the run"
        )
    if kept.component["name"] == "lora":
        trained = _merged(trained, model, kept)
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    added = [name for name, weight in trained.items() if shapes.get(name) != weight.shape]
    if added:
        raise ValueError(
            f"finetune.methods.{kept.method}: transformers has no counterpart of what this "
            f"method adds to a model ({added[0]})"
        )
    model.load_state_dict(trained, strict=False)  # frozen weights are as they were pretrained
    return model, [] if writes else setup.task_record["labels"]


@torch.no_grad()
def _merged(
    trained: Mapping[str, Tensor], model: ModelWithHead, kept: KeptTrial
) -> dict[str, Tensor]:
    """Returns the weights with W + alpha / rank * B A in place of A and B (Hu et al. 2021, section
    4.1)."""
    method = METHODS.build(kept.component, where=f"finetune.methods.{kept.method}.method")
    assert isinstance(method, LoRA), "no other method has such weights"
    merged = dict(trained)
    for name in trained:
        if not name.endswith(A):
            continue
        layer = name.removesuffix(A)
        update = method.scale * merged.pop(layer + B) @ merged.pop(name)
        transposed = type(model.get_submodule(layer)).__name__ == "Conv1D"  # GPT-2's
        weight = model.get_parameter(f"{layer}.weight")
        merged[f"{layer}.weight"] = weight + (update.T if transposed else update)
    return merged
