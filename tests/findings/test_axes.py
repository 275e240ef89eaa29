"""The axes of studies, the pairs of models that differ in one of them, and what else differs."""

from collections.abc import Mapping
from typing import Any

import pytest

from stages.findings.facts import AxisName
from stages.findings.results import Results
from tests.synthetic_study import (
    RUNS,
    drawn,
    further,
    public,
    raw_params,
    repeated,
    run,
    with_trials,
)

BERT, ROBERTA = "google-bert/bert-base-uncased", "FacebookAI/roberta-base"
MUON = {"optimizer": "muon"}


def named(results: Results) -> list[str]:
    return sorted(f"{pair.axis}: {pair.a.name} {pair.b.name}" for pair in results.pairs)


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


FEW = run("encoder", "mlm", "all_half", num_steps=500)
MODELS = RUNS | {
    **{
        f"{model}_{d_model}": run(model, objective, d_model=d_model)
        for model, objective in (("encoder", "mlm"), ("decoder", "causal"))
        for d_model in (192, 96)
    },
    "few": run("encoder", "mlm", "all_half"),
    "few_shorter": FEW,
    "much": run("encoder", "mlm"),
    "other": run("encoder", "mlm", "scientific"),
    "scratch": run("encoder"),
    "slow": run("encoder", "mlm", lr=0.001),
    "slow_other": run("encoder", "mlm", "scientific", lr=0.001),
    "muon": run("encoder", "mlm", lr=0.01, num_steps=900, **MUON),
    "muon_large_batches": run("encoder", "mlm", batch_rows=64, **MUON),
    "bert": public(BERT),
    "bert_later": public(BERT, "1" * 40),
    "gpt2": public("openai-community/gpt2"),
    "roberta": public(ROBERTA),
    "adapted": further(BERT, "mlm", seeds=[1, 2], parent="bert"),
    "twice": further(BERT, "mlm", corpus="scientific", parent="adapted"),
    "roberta_adapted": further(ROBERTA, "mlm"),
    "span": further(BERT, "span_mlm"),
}
# The models of a study, and its pairs, of which the lower level comes first. Each shows a rule.
STUDIES = {
    # The smaller encoder is compared neither with the decoder nor with the encoder from scratch,
    # and models of other texts are not compared with the decoder.
    " ".join(RUNS): """
        architecture: encoder_mlm decoder_causal
        architecture: encoder_scratch decoder_scratch
        size: encoder_small encoder_mlm
        training set: encoder_mlm encoder_scientific
        training set: encoder_mlm encoder_deep_learning
        training set: encoder_scientific encoder_deep_learning
        pretrained: encoder_scratch encoder_mlm
        pretrained: encoder_scratch encoder_scientific
        pretrained: encoder_scratch encoder_deep_learning
        pretrained: decoder_scratch decoder_causal""",
    # Architectures meet at the nearest size.
    "encoder_192 encoder_96 decoder_192 decoder_96": """
        architecture: encoder_192 decoder_192
        architecture: encoder_96 decoder_96
        size: encoder_96 encoder_192
        size: decoder_96 decoder_192""",
    # Amounts of one text meet at equal steps and at equal epochs.
    "few few_shorter much other scratch": """
        training: few few_shorter
        amount of text: few much
        amount of text: few_shorter much
        training set: much other
        pretrained: scratch few
        pretrained: scratch few_shorter
        pretrained: scratch much
        pretrained: scratch other""",
    # The nearer of two learning rates is compared.
    "much slow slow_other": """
        training: much slow
        training set: slow slow_other""",
    # An optimizer has rates and steps of its own, but no batch.
    "much muon": "optimizer: much muon",
    "much muon_large_batches": "",
    # Public checkpoints are compared as wholes.
    "encoder_mlm encoder_scratch bert bert_later gpt2": """
        pretrained: encoder_scratch encoder_mlm
        checkpoint: bert bert_later
        checkpoint: bert gpt2
        checkpoint: bert_later gpt2""",
    # A public checkpoint that is pretrained further has another training set.
    "adapted bert twice roberta roberta_adapted span": """
        training set: bert adapted
        training set: bert twice
        training set: adapted twice
        training set: bert span
        training set: roberta roberta_adapted
        checkpoint: bert roberta
        checkpoint: adapted roberta_adapted
        objective: adapted span""",
}


@pytest.mark.parametrize("names", STUDIES)
def test_pairs_differ_in_exactly_one_axis_and_begin_with_the_lower_level(names: str) -> None:
    results = drawn(of_half_text({name: MODELS[name] for name in names.split()}))
    expected = STUDIES[names].strip().splitlines()
    assert named(results) == sorted(line.strip() for line in expected)


def test_levels_name_what_differs(results: Results) -> None:
    """A size is a number of weights, also within a ratio of 2 in one architecture; a checkpoint the
    first model that has it, and so is a text that one is pretrained on further."""
    near = {"num_params": 1_500_000}
    like = with_trials(results, lambda t: near if t.model == "encoder_small" else {})
    assert [(e.level_a, e.level_b) for e in like.effects if e.axis == "size"] == [("1.5M", "2.56M")]
    levels = [(e.axis, e.level_a, e.level_b) for e in results.effects if e.axis != "training set"]
    assert levels == [
        ("architecture", "modernbert", "phi"),
        ("size", "0.813M", "2.56M"),
        ("pretrained", "no", "yes"),
        ("method", "full", "linear_probe"),
    ]
    models = {name: MODELS[name] for name in ("bert", "bert_later", "gpt2", "adapted")}
    of_public = drawn(raw_params(models))
    named_levels = {(pair.axis, pair.b.name): pair.level_b for pair in of_public.pairs}
    assert named_levels["checkpoint", "bert_later"] == "bert_later"
    assert named_levels["checkpoint", "gpt2"] == "gpt2"
    assert named_levels["training set", "adapted"] == "adapted"
    assert also(of_public, "checkpoint", "bert", "gpt2")["tokens seen"] == (None, None)


def test_more_labels_are_an_axis_compared_with_fewer_for_each_model() -> None:
    """Budgets are in the order of their numbers, whatever the order of params.yaml, and "all" is
    the largest."""
    models = repeated({name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}, 3)
    results = drawn(raw_params(models, label_budgets=["all", 200, 50], seeds=[1]))
    effects = [(e.level_a, e.level_b) for e in results.effects if e.axis == "label budget"]
    assert effects == [("50", "200"), ("50", "all"), ("200", "all")]
    own = [c for c in results.contrasts if c.axis == "label budget"]
    assert len(own) == 3 * 2 * 2 * 3  # pairs of budgets, models, methods and tasks
    for c in own:
        assert (c.a.label_budget, c.b.label_budget) == (c.level_a, c.level_b)
        assert c.a.key._replace(label_budget="") == c.b.key._replace(label_budget="")
        assert c.estimate.value == pytest.approx(c.b.score.value - c.a.score.value)


def test_what_else_differs_is_the_objective_the_amount_and_the_rate(results: Results) -> None:
    texts = also(results, "training set", "encoder_mlm", "encoder_scientific")
    assert texts == {"tokenizer trained on": ("all", "all")}
    assert also(results, "training set", "encoder_scientific", "encoder_deep_learning") == {}
    pretrained = also(results, "architecture", "encoder_mlm", "decoder_causal")
    assert pretrained["objective"] == ("mlm", "causal")
    assert "objective" not in also(results, "architecture", "encoder_scratch", "decoder_scratch")
    assert "tokens seen" not in also(results, "pretrained", "encoder_scratch", "encoder_mlm")
    rates = drawn(raw_params({name: MODELS[name] for name in ("much", "slow_other")}))
    assert also(rates, "training set", "much", "slow_other")["training.lr"] == (0.003, 0.001)
    amounts = drawn(of_half_text({"few": FEW, "much": MODELS["much"]}))
    expected = {"training.num_steps": (500, 1000)}
    assert also(amounts, "amount of text", "few", "much") == expected


def test_own_fine_tuning_of_a_model_also_differs() -> None:
    """A method's settings for one model are said beside its contrasts, with this method alone."""
    raw = raw_params({name: RUNS[name] for name in ("encoder_mlm", "decoder_causal")})
    raw["finetune"]["methods"]["full"]["models"] = {"decoder_causal": {"lr": 0.01}}
    results = drawn(raw)
    for contrast in results.contrasts:
        if contrast.axis == "architecture":
            said = {d.name: (d.a, d.b) for d in contrast.also_differs}
            expected = (0.001, 0.01) if contrast.a.method == "full" else None
            assert said.get("finetune.training.lr") == expected
    (effect,) = [e for e in results.effects if e.axis == "architecture"]
    assert "finetune.training.lr" in {d.name for d in effect.also_differs}
