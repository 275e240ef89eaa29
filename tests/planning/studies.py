"""Changes of a study that has every setting."""

from typing import Any

from stages.core.params import Params


def with_run(params: Params, name: str, **settings: Any) -> Params:
    """Returns the study with a run that differs in some settings."""
    run = params.models[name].model_copy(update=settings)
    return params.model_copy(update={"models": params.models | {name: run}})


def with_gpt2(params: Params) -> Params:
    """Returns the study with a public checkpoint that is not downloaded."""
    model = {"name": "hub", "path": "openai-community/gpt2", "revision": "0" * 40}
    run = params.models["encoder_scratch"].model_copy(
        update={"architecture": model, "tokenizer": "none"}
    )
    return params.model_copy(update={"models": params.models | {"gpt2": run}})


def with_finetune(params: Params, **settings: Any) -> Params:
    """Returns the study with other settings of fine-tuning."""
    return params.model_copy(update={"finetune": params.finetune.model_copy(update=settings)})


def every_stage(params: Params) -> list[str]:
    """Returns the stages of a study that has not begun."""
    return [
        "resolve",
        *(f"train_tokenizer@{name}" for name in params.tokenizers),
        *(f"encode_corpus@{c}-{t}" for c in params.corpora for t in params.tokenizers),
        *(f"prepare_task@{task}" for task in params.tasks),
        *(f"pretrain@{name}" for name in params.models),
        *(f"finetune@{task}" for task in params.tasks),
        "report",
    ]
