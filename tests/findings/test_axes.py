"""The axes of studies, and the pairs of models that differ in one of them."""

from stages.findings.facts import AxisName
from stages.findings.results import Results
from tests.synthetic_study import RUNS, further, public, raw_params, run

Named = set[tuple[AxisName, str, str]]


def named(results: Results) -> Named:
    return {(pair.axis, pair.a.name, pair.b.name) for pair in results.pairs}


def also(results: Results, axis: AxisName, a: str, b: str) -> dict[str, tuple[object, object]]:
    """Returns what else differs between two models, by name."""
    contrast = next(c for c in results.contrasts if (c.axis, c.a.model, c.b.model) == (axis, a, b))
    return {d.name: (d.a, d.b) for d in contrast.also_differs}


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


def test_architectures_meet_at_the_nearest_size_and_share_its_level(study_of) -> None:
    runs = {
        f"{model}_{d_model}": run(model, objective, d_model=d_model)
        for model, objective in (("encoder", "mlm"), ("decoder", "causal"))
        for d_model in (192, 96)
    }
    results = study_of(runs)
    assert named(results) == {
        ("architecture", "encoder_192", "decoder_192"),
        ("architecture", "encoder_96", "decoder_96"),
        ("size", "encoder_96", "encoder_192"),
        ("size", "decoder_96", "decoder_192"),
    }
    assert [e.num_pairs for e in results.effects if e.axis == "size"] == [2 * 3 * 2]


def of_steps(corpus: str, num_steps: int) -> dict:
    entry = run("encoder", "mlm", corpus)
    entry["training"]["num_steps"] = num_steps
    return entry


def test_amounts_of_one_text_are_compared_at_equal_steps_and_at_equal_epochs(study_of) -> None:
    runs = {
        "few": of_steps("all_half", 1000),
        "few_shorter": of_steps("all_half", 500),
        "much": of_steps("all", 1000),
        "other": of_steps("scientific", 1000),
        "scratch": run("encoder", "none", "none"),
    }
    raw = raw_params(runs)
    raw["corpora"]["all_half"] = raw["corpora"]["all"]
    raw["pretrain"]["matched"] = "none"
    results = study_of(raw=raw)
    assert named(results) == {
        ("training", "few", "few_shorter"),
        ("amount of text", "few", "much"),
        ("amount of text", "few_shorter", "much"),
        ("training set", "much", "other"),
        *(("pretrained", "scratch", name) for name in runs if name != "scratch"),
    }
    assert also(results, "amount of text", "few_shorter", "much") == {
        "training.num_steps": (500, 1000)
    }


def test_another_learning_rate_also_differs_unless_nothing_else_does(study_of) -> None:
    """The nearer of two learning rates at one level is compared."""
    fast, slow, other = (run("encoder", "mlm", text) for text in ("all", "all", "scientific"))
    slow["training"]["lr"] = other["training"]["lr"] = 0.001
    assert named(study_of({"fast": fast, "slow": slow, "other": other})) == {
        ("training", "fast", "slow"),
        ("training set", "slow", "other"),
    }
    alone = study_of({"fast": fast, "other": other})
    assert also(alone, "training set", "fast", "other")["training.lr"] == (0.003, 0.001)


def test_two_optimizers_are_an_axis_with_rates_and_steps_of_their_own(study_of) -> None:
    adamw, muon, other = (run("encoder", "mlm") for _ in range(3))
    muon["training"] |= {"optimizer": "muon", "lr": 0.01, "num_steps": 900}
    other["training"] |= {"optimizer": "muon", "batch_rows": 64}
    results = study_of({"adamw": adamw, "muon": muon})
    assert [(p.axis, p.level_a, p.level_b) for p in results.pairs] == [
        ("optimizer", "adamw", "muon")
    ]
    assert also(results, "optimizer", "adamw", "muon")["training.lr"] == (0.003, 0.01)
    assert not study_of({"adamw": adamw, "other": other}).pairs


def test_a_public_checkpoint_is_compared_with_another_as_a_whole(study_of) -> None:
    """It has no corpus and no objective in params.yaml, and is not from scratch."""
    runs = {
        **{name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")},
        "bert": public("google-bert/bert-base-uncased"),
        "bert_later": public("google-bert/bert-base-uncased", "1" * 40),
        "gpt2": public("openai-community/gpt2"),
    }
    results = study_of(runs)
    assert named(results) == {
        ("pretrained", "encoder_scratch", "encoder_mlm"),
        ("checkpoint", "bert", "bert_later"),
        ("checkpoint", "bert", "gpt2"),
        ("checkpoint", "bert_later", "gpt2"),
    }
    levels = {pair.b.name: pair.level_b for pair in results.pairs if pair.axis == "checkpoint"}
    assert levels["bert_later"] == "google-bert/bert-base-uncased at 1111111"
    assert levels["gpt2"] == "openai-community/gpt2"
    assert also(results, "checkpoint", "bert", "gpt2")["tokens seen"] == (None, None)


def test_a_public_checkpoint_that_is_pretrained_further_differs_in_its_training_set(
    study_of,
) -> None:
    runs = {
        "adapted": further("google-bert/bert-base-uncased", "mlm", seeds=[1, 2], parent="bert"),
        "bert": public("google-bert/bert-base-uncased"),
        "twice": further("google-bert/bert-base-uncased", "mlm", corpus="scientific")
        | {"parent": "adapted"},
        "roberta": public("FacebookAI/roberta-base"),
        "roberta_adapted": further("FacebookAI/roberta-base", "mlm", tokenizer="other"),
        "span": further("google-bert/bert-base-uncased", "span_mlm"),
    }
    results = study_of(runs)
    assert named(results) == {
        ("training set", "bert", "adapted"),
        ("training set", "bert", "twice"),
        ("training set", "adapted", "twice"),
        ("training set", "bert", "span"),
        ("training set", "roberta", "roberta_adapted"),
        ("checkpoint", "bert", "roberta"),
        ("checkpoint", "adapted", "roberta_adapted"),
        ("objective", "adapted", "span"),
    }
    pair = next(p for p in results.pairs if p.b.name == "adapted")
    assert pair.level_b == "google-bert/bert-base-uncased, then all"


def test_what_else_differs_between_architectures_is_their_objective(results: Results) -> None:
    assert also(results, "architecture", "encoder_mlm", "decoder_causal")["objective"] == (
        ("mlm", "causal")
    )
    assert "objective" not in also(results, "architecture", "encoder_scratch", "decoder_scratch")
    assert also(results, "training set", "encoder_mlm", "encoder_scientific") == {
        "tokenizer trained on": ("all", "all")
    }
    assert also(results, "training set", "encoder_scientific", "encoder_deep_learning") == {}
    assert "tokens seen" not in also(results, "pretrained", "encoder_scratch", "encoder_mlm")
