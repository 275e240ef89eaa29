"""Faults of methods with runs and tasks, and of texts that are too long for a run."""

from typing import Any

import pytest

from stages.core.params import Method, Params
from stages.core.study_file import typed
from tests.checking.test_runs import BILSTM
from tests.small import with_encoder_decoder
from tests.smoke import DELETED, Fault, faults_of, paths_of, smoke_with

FULL = "finetune.methods.full.method"
OPTIMIZER = "finetune.methods.full.training.optimizer"
RUNS = "finetune.methods.full.runs"
PROBE = "finetune.methods.linear_probe.method"
ONLY = "finetune.methods.linear_probe.only"
SMOKE = typed(smoke_with({}))
SECTION = smoke_with({})["tasks"]["section"]
SIZES = {"d_model": 64, "num_layers": 2, "num_heads": 2}
LENGTH, TRAINED_ON = (
    "tasks.write.task.max_target_tokens",
    "pretrain.runs.decoder_causal.training.max_tokens",
)
NO_BIAS = ("attention_bias", "mlp_bias", "norm_bias", "decoder_bias", "classifier_bias")
WITHOUT_BIASES: dict[str, Any] = {
    "encoder": {"name": "modernbert", "config": dict.fromkeys(NO_BIAS, False)},
    "decoder": {"name": "llama", "config": {"attention_bias": False}},
}


@pytest.mark.parametrize(
    "changes",
    [
        {  # A method need not fit every run.
            FULL: {"name": "lora", "rank": 2},
            "pretrain.runs.decoder_causal.architecture": BILSTM,
            "pretrain.runs.decoder_causal.objective.name": "bidirectional_lm",
        },
        {FULL: {"name": "prompt", "num_prompt_tokens": 5}},
        {f"{ONLY}": ["decoder_causal"]},
        {  # The first state of a prefix model has read the whole input.
            "tasks.section.task": {"name": "classification", "pooling": "first"},
            "pretrain.runs.decoder_causal.objective": {"name": "prefix_lm"},
        },
    ],
)
def test_fit_faults_accept(changes: dict[str, Any]) -> None:
    assert faults_of(smoke_with(changes)) == []


@pytest.mark.parametrize(
    ("changes", "path", "word"),
    [
        (
            {"tasks.section.task": {"name": "classification", "pooling": "first"}},
            "tasks.section.task.pooling",
            "decoder_causal",
        ),
        ({"tasks.section.task.pooling": "lats"}, "tasks.section.task.pooling", "'last'"),
        ({"finetune.race": {"most": 10}}, "finetune.race", "unknown"),
        ({"finetune.methods.full.training": DELETED}, "finetune.methods.full.training", "trains"),
        ({FULL: {"name": "linear_probe"}}, "finetune.methods.full.training", "solved"),
        ({f"{OPTIMIZER}": "muno"}, f"{OPTIMIZER}.name", "'muon'"),
        ({f"{OPTIMIZER}": {"name": "muon", "rms": 1}}, f"{OPTIMIZER}.rms", "update_rms"),
        ({f"{RUNS}.encoder_mlm": {"optimizer": "x"}}, f"{RUNS}.encoder_mlm.optimizer.name", "muon"),
        ({f"{RUNS}.encoder_mlm": {"lr": -1}}, f"{RUNS}.encoder_mlm.lr", "greater than 0"),
        ({f"{RUNS}.encoder_mlm": {"steps": 1}}, f"{RUNS}.encoder_mlm.steps", "unknown"),
        ({f"{RUNS}.encoder_mmm": {"lr": 1}}, RUNS, "'encoder_mlm'"),
        (
            {"finetune.methods.linear_probe.runs.encoder_mlm": {"lr": 1}},
            "finetune.methods.linear_probe.runs",
            "no training",
        ),
        ({ONLY: ["encoder_mmm"]}, ONLY, "'encoder_mlm'"),
        ({ONLY: []}, ONLY, "empty"),
        (
            {
                "finetune.methods.full.only": [*SMOKE.runs][1:],
                f"{RUNS}.encoder_mlm": {"lr": 1e-3},
            },
            f"{RUNS}.encoder_mlm",
            "`only` does not list encoder_mlm",
        ),
    ],
)
def test_fit_faults_have_their_path(changes: dict[str, Any], path: str, word: str) -> None:
    [fault] = faults_of(smoke_with(changes))
    assert fault.path == path and word in fault.message


def test_unused_faults_of_a_method_that_fits_no_run_and_runs_that_no_method_fits() -> None:
    changes: dict[str, Any] = {
        f"pretrain.runs.{run}.architecture": WITHOUT_BIASES[run.split("_")[0]] | SIZES
        for run in SMOKE.runs
    }
    changes[FULL] = {"name": "bitfit"}
    assert paths_of(smoke_with(changes)) == [FULL]
    training = smoke_with({})["finetune"]["methods"]["full"]["training"]
    changes["finetune.methods.linear_probe"] = {
        "method": {"name": "bitfit"},
        "training": training,
    }
    assert sorted(paths_of(smoke_with(changes))) == sorted(
        [FULL, "finetune.methods.linear_probe.method"]
        + [f"pretrain.runs.{run}.architecture" for run in SMOKE.runs]
        + [f"tasks.{task}.task" for task in SMOKE.tasks]
    )


def test_unused_faults_of_runs_that_all_methods_leave_out() -> None:
    runs = ["encoder_mlm", "decoder_causal"]
    changes = {f"finetune.methods.{name}.only": runs for name in SMOKE.finetune.methods}
    faults = faults_of(smoke_with(changes))
    others = [run for run in SMOKE.runs if run not in runs]
    assert [fault.path for fault in faults] == [
        f"pretrain.runs.{run}.architecture" for run in others
    ]
    assert "full: `only` does not list encoder_scratch" in faults[0].message


def test_added_tokens_faults_of_a_prompt_without_positions() -> None:
    where = "pretrain.runs.decoder_causal.architecture"

    def faults(positions: int) -> list[Fault]:
        short = {"name": "gpt2", "config": {"n_positions": positions}} | SIZES
        prompt = {"name": "prompt", "num_prompt_tokens": 5}
        return faults_of(smoke_with({FULL: prompt, where: short}))

    [fault] = faults(68)
    assert fault.path == FULL and "69" in fault.message and where in fault.message
    assert faults(69) == []


def test_baseline_faults() -> None:
    """A baseline fits a task and has no run's name; no method is named ``classical``."""
    only_tag = SMOKE.model_copy(update={"tasks": {"tag": SMOKE.tasks["tag"]}})
    assert paths_of(only_tag) == ["baselines.tfidf"]
    changes = {
        "baselines.encoder_mlm": {"name": "majority"},
        "finetune.methods.classical": {"method": "linear_probe"},
    }
    assert paths_of(smoke_with(changes)) == ["baselines.encoder_mlm", "finetune.methods.classical"]


def with_prompts(**settings: Any) -> Params:
    """Returns the smoke study with its decoder, its task section and one method."""
    entry = Method(method={"name": "in_context"} | settings.pop("method", {}), **settings)
    finetune = SMOKE.finetune.model_copy(update={"methods": {"prompted": entry}})
    tasks, baselines = {"section": SMOKE.tasks["section"]}, {"tfidf": SMOKE.baselines["tfidf"]}
    update: dict[str, Any] = {"finetune": finetune, "tasks": tasks, "baselines": baselines}
    update["runs"] = {"decoder_causal": SMOKE.runs["decoder_causal"]}
    update["budget"] = SMOKE.budget.model_copy(update={"reference": "decoder_causal"})
    return SMOKE.model_copy(update=update)


def test_fit_faults_of_prompts() -> None:
    where = "finetune.methods.prompted.method"
    training = SMOKE.finetune.methods["full"].training
    assert faults_of(with_prompts(method={"num_shots": 4})) == []
    assert paths_of(with_prompts(training=training)) == ["finetune.methods.prompted.training"]
    assert paths_of(with_prompts(method={"num_shots": 60})) == [f"{where}.num_shots"]
    [fault] = faults_of(with_prompts(method={"template": "{text}"}))
    assert fault.path == where and "{label}" in fault.message
    tag = with_prompts().model_copy(update={"tasks": {"tag": SMOKE.tasks["tag"]}})
    assert where in paths_of(tag)


def test_fit_faults_of_a_method_without_training() -> None:
    none = {"name": "none"}
    assert faults_of(with_prompts(method=none, text_to_text=True)) == []
    own = with_prompts(text_to_text=True)
    assert paths_of(own) == ["finetune.methods.prompted.text_to_text"]
    assert "finetune.methods.prompted.method" in paths_of(with_prompts(method=none))
    text = with_prompts(method=none, text_to_text=True)
    entry = {"name": "seq2seq", "max_target_tokens": 8}
    tasks = {"write": text.tasks["section"].model_copy(update={"task": entry})}
    faults = faults_of(text.model_copy(update={"tasks": tasks, "baselines": {}}))
    assert any("seq2seq" in fault.message for fault in faults if "prompted" in fault.path)
    encoder = {"encoder_scratch": SMOKE.runs["encoder_scratch"]}
    faults = faults_of(text.model_copy(update={"runs": encoder}))
    assert any("encoder" in fault.message for fault in faults if "prompted" in fault.path)


def test_fit_faults_of_a_task_without_a_head() -> None:
    text = SMOKE.tasks["section"].model_copy(update={"task": {"name": "language_modelling"}})
    update: dict[str, Any] = {"tasks": {"text": text}, "baselines": {"ngram": {"name": "ngram"}}}
    update["budget"] = SMOKE.budget.model_copy(update={"reference": "decoder_causal"})
    assert paths_of(SMOKE.model_copy(update=update)) == [
        "finetune.methods.linear_probe.method",
        "pretrain.runs.encoder_mlm.architecture",
        "pretrain.runs.encoder_scratch.architecture",
    ]
    update["runs"] = {"decoder_causal": SMOKE.runs["decoder_causal"]}
    update["finetune"] = with_prompts(method={"name": "none"}).finetune
    assert faults_of(SMOKE.model_copy(update=update)) == []


def writing(runs: tuple[str, ...], methods: tuple[str, ...], **settings: Any) -> list[str]:
    """Returns the paths of the faults of a task of writing, with some of the runs and methods."""
    params = with_encoder_decoder(SMOKE)
    entry = {"name": "seq2seq", "max_target_tokens": 32} | settings
    finetune = params.finetune.model_copy(
        update={"methods": {name: params.finetune.methods[name] for name in methods}}
    )
    update = {
        "tasks": {"write": params.tasks["tag"].model_copy(update={"task": entry})},
        "runs": {name: params.runs[name] for name in runs},
        "budget": params.budget.model_copy(update={"matched": "none", "reference": runs[-1]}),
        "baselines": {"copy": {"name": "copy"}},
        "finetune": finetune,
    }
    return paths_of(params.model_copy(update=update))


def test_fit_faults_of_a_task_of_writing() -> None:
    writers = ("decoder_causal", "encoder_decoder_span")
    assert writing(writers, ("full",)) == []
    assert writing(("encoder_mlm", *writers), ("full",)) == [
        "pretrain.runs.encoder_mlm.architecture"
    ]
    probe = ["finetune.methods.linear_probe.method"]
    assert writing(writers, ("full", "linear_probe")) == probe
    assert writing(writers, ("full",), num_beams=0) == ["tasks.write.task"]
    assert writing(writers, ("full",), num_beems=2) == ["tasks.write.task.num_beems"]


def test_length_faults_count_what_a_decoder_writes() -> None:
    """A decoder reads 64 tokens and writes 32 in one row; the last token is not read."""
    where = "pretrain.runs.decoder_causal.architecture"
    task = {"name": "seq2seq", "max_target_tokens": 32}
    for positions, expected in ((63, "finetune.max_tokens"), (94, LENGTH), (95, "")):
        short = {"name": "gpt2", "config": {"n_positions": positions}} | SIZES
        changes = {where: short, "tasks.write": SECTION | {"task": task}, TRAINED_ON: 32}
        faults = faults_of(smoke_with(changes))
        too_long = [f.path for f in faults if where in f.message and "max_t" in f.path]
        assert too_long == ([expected] if expected else [])
