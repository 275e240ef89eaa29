"""All that is wrong in params.yaml."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from stages.checking.entries import name_of, unlisted
from stages.checking.inputs import baseline_faults, corpus_faults, task_faults, tokenizer_faults
from stages.checking.methods import fit_faults
from stages.checking.runs import backbones_of, run_faults
from stages.core.params import Params
from stages.evaluation.records import CLASSICAL
from stages.matching.budget import trains
from stages.models._backbone import Backbone
from stages.models._dimensions import ASPECT_RATIO
from stages.objectives._objective import OBJECTIVES


def find_faults(params: Params) -> Iterator[str]:
    """One line for each thing that is wrong, with its path in params.yaml."""
    for key, corpus in params.corpora.items():
        yield from corpus_faults(params, corpus, f"corpora.{key}")
    for key, tokenizer in params.tokenizers.items():
        yield from tokenizer_faults(params, tokenizer, f"tokenizers.{key}")
    for key, task in params.tasks.items():
        yield from task_faults(params, task, f"tasks.{key}")
    backbones = dict(backbones_of(params))
    for key, run in params.pretrain.items():
        yield from run_faults(params, run, f"pretrain.{key}", key, backbones.get(key))
    yield from _budget_faults(params, backbones)
    for key, baseline in params.baselines.items():
        yield from baseline_faults(params, baseline, f"baselines.{key}")
        if key in params.pretrain:
            yield f"baselines.{key}: is also the name of a run; rename one of them"
    if CLASSICAL in params.finetune.methods:
        yield f"finetune.methods.{CLASSICAL}: is what reports call baselines; rename it"
    yield from fit_faults(params, backbones)
    for name in ("label_budgets", "seeds"):
        values = getattr(params.finetune, name)
        if len(set(values)) < len(values):
            yield f"finetune.{name}: must not repeat a value, not {values}"


def _budget_faults(params: Params, backbones: Mapping[str, Backbone]) -> Iterator[str]:
    where, reference = "budget.reference", params.budget.reference
    missing = [*unlisted(reference, params.pretrain, where)]
    yield from missing
    if not missing:
        run = params.pretrain[reference]
        named = name_of(run.objective) in OBJECTIVES.names()
        if named and not trains(run) and params.budget.matched != "none":
            yield f"{where}: {reference} trains nothing, so that no run can match it"
    if params.budget.matched == "flops":
        for key, run in params.pretrain.items():
            path = str(run.model.get("path"))
            if run.is_public and not run.as_published and not Path(path).is_dir():
                yield (
                    f"budget.matched: what a step of {key} takes is not known before {path} is "
                    "here: match tokens, or name a folder that it was downloaded to"
                )
    if params.budget.matched == "parameters":
        for key, backbone in backbones.items():
            if backbone.architecture == "bilstm" and backbone.d_model % ASPECT_RATIO:
                yield (
                    f"pretrain.{key}.model.d_model: must be a multiple of {ASPECT_RATIO} where "
                    "budget.matched is parameters, to have those of an encoder in the default "
                    f"shape, not {backbone.d_model}"
                )
