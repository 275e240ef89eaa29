"""Faults of methods with runs and tasks, and of texts that are too long for a run."""

from typing import Any

import pytest

from stages.checking.lengths import length_faults
from stages.core.params import Method, Params, typed
from tests.checking.test_runs import BILSTM
from tests.small import small_model, with_encoder_decoder
from tests.smoke import ROOT, faults_of, paths_of, smoke_with

FULL = "finetune.methods.full.method"
PROBE = "finetune.methods.linear_probe.method"
SMOKE = typed(smoke_with({}))


@pytest.fixture(autouse=True)
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project


def test_a_method_need_not_fit_every_run() -> None:
    changes: dict[str, Any] = {
        FULL: {"name": "lora", "rank": 2},
        "pretrain.decoder_causal.model": BILSTM,
        "pretrain.decoder_causal.objective.name": "bidirectional_lm",
    }
    assert faults_of(smoke_with(changes)) == []


def test_a_method_that_fits_no_run_and_a_run_that_no_method_fits_are_refused() -> None:
    changes: dict[str, Any] = {f"pretrain.{run}.model.bias": False for run in SMOKE.pretrain}
    changes[FULL] = {"name": "bitfit"}
    assert paths_of(smoke_with(changes)) == [FULL]
    training = smoke_with({})["finetune"]["methods"]["full"]["training"]
    changes["finetune.methods.linear_probe"] = {
        "method": {"name": "bitfit"},
        "training": training,
    }
    assert sorted(paths_of(smoke_with(changes))) == sorted(
        [FULL, "finetune.methods.linear_probe.method"]
        + [f"pretrain.{run}.model" for run in SMOKE.pretrain]
        + [f"tasks.{task}.task" for task in SMOKE.tasks]
    )


def test_a_prompt_must_have_positions() -> None:
    changes: dict[str, Any] = {FULL: {"name": "prompt", "num_prompt_tokens": 5}}
    assert faults_of(smoke_with(changes)) == []
    model = "pretrain.encoder_mlm.model"
    changes |= {f"{model}.positions": "learned", f"{model}.max_positions": 68}
    [fault] = faults_of(smoke_with(changes))
    assert fault.path == FULL and "69" in fault.message and model in fault.message
    changes[f"{model}.max_positions"] = 69
    assert faults_of(smoke_with(changes)) == []


def test_a_baseline_that_fits_no_task_is_refused() -> None:
    only = SMOKE.model_copy(update={"tasks": {"tag": SMOKE.tasks["tag"]}})
    assert paths_of(only) == ["baselines.tfidf"]


def test_baselines_have_names_of_their_own() -> None:
    baselines = SMOKE.baselines | {"encoder_mlm": {"name": "majority"}}
    methods = SMOKE.finetune.methods
    finetune = SMOKE.finetune.model_copy(
        update={"methods": methods | {"classical": methods["full"]}}
    )
    update = {"baselines": baselines, "finetune": finetune}
    assert paths_of(SMOKE.model_copy(update=update)) == [
        "baselines.encoder_mlm",
        "finetune.methods.classical",
    ]


def with_prompts(**settings: Any) -> Params:
    """The smoke study's decoder without its tagging task, with one method instead of its own."""
    entry = Method(method={"name": "in_context"} | settings.pop("method", {}), **settings)
    finetune = SMOKE.finetune.model_copy(update={"methods": {"prompted": entry}})
    tasks, baselines = {"section": SMOKE.tasks["section"]}, {"tfidf": SMOKE.baselines["tfidf"]}
    update: dict[str, Any] = {"finetune": finetune, "tasks": tasks, "baselines": baselines}
    update["pretrain"] = {"decoder_causal": SMOKE.pretrain["decoder_causal"]}
    update["budget"] = SMOKE.budget.model_copy(update={"reference": "decoder_causal"})
    return SMOKE.model_copy(update=update)


def test_a_method_has_training_settings_exactly_if_it_trains() -> None:
    training = SMOKE.finetune.methods["full"].training
    assert faults_of(with_prompts(method={"num_shots": 4})) == []
    assert paths_of(with_prompts(training=training)) == ["finetune.methods.prompted.training"]
    probed = {"full": Method(method={"name": "linear_probe"}, training=training)}
    finetune = SMOKE.finetune.model_copy(update={"methods": probed})
    [fault] = faults_of(SMOKE.model_copy(update={"finetune": finetune}))
    assert fault.path == "finetune.methods.full.training" and "solved" in fault.message
    full = {"full": Method(method={"name": "full"})}
    finetune = SMOKE.finetune.model_copy(update={"methods": full})
    untrained = SMOKE.model_copy(update={"finetune": finetune})
    assert paths_of(untrained) == ["finetune.methods.full.training"]


def test_prompts_that_cannot_be_written_are_refused() -> None:
    where = "finetune.methods.prompted.method"
    assert paths_of(with_prompts(method={"num_shots": 60})) == [f"{where}.num_shots"]
    [fault] = faults_of(with_prompts(method={"template": "{text}"}))
    assert fault.path == where and "{label}" in fault.message
    tag = with_prompts().model_copy(update={"tasks": {"tag": SMOKE.tasks["tag"]}})
    assert where in paths_of(tag)


def test_a_method_without_training_fits_what_adds_no_head() -> None:
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
    encoder = {"encoder_scratch": SMOKE.pretrain["encoder_scratch"]}
    faults = faults_of(text.model_copy(update={"pretrain": encoder}))
    assert any("encoder" in fault.message for fault in faults if "prompted" in fault.path)


def test_a_task_without_a_head_needs_a_model_and_methods_that_need_none() -> None:
    text = SMOKE.tasks["section"].model_copy(update={"task": {"name": "language_modelling"}})
    update: dict[str, Any] = {"tasks": {"text": text}, "baselines": {"ngram": {"name": "ngram"}}}
    update["budget"] = SMOKE.budget.model_copy(update={"reference": "decoder_causal"})
    assert paths_of(SMOKE.model_copy(update=update)) == [
        "finetune.methods.linear_probe.method",
        "pretrain.encoder_mlm.model",
        "pretrain.encoder_scratch.model",
    ]
    update["pretrain"] = {"decoder_causal": SMOKE.pretrain["decoder_causal"]}
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
        "pretrain": {name: params.pretrain[name] for name in runs},
        "budget": params.budget.model_copy(update={"matched": "none", "reference": runs[-1]}),
        "baselines": {"copy": {"name": "copy"}},
        "finetune": finetune,
    }
    return paths_of(params.model_copy(update=update))


def test_text_is_written_by_models_with_a_decoder_and_learnt_without_a_head() -> None:
    writers = ("decoder_causal", "encoder_decoder_span")
    assert writing(writers, ("full",)) == []
    assert writing(("encoder_mlm", *writers), ("full",)) == ["pretrain.encoder_mlm.model"]
    probe = ["finetune.methods.linear_probe.method"]
    assert writing(writers, ("full", "linear_probe")) == probe
    assert writing(writers, ("full",), num_beams=0) == ["tasks.write.task"]
    assert writing(writers, ("full",), num_beems=2) == ["tasks.write.task.num_beems"]


def test_a_decoder_needs_positions_for_what_it_writes_too() -> None:
    longest, target = 64, {"tasks.write.task": 20}
    for architecture, needed in (("decoder", longest + 19), ("encoder_decoder", longest)):
        for max_positions in (needed - 1, needed):
            model = small_model(architecture, positions="learned", max_positions=max_positions)
            faults = list(length_faults(model, longest, target, "pretrain.mine.model"))
            assert len(faults) == (max_positions < needed)
    reads_enough = small_model("decoder", positions="learned", max_positions=longest)
    [fault] = length_faults(reads_enough, longest, target, "pretrain.mine.model")
    assert fault.startswith("tasks.write.task.max_target_tokens: ")


def test_a_causal_model_is_not_read_at_its_first_token() -> None:
    """The first state has read nothing of the text, unless the input is a prefix to the model."""
    changes: dict[str, Any] = {"tasks.section.task": {"name": "classification", "pooling": "first"}}
    [fault] = faults_of(smoke_with(changes))
    assert fault.path == "tasks.section.task.pooling" and "decoder_causal" in fault.message
    changes["pretrain.decoder_causal.objective"] = {"name": "prefix_lm"}
    assert faults_of(smoke_with(changes)) == []


def test_lists_of_values_to_try_are_valid_where_every_run_can_use_one() -> None:
    task = "tasks.section.task"
    listed = {"name": "classification", "pooling": ["first", "last"], "dropout": [0.0, 0.1]}
    changes: dict[str, Any] = {
        task: listed,
        "tasks.tag.task.label_subwords": ["first", "last"],
        "finetune.methods.linear_probe.method": {"name": "linear_probe", "layers": ["last", "mix"]},
        "finetune.initial_weights": ["usual", "as_pretrained"],
    }
    assert faults_of(smoke_with(changes)) == []
    [fault] = faults_of(smoke_with(changes | {task: listed | {"pooling": ["first"]}}))
    assert fault.path == f"{task}.pooling" and "decoder_causal" in fault.message


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"tasks.section.task.pooling": []}, "tasks.section.task.pooling"),
        ({"tasks.section.task.pooling": ["mean", "mean"]}, "tasks.section.task.pooling"),
        ({"tasks.section.task.pooling": ["mean", "lats"]}, "tasks.section.task.pooling"),
        ({"tasks.tag.task.metric": ["entity_f1", "word_accuracy"]}, "tasks.tag.task.metric"),
        ({f"{PROBE}.layers": ["last", "last"]}, f"{PROBE}.layers"),
        ({f"{PROBE}.layers": ["frist"]}, f"{PROBE}.layers"),
        ({"finetune.initial_weights": []}, "finetune.initial_weights"),
        ({"finetune.initial_weights": ["usual", "usual"]}, "finetune.initial_weights"),
        ({"finetune.initial_weights": ["small"]}, "finetune.initial_weights.0"),
    ],
)
def test_wrong_lists_of_values_to_try_are_named(changes: dict[str, Any], path: str) -> None:
    assert paths_of(smoke_with(changes)) == [path]


def test_finetune_race_is_refused_as_an_unknown_key() -> None:
    (fault,) = faults_of(smoke_with({"finetune.race": {"most": 10}}))
    assert fault.path == "finetune.race" and "unknown" in fault.message
