"""The axes of studies, and the pairs of models that differ in one of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from stages.findings.facts import AxisName
from stages.findings.results import Results
from tests.synthetic_study import RUNS, drawn, further, public, raw_params, repeated, run

Named = set[tuple[str, str, str]]
BERT, ROBERTA = "google-bert/bert-base-uncased", "FacebookAI/roberta-base"
MUON = {"optimizer": "muon"}


def named(results: Results) -> Named:
    return {(pair.axis, pair.a.name, pair.b.name) for pair in results.pairs}


def also(results: Results, axis: AxisName, a: str, b: str) -> dict[str, tuple[object, object]]:
    """Returns what else differs between two models, by name."""
    contrast = next(c for c in results.contrasts if (c.axis, c.a.model, c.b.model) == (axis, a, b))
    return {d.name: (d.a, d.b) for d in contrast.also_differs}


def of_half_text(models: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a study in which the corpus ``all_half`` has half of the text of ``all``."""
    raw = raw_params(models)
    raw["corpora"]["all_half"] = raw["corpora"]["all"]
    raw["pretrain"]["matched"] = "none"
    return raw


def test_pairs_differ_in_exactly_one_axis_and_begin_with_the_lower_level(results: Results) -> None:
    """The smaller encoder is compared neither with the decoder nor with the encoder from scratch,
    and models of other texts are not compared with the decoder."""
    assert named(results) == {
        ("architecture", "encoder_mlm", "decoder_causal"),
        ("architecture", "encoder_scratch", "decoder_scratch"),
        ("size", "encoder_small", "encoder_mlm"),
        ("training set", "encoder_mlm", "encoder_scientific"),
        ("training set", "encoder_mlm", "encoder_deep_learning"),
        ("training set", "encoder_scientific", "encoder_deep_learning"),
        ("pretrained", "encoder_scratch", "encoder_mlm"),
        ("pretrained", "encoder_scratch", "encoder_scientific"),
        ("pretrained", "encoder_scratch", "encoder_deep_learning"),
        ("pretrained", "decoder_scratch", "decoder_causal"),
    }
    levels = [(e.axis, e.level_a, e.level_b) for e in results.effects if e.axis != "training set"]
    assert levels == [
        ("architecture", "modernbert", "phi"),
        ("size", "0.813M", "2.56M"),
        ("pretrained", "no", "yes"),
        ("method", "full", "linear_probe"),
    ]


STUDIES: dict[str, tuple[dict[str, Any], Named]] = {
    "architectures meet at the nearest size": (
        {
            f"{model}_{d_model}": run(model, objective, d_model=d_model)
            for model, objective in (("encoder", "mlm"), ("decoder", "causal"))
            for d_model in (192, 96)
        },
        {
            ("architecture", "encoder_192", "decoder_192"),
            ("architecture", "encoder_96", "decoder_96"),
            ("size", "encoder_96", "encoder_192"),
            ("size", "decoder_96", "decoder_192"),
        },
    ),
    "amounts of one text meet at equal steps and at equal epochs": (
        {
            "few": run("encoder", "mlm", "all_half"),
            "few_shorter": run("encoder", "mlm", "all_half", num_steps=500),
            "much": run("encoder", "mlm"),
            "other": run("encoder", "mlm", "scientific"),
            "scratch": run("encoder"),
        },
        {
            ("training", "few", "few_shorter"),
            ("amount of text", "few", "much"),
            ("amount of text", "few_shorter", "much"),
            ("training set", "much", "other"),
            *(("pretrained", "scratch", name) for name in ("few", "few_shorter", "much", "other")),
        },
    ),
    "the nearer of two learning rates is compared": (
        {
            "fast": run("encoder", "mlm"),
            "slow": run("encoder", "mlm", lr=0.001),
            "other": run("encoder", "mlm", "scientific", lr=0.001),
        },
        {("training", "fast", "slow"), ("training set", "slow", "other")},
    ),
    "an optimizer has rates and steps of its own": (
        {
            "adamw": run("encoder", "mlm"),
            "muon": run("encoder", "mlm", lr=0.01, num_steps=900, **MUON),
        },
        {("optimizer", "adamw", "muon")},
    ),
    "an optimizer has no batch of its own": (
        {"adamw": run("encoder", "mlm"), "muon": run("encoder", "mlm", batch_rows=64, **MUON)},
        set(),
    ),
    "public checkpoints are compared as wholes": (
        {
            **{name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")},
            "bert": public(BERT),
            "bert_later": public(BERT, "1" * 40),
            "gpt2": public("openai-community/gpt2"),
        },
        {
            ("pretrained", "encoder_scratch", "encoder_mlm"),
            ("checkpoint", "bert", "bert_later"),
            ("checkpoint", "bert", "gpt2"),
            ("checkpoint", "bert_later", "gpt2"),
        },
    ),
    "a public checkpoint that is pretrained further has another training set": (
        {
            "adapted": further(BERT, "mlm", seeds=[1, 2], parent="bert"),
            "bert": public(BERT),
            "twice": further(BERT, "mlm", corpus="scientific", parent="adapted"),
            "roberta": public(ROBERTA),
            "roberta_adapted": further(ROBERTA, "mlm"),
            "span": further(BERT, "span_mlm"),
        },
        {
            ("training set", "bert", "adapted"),
            ("training set", "bert", "twice"),
            ("training set", "adapted", "twice"),
            ("training set", "bert", "span"),
            ("training set", "roberta", "roberta_adapted"),
            ("checkpoint", "bert", "roberta"),
            ("checkpoint", "adapted", "roberta_adapted"),
            ("objective", "adapted", "span"),
        },
    ),
}


@pytest.mark.parametrize("name", STUDIES)
def test_pairs_of_a_study(name: str) -> None:
    models, expected = STUDIES[name]
    assert named(drawn(of_half_text(models))) == expected


def test_levels_of_public_checkpoints_name_them_and_their_further_text() -> None:
    models = {"bert": public(BERT), "later": public(BERT, "1" * 40), "gpt2": public("openai/gpt2")}
    results = drawn(raw_params(models | {"more": further(BERT, "mlm", parent="bert")}))
    levels = {(pair.axis, pair.b.name): pair.level_b for pair in results.pairs}
    assert levels["checkpoint", "later"] == f"{BERT} at 1111111"
    assert levels["checkpoint", "gpt2"] == "openai/gpt2"
    assert levels["training set", "more"] == f"{BERT}, then all"
    assert also(results, "checkpoint", "bert", "gpt2")["tokens seen"] == (None, None)


def test_more_labels_are_an_axis_compared_with_fewer_for_each_model() -> None:
    """Budgets are in the order of their numbers, whatever the order of params.yaml, and "all" is
    the largest."""
    models = repeated({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}, 3)
    results = drawn(raw_params(models, label_budgets=["all", 200, 50], seeds=[1]))
    effects = [e for e in results.effects if e.axis == "label budget"]
    assert [(e.level_a, e.level_b) for e in effects] == [
        ("50", "200"),
        ("50", "all"),
        ("200", "all"),
    ]
    own = [c for c in results.contrasts if c.axis == "label budget"]
    assert len(own) == 3 * 2 * 2 * 3  # pairs of budgets, models, methods and tasks
    for contrast in own:
        sides = contrast.a, contrast.b
        assert tuple(side.label_budget for side in sides) == (contrast.level_a, contrast.level_b)
        assert len({(side.model, side.method, side.task) for side in sides}) == 1
        assert contrast.estimate.value == pytest.approx(
            contrast.b.score.value - contrast.a.score.value
        )


def test_own_fine_tuning_of_a_model_also_differs() -> None:
    """A method's settings for one model are said beside its contrasts, with this method alone."""
    models = {name: RUNS[name] for name in ("encoder_mlm", "decoder_causal")}
    raw = raw_params(models)
    raw["finetune"]["methods"]["full"]["models"] = {"decoder_causal": {"lr": 0.01}}
    results = drawn(raw)
    for contrast in results.contrasts:
        if contrast.axis == "architecture":
            said = {d.name: (d.a, d.b) for d in contrast.also_differs}
            expected = (0.001, 0.01) if contrast.a.method == "full" else None
            assert said.get("finetune.training.lr") == expected
    (effect,) = [e for e in results.effects if e.axis == "architecture"]
    assert "finetune.training.lr" in {d.name for d in effect.also_differs}


def test_what_else_differs_is_the_objective_the_amount_and_the_rate(results: Results) -> None:
    texts = also(results, "training set", "encoder_mlm", "encoder_scientific")
    assert texts == {"tokenizer trained on": ("all", "all")}
    assert also(results, "training set", "encoder_scientific", "encoder_deep_learning") == {}
    pretrained = also(results, "architecture", "encoder_mlm", "decoder_causal")
    assert pretrained["objective"] == ("mlm", "causal")
    assert "objective" not in also(results, "architecture", "encoder_scratch", "decoder_scratch")
    assert "tokens seen" not in also(results, "pretrained", "encoder_scratch", "encoder_mlm")
    fast = {"fast": run("encoder", "mlm"), "other": run("encoder", "mlm", "scientific", lr=0.001)}
    of_rates = also(drawn(raw_params(fast)), "training set", "fast", "other")
    assert of_rates["training.lr"] == (0.003, 0.001)
    few = {
        "few": run("encoder", "mlm", "all_half", num_steps=500),
        "much": run("encoder", "mlm"),
    }
    of_amounts = also(drawn(of_half_text(few)), "amount of text", "few", "much")
    assert of_amounts == {"training.num_steps": (500, 1000)}
