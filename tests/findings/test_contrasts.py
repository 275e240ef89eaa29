from dataclasses import replace

import pytest

from stages.evaluation.statistics import CHECKPOINTS, PRETRAINING, TRIALS
from stages.findings.axes import Axis, pairs
from stages.findings.contrasts import Contrast
from stages.findings.groups import Group, Used
from stages.findings.results import Results, load
from stages.findings.verdicts import Verdict
from stages.matching.budget import matched
from stages.reporting.words.files import contrast_row
from stages.reporting.words.names import confound, seeds_of_contrast, verdict
from tests.synthetic_study import (
    RUNS,
    TRAINING,
    further,
    public,
    raw_params,
    repeated,
    run,
)


def pairs_of(results: Results) -> list[tuple[Axis, Group, Group]]:
    """Pairs on ``type`` with full fine-tuning."""
    used = Used.by_group(results.groups, results.trials, task="type", method="full")
    return pairs(results.groups, used)


def named(axis_pairs: list[tuple[Axis, Group, Group]]) -> set[tuple[Axis, str, str]]:
    return {(axis, a.name, b.name) for axis, a, b in axis_pairs}


def confounds(contrast: Contrast) -> list[str]:
    return [confound(c) for c in contrast.confounds]


def test_exactly_the_pairs_that_differ_in_one_axis(results: Results) -> None:
    """The smaller encoder is compared neither with the decoder nor with the encoder from scratch,
    and runs on other texts are not compared with the decoder."""
    assert named(pairs_of(results)) == {
        ("architecture", "encoder_mlm", "decoder_causal"),
        ("architecture", "encoder_scratch", "decoder_scratch"),
        ("size", "encoder_mlm", "encoder_small"),
        ("training set", "encoder_mlm", "encoder_scientific"),
        ("training set", "encoder_mlm", "encoder_deep_learning"),
        ("training set", "encoder_scientific", "encoder_deep_learning"),
        ("pretrained", "encoder_mlm", "encoder_scratch"),
        ("pretrained", "encoder_scientific", "encoder_scratch"),
        ("pretrained", "encoder_deep_learning", "encoder_scratch"),
        ("pretrained", "decoder_causal", "decoder_scratch"),
    }


def test_every_pair_on_every_task_and_method_and_both_methods_of_every_run(
    results: Results,
) -> None:
    keys = [(c.axis, c.task, c.a.group, c.b.group, c.a.method) for c in results.contrasts]
    assert len(keys) == len(set(keys)) == 10 * 3 * 2 + 7 * 3
    assert all(c.a.method == "full" for c in results.contrasts if c.axis == "method")


def test_pairs_do_not_depend_on_the_order_of_runs(results: Results, study_of) -> None:
    def unordered(study: Results) -> set:
        return {(axis, frozenset((a.name, b.name))) for axis, a, b in pairs_of(study)}

    backwards = study_of(dict(reversed(RUNS.items())))
    assert unordered(backwards) == unordered(results)


def test_several_seeds_of_a_run_support_a_claim_beyond_the_checkpoint(study_of) -> None:
    runs = repeated({name: RUNS[name] for name in ("encoder_mlm", "decoder_causal")}, 2)
    results = study_of(runs)
    assert [(g.name, g.seeds) for g in results.groups] == [(name, [1, 2]) for name in runs]
    contrast = results.contrasts[0]
    assert (contrast.axis, seeds_of_contrast(contrast)) == ("architecture", "2 x 5")
    assert (contrast.effect.basis, contrast.effect.test) == (PRETRAINING, "paired t")
    assert contrast.is_tested and contrast.verdict != Verdict.ONE_SEED
    assert {c.effect.test for c in results.contrasts if c.axis == "method"} == {"paired t"}


def test_what_the_budget_made_of_a_run_is_compared_and_not_its_entry(study_of) -> None:
    """Matched in tokens, a run that asks for more steps trains no longer than the others."""
    longer = run("encoder", "mlm")
    longer["training"]["num_steps"] *= 4
    runs = {"encoder_mlm": RUNS["encoder_mlm"], "longer": longer}
    results = load(matched(study_of(runs).params))
    steps = [group.entry.training.num_steps for group in results.groups]
    assert steps == [TRAINING["num_steps"]] * 2
    assert pairs_of(results) == []


def test_the_same_run_under_two_names_is_no_second_seed(study_of) -> None:
    runs = {"one": RUNS["encoder_mlm"], "copy": RUNS["encoder_mlm"]}
    results = study_of(runs)
    assert [group.name for group in results.groups] == ["one", "copy"]
    assert pairs_of(results) == []


def test_architectures_meet_at_the_nearest_size(study_of) -> None:
    """Large is compared with large, small with small, and never across."""
    runs = {
        f"{model}_{d_model}": run(model, objective, d_model=d_model)
        for model, objective in (("encoder", "mlm"), ("decoder", "causal"))
        for d_model in (192, 96)
    }
    assert named(pairs_of(study_of(runs))) == {
        ("architecture", "encoder_192", "decoder_192"),
        ("architecture", "encoder_96", "decoder_96"),
        ("size", "encoder_192", "encoder_96"),
        ("size", "decoder_192", "decoder_96"),
    }


def of_steps(corpus: str, num_steps: int) -> dict:
    entry = run("encoder", "mlm", corpus)
    entry["training"]["num_steps"] = num_steps
    return entry


def test_amounts_of_one_text_are_compared_at_equal_steps_and_at_equal_epochs(study_of) -> None:
    """Another text is compared with an equal amount of text."""
    runs = {
        "few": of_steps("all_half", 1000),
        "few_shorter": of_steps("all_half", 500),
        "much": of_steps("all", 1000),
        "other": of_steps("scientific", 1000),
        "scratch": run("encoder", "none", "none"),
    }
    raw = raw_params(runs)
    raw["corpora"]["all_half"] = raw["corpora"]["all"]
    raw["budget"]["matched"] = "none"
    results = study_of(raw=raw)
    assert named(pairs_of(results)) == {
        ("training", "few", "few_shorter"),
        ("amount of text", "much", "few"),
        ("amount of text", "much", "few_shorter"),
        ("training set", "much", "other"),
        *(("pretrained", name, "scratch") for name in runs if name != "scratch"),
    }
    amounts = {c.b.group: c for c in results.contrasts if c.axis == "amount of text"}
    assert {(c.level_a, c.level_b) for c in amounts.values()} == {
        ("all, 1,000,000 tokens, 4.1 epochs", "all_half, 500,000 tokens, 8.19 epochs"),
        ("all, 1,000,000 tokens, 4.1 epochs", "all_half, 500,000 tokens, 4.1 epochs"),
    }
    assert "training.num_steps: 1000 v. 500" in confounds(amounts["few_shorter"])
    assert confounds(amounts["few"]) == []


def test_unequal_amounts_of_two_texts_are_a_confound(study_of) -> None:
    raw = raw_params({"few": of_steps("all_half", 1000), "other": of_steps("scientific", 1000)})
    raw["corpora"]["all_half"] = raw["corpora"]["all"]
    results = study_of(raw=raw)
    assert named(pairs_of(results)) == {("training set", "few", "other")}
    assert confounds(results.contrasts[0]) == ["tokens of text: 500,000 v. 1,000,000"]


def test_another_learning_rate_is_a_confound_unless_nothing_else_differs(study_of) -> None:
    fast, slow, other = (
        run("encoder", "mlm"),
        run("encoder", "mlm"),
        run("encoder", "mlm", "scientific"),
    )
    slow["training"]["lr"] = other["training"]["lr"] = 0.001
    results = study_of({"fast": fast, "slow": slow, "other": other})
    assert named(pairs_of(results)) == {
        ("training", "fast", "slow"),
        ("training set", "slow", "other"),
    }
    results = study_of({"fast": fast, "other": other})
    assert named(pairs_of(results)) == {("training set", "fast", "other")}
    assert "training.lr: 0.003 v. 0.001" in confounds(results.contrasts[0])


@pytest.mark.slow
def test_how_the_learning_rate_of_pretraining_was_chosen_is_a_confound(
    study_of,
) -> None:
    """Another number of tries or another kept rate is a confound; equal lists that kept one rate
    are not. The kept rate is no setting: it neither makes an axis nor removes one."""
    runs = {name: run("encoder", "mlm", name) for name in ("all", "scientific", "deep_learning")}
    rate_confounds = {}
    for name, lr in {
        "one": (0.003, 0.003, 0.003),
        "equal": ([0.001, 0.003], [0.001, 0.003], [0.001, 0.003]),
        "unequal": ([0.001, 0.003], 0.003, [0.003, 0.001]),
    }.items():
        for entry, rates in zip(runs.values(), lr, strict=True):
            entry["training"]["lr"] = rates
        results = study_of(runs)
        assert {c.axis for c in results.contrasts} == {"training set", "method"}
        rate_confounds[name] = {
            (c.a.group, c.b.group): [text for text in confounds(c) if " rate" in text]
            for c in results.contrasts
            if c.axis == "training set"
        }
    assert not any(rate_confounds["one"].values()) and not any(rate_confounds["equal"].values())
    assert rate_confounds["unequal"]["all", "scientific"] == ["pretraining rates tried: 2 v. 1"]
    assert rate_confounds["unequal"]["all", "deep_learning"] == [
        "kept pretraining rate: 0.003 v. 0.001"
    ]


def test_a_public_checkpoint_is_compared_with_another_as_a_whole_and_with_no_run_of_the_study(
    study_of,
) -> None:
    """It has no corpus and no objective in params.yaml, and is not from scratch."""
    runs = {
        **{name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")},
        "bert": public("google-bert/bert-base-uncased"),
        "bert_again": public("google-bert/bert-base-uncased", seed=2),
        "bert_later": public("google-bert/bert-base-uncased", "1" * 40),
        "gpt2": public("openai-community/gpt2"),
    }
    results = study_of(runs)
    # Another seed makes no other checkpoint, so no second sample of pretraining either.
    assert [group.name for group in results.groups] == [*runs]
    assert {g.name: (g.pretrained, g.objective, g.corpus) for g in results.groups}["bert"] == (
        (True, "hub", "google-bert/bert-base-uncased")
    )
    assert named(pairs_of(results)) == {
        ("pretrained", "encoder_mlm", "encoder_scratch"),
        ("checkpoint", "bert", "bert_later"),
        ("checkpoint", "bert_again", "bert_later"),
        ("checkpoint", "bert", "gpt2"),
        ("checkpoint", "bert_again", "gpt2"),
        ("checkpoint", "bert_later", "gpt2"),
    }
    by_pair = {(c.a.group, c.b.group): c for c in results.contrasts if c.axis == "checkpoint"}
    assert by_pair["bert", "bert_later"].level_b == "google-bert/bert-base-uncased at 1111111"
    assert by_pair["bert", "gpt2"].level_b == "openai-community/gpt2"
    assert "tokens seen: unknown v. unknown" in confounds(by_pair["bert", "gpt2"])
    assert contrast_row(by_pair["bert", "gpt2"])["lineage_tokens_a"] is None
    methods = [c for c in results.contrasts if c.axis == "method" and c.a.group == "bert"]
    assert methods and not any("unknown" in fault for c in methods for fault in confounds(c))


def test_a_public_checkpoint_that_is_pretrained_further_differs_in_its_training_set(
    study_of,
) -> None:
    """The effect is the score of the adapted run minus the published checkpoint's, in any order
    of entries. Runs adapted from two checkpoints differ in the checkpoint alone."""
    runs = {
        "bert": public("google-bert/bert-base-uncased"),
        "adapted": further("google-bert/bert-base-uncased", "mlm", seeds=[1, 2], parent="bert"),
        "twice": further("google-bert/bert-base-uncased", "mlm", corpus="scientific")
        | {"parent": "adapted"},
        "roberta": public("FacebookAI/roberta-base"),
        "roberta_adapted": further("FacebookAI/roberta-base", "mlm", tokenizer="other"),
        "span": further("google-bert/bert-base-uncased", "span_mlm"),
    }
    results = study_of(runs)
    assert named(pairs_of(results)) == {
        ("training set", "adapted", "bert"),
        ("training set", "twice", "bert"),
        ("training set", "twice", "adapted"),
        ("training set", "span", "bert"),
        ("training set", "roberta_adapted", "roberta"),
        ("checkpoint", "bert", "roberta"),
        ("checkpoint", "adapted", "roberta_adapted"),
        ("objective", "adapted", "span"),
    }
    by_pair = {(c.a.group, c.b.group): c for c in results.contrasts if c.axis == "training set"}
    contrast = by_pair["adapted", "bert"]
    assert contrast.level_a == "google-bert/bert-base-uncased, then all"
    assert contrast.level_b == "google-bert/bert-base-uncased"
    difference = contrast.a.mean.value - contrast.b.mean.value
    assert contrast.effect.value == pytest.approx(difference)
    assert contrast.effect.low is not None and contrast.effect.high is not None
    assert contrast.effect.low < difference < contrast.effect.high
    assert confounds(contrast) == [
        "tokens seen: unknown v. unknown",
        "pretraining FLOPs: unknown v. unknown",
        "bytes read: unknown v. unknown",
    ]


def test_confounds_are_what_differs_and_not_the_axis(results: Results) -> None:
    by_axis = {contrast.axis: contrast for contrast in results.contrasts}
    assert by_axis["training set"].confounds == []
    assert any(c.startswith("parameters: 2.56M v. 813k") for c in confounds(by_axis["size"]))
    assert any(c.startswith("tokens seen: 4.1M v. 0") for c in confounds(by_axis["pretrained"]))
    assert any(c.startswith("trained parameters: ") for c in confounds(by_axis["method"]))


def test_the_training_of_two_methods_is_a_confound(study_of) -> None:
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"]})
    full = raw["finetune"]["methods"]["full"]
    faster = {**full, "training": full["training"] | {"lr": 0.01}}
    raw["finetune"]["methods"] = {"full": full, "faster": faster}
    contrasts = [c for c in study_of(raw=raw).contrasts if c.axis == "method"]
    assert contrasts and all(
        "finetune.training.lr: 0.001 v. 0.01" in confounds(c) for c in contrasts
    )


def test_the_own_fine_tuning_of_a_run_is_a_confound(study_of) -> None:
    raw = raw_params(
        {"encoder_mlm": RUNS["encoder_mlm"], "other": run("encoder", "mlm", "scientific")}
    )
    raw["finetune"]["methods"]["full"]["runs"] = {"other": {"lr": 0.01}}
    contrasts = study_of(raw=raw).contrasts
    for contrast in contrasts:
        is_confounded = contrast.axis == "training set" and contrast.a.method == "full"
        assert ("finetune.training.lr: 0.001 v. 0.01" in confounds(contrast)) == is_confounded
    assert {"training set"} <= {contrast.axis for contrast in contrasts}


def test_two_optimizers_are_an_axis_with_rates_and_steps_of_their_own(study_of) -> None:
    adamw, muon, other = (run("encoder", "mlm") for _ in range(3))
    muon["training"] |= {"optimizer": "muon", "lr": 0.01, "num_steps": 900}
    other["training"] |= {"optimizer": "muon", "batch_rows": 64}
    results = study_of({"adamw": adamw, "muon": muon})
    [(axis, *_)] = pairs_of(results)
    assert axis == "optimizer"
    contrast = results.contrasts[0]
    assert (contrast.level_a, contrast.level_b) == ("adamw", "muon")
    assert "training.lr: 0.003 v. 0.01" in confounds(contrast)
    assert not pairs_of(study_of({"adamw": adamw, "other": other}))


def test_effects_are_differences_of_means(results: Results) -> None:
    for contrast in results.contrasts:
        a, b = contrast.a.mean.value, contrast.b.mean.value
        assert contrast.effect.value == pytest.approx(a - b)


def test_one_pretraining_seed_has_an_interval_and_no_verdict(results: Results) -> None:
    """Runs from scratch have verdicts, as every trial has its own weights."""
    seen = set()
    for c in results.contrasts:
        scratch = c.a.group.endswith("scratch") and c.b.group.endswith("scratch")
        assert c.effect.basis == (TRIALS if scratch else CHECKPOINTS)
        assert c.effect.low is not None and contrast_row(c)["share_rows"] != ""
        assert (c.verdict == Verdict.ONE_SEED) == (c.p_holm is None) == (not scratch)
        if not scratch:
            assert (
                not c.significant and c.seeds_needed is None and contrast_row(c)["resolved"] == "no"
            )
        seen.add(c.verdict)
    assert {Verdict.ONE_SEED, Verdict.SIGNIFICANT} <= seen
    tested = [c for c in results.contrasts if c.is_tested]
    smallest = min(tested, key=lambda c: c.effect.p_value or 0)
    assert smallest.effect.p_value is not None  # Holm's family: contrasts with a verdict
    assert smallest.p_holm == pytest.approx(min(1, len(tested) * smallest.effect.p_value))


def test_published_checkpoints_have_verdicts_about_themselves(study_of) -> None:
    runs = {
        "bert": public("google-bert/bert-base-uncased"),
        "gpt2": public("openai-community/gpt2"),
    }
    results = study_of(runs)
    assert {c.axis for c in results.contrasts} == {"checkpoint", "method"}
    for c in results.contrasts:
        assert c.effect.basis == CHECKPOINTS and c.p_holm is not None
        assert verdict(c).endswith("for these checkpoints")


@pytest.mark.slow
def test_shares_add_up_and_say_what_would_narrow_the_interval(five_seeds: Results) -> None:
    assert all(c.effect.variance for c in five_seeds.contrasts)
    for c in (c for c in five_seeds.contrasts if c.effect.basis == PRETRAINING):
        row = contrast_row(c)
        shares = [row[f"share_{end}"] for end in ("pretrain", "finetune", "rows")]
        assert sum(shares) == pytest.approx(1, abs=0.01) and min(shares) >= 0
        assert 0 < row["narrower_rows"] < 0.3 and 0 < row["narrower_pretrain"] < 0.75


def test_a_verdict_is_never_stronger_than_its_numbers(five_seeds: Results) -> None:
    seen = set()
    kinds = {
        (True, True): Verdict.SIGNIFICANT,
        (True, False): Verdict.BEFORE_CORRECTION,
        (False, False): Verdict.NOT_SIGNIFICANT,
    }
    for c in five_seeds.contrasts:
        assert c.effect.low is not None and c.effect.high is not None and c.p_holm is not None
        assert c.p_holm >= (c.effect.p_value or 0)
        excludes = not c.effect.low <= 0 <= c.effect.high
        assert c.significant_before_correction == excludes
        assert c.significant == (excludes and c.p_holm < 0.05)
        assert c.verdict == kinds[c.significant_before_correction, c.significant]
        assert contrast_row(c)["resolved"] == ("yes" if excludes else "no")  # before correction
        assert c.seeds_needed is None or not excludes
        seen.add(c.verdict)
        if c.significant:
            assert replace(c, p_holm=0.2).verdict == Verdict.BEFORE_CORRECTION
    assert {Verdict.SIGNIFICANT, Verdict.NOT_SIGNIFICANT} <= seen


def test_more_labels_against_fewer(study_of) -> None:
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"]})
    raw["finetune"]["label_budgets"] = ["all", 200, 1000]
    contrasts = study_of(raw=raw).contrasts
    budgets = {(c.a.label_budget, c.b.label_budget) for c in contrasts if c.axis == "label budget"}
    assert budgets == {("all", "1000"), ("all", "200"), ("1000", "200")}
