"""The model of a kept trial as a plain one: without what its method added."""

from collections.abc import Mapping

import torch
from safetensors.torch import load_file
from torch import Tensor

from stages.methods._method import METHODS
from stages.methods.lora import LoRA
from stages.models._heads import ModelWithHead
from stages.tasks._writing import Writing
from stages.trials.kept import KeptTrial
from stages.trials.lookup import KeptFile, opened

A, B = ".lora.a", ".lora.b"  # the two factors of an update, behind the name of its layer
EXPORTED = ("classification", "tagging")


def finetuned(run: str, trial: KeptFile) -> tuple[ModelWithHead, list[str]]:
    """The trial's model with its weights, and its labels. Updates of LoRA are added to the weights.

    Raises ValueError if its method or task adds what a plain model does not have.
    """
    kept, setup = opened(run, trial)
    about = setup.task_record
    writes = isinstance(setup.task, Writing)
    if not writes and about["task"]["name"] not in EXPORTED:
        raise ValueError(f"tasks.{trial.task}: {about['task']['name']} cannot be exported")
    if setup.task.has_prefix:
        raise ValueError(
            f"pretrain.{run}.objective: a fine-tuned model that sees its input in both directions "
            "has no counterpart in transformers, whose decoders are causal"
        )
    model = setup.headed(seed=kept.finetune_seed)
    trained = load_file(trial.path(run))
    if not trained:
        raise ValueError(
            f"finetune.methods.{trial.method}: trains nothing; leave out --task and export the run"
        )
    if kept.component["name"] == "lora":
        trained = _merged(trained, model, kept)
    shapes = {name: weight.shape for name, weight in model.state_dict().items()}
    if odd := [name for name, w in trained.items() if shapes.get(name) != w.shape]:
        raise ValueError(
            f"finetune.methods.{trial.method}: transformers has no counterpart of what this "
            f"method adds to a model ({odd[0]})"
        )
    model.load_state_dict(trained, strict=False)  # what was frozen is as it was pretrained
    return model, [] if writes else about["labels"]


@torch.no_grad()
def _merged(
    trained: Mapping[str, Tensor], model: ModelWithHead, kept: KeptTrial
) -> dict[str, Tensor]:
    """With W + alpha / rank * B A in the place of A and B (Hu et al. 2021, section 4.1)."""
    method = METHODS.build(kept.component, where=f"finetune.methods.{kept.method}.method")
    assert isinstance(method, LoRA), "no other method has such weights"
    found = dict(trained)
    for name in trained:
        if not name.endswith(A):
            continue
        layer = name.removesuffix(A)
        update = method.scale * found.pop(layer + B) @ found.pop(name)
        transposed = type(model.get_submodule(layer)).__name__ == "Conv1D"  # GPT-2's
        weight = model.get_parameter(f"{layer}.weight")
        found[f"{layer}.weight"] = weight + (update.T if transposed else update)
    return found
