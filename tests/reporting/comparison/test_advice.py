import re
from dataclasses import replace
from pathlib import Path

import pytest

from stages.evaluation.metrics import POINTS
from stages.reporting.comparison import costs, tables
from stages.reporting.comparison.advice import Advice, advice, caveats
from stages.reporting.comparison.results import Results, load, row_key
from stages.reporting.comparison.verdicts import NOT_SIGNIFICANT
from stages.reporting.page import pages
from tests.synthetic_study import EFFECTS, METRICS, RUNS, raw_params, write_study


def sentences(found: Advice) -> list[str]:
    return [sentence for _, evidence in found.evidence for sentence in evidence]


def test_the_best_run_is_the_one_with_the_highest_mean(results: Results) -> None:
    for found in advice(results):
        means = {
            (c.group, c.method): c.mean.value
            for c in results.cells
            if c.task == found.task and c.group in EFFECTS
        }
        group, method = max(means, key=lambda key: means[key])
        assert f"`{group}` with `{method}`, {100 * means[group, method]:.1f}" in found.best


def test_every_sentence_repeats_a_contrast_and_its_verdict(results: Results) -> None:
    """Seen from either side: with the sign turned, the sentence must be the other's."""
    for found in advice(results):
        for axis, evidence in found.evidence:
            for text in evidence if axis != "classical" else []:
                one, other = re.findall(r"`(\w+)`", text)
                size = text.split(": ")[1].split(" points")[0]
                matching = [
                    contrast
                    for contrast in results.contrasts
                    if (contrast.axis, contrast.task) == (axis, found.task)
                    for names in [
                        (contrast.a.method, contrast.b.method)
                        if axis == "method"
                        else (contrast.a.group, contrast.b.group)
                    ]
                    for sign in (1, -1)
                    if names[::sign] == (one, other)
                    and size == POINTS.signed(sign * contrast.effect.value)
                    and text.endswith(f"{contrast.verdict_with_seeds}.")
                ]
                assert matching, text


def test_all_axes_are_spoken_of_on_every_task(results: Results) -> None:
    axes = {"architecture", "size", "training set", "pretrained", "method", "classical"}
    assert [{axis for axis, _ in found.evidence} for found in advice(results)] == [axes] * 3


@pytest.mark.parametrize(
    "value, words", [(0.2, ""), (0.999, "no run here beats it"), (None, NOT_SIGNIFICANT)]
)
def test_the_strongest_baseline_stands_beside(
    results: Results, value: float | None, words: str
) -> None:
    """Fitted to the same labels as the runs; None: as good as the best run's mean."""
    best = max(c.mean.value for c in results.cells if c.task == "tag" and c.group in EFFECTS)
    window = next(t for t in results.trials if (t.run, t.task) == ("window", "tag"))
    again = [
        replace(window, pretrain_seed=p, finetune_seed=10 * p + f, value=value or best + f / 1000)
        for p in (1, 2)
        for f in (-2, -1, 0, 1, 2)
    ]
    rows = results.row_scores[row_key(window)]
    row_scores = {**results.row_scores, **{row_key(trial): rows for trial in again}}
    trials = [t for t in results.trials if (t.run, t.task) != ("window", "tag")] + again
    found = advice(replace(results, trials=trials, row_scores=row_scores))
    beside = sentences(found[list(METRICS).index("tag")])[-1]
    assert words in beside and "test rows)" in beside
    assert ("not significant" in beside) == (value is None)
    assert ("no run here" in beside) == (value == 0.999)


def test_one_pretraining_seed_is_said_before_all_else(results: Results) -> None:
    assert "one pretraining seed" in caveats(results)[0]


def test_what_would_narrow_the_intervals_is_said_with_its_cost(
    results: Results, five_seeds: Results
) -> None:
    """By floating-point operations where pages are the same on every machine, by time elsewhere."""
    (text,) = [text for text in caveats(five_seeds) if "Twice as many" in text]
    for source in ("pretraining seeds", "fine-tuning seeds", "test rows"):
        assert re.search(rf"{source} by \d+(\.\d+)?%", text)
    undecided = [c for c in five_seeds.contrasts if c.is_tested and not c.significant]
    assert "FLOPs" in text and f" {sum(c.verdict == NOT_SIGNIFICANT for c in undecided)} " in text
    (text,) = costs.narrower(five_seeds)
    assert "per hour" in text
    trials = len(five_seeds.finetuning_costs)
    hours = (2.5 * trials + 61.5 * 20) / 3600
    assert f"for {60 * hours:.3g} min" in text


def test_the_interval_says_what_it_covers(results: Results, five_seeds: Results) -> None:
    assert any(text.startswith("Intervals cover pretraining seeds") for text in caveats(five_seeds))
    assert not any("cover pretraining seeds" in text for text in caveats(results))


def test_equal_scores_are_called_a_tie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {name: RUNS[name] for name in ("encoder_mlm", "decoder_causal")}
    results = load(write_study(tmp_path, raw_params(runs), score=0.5))
    assert "tie of 4" in advice(results)[0].best
    assert not any("significant" in s for s in sentences(advice(results)[0]))


def test_signed_numbers_have_no_negative_zero() -> None:
    assert [POINTS.signed(v) for v in (0.031, -0.031, 0.0, -0.0001)] == [
        "+3.1",
        "−3.1",
        "0.0",
        "0.0",
    ]


@pytest.mark.slow
def test_of_bits_per_byte_the_lowest_mean_is_the_best_and_it_is_no_percentage(
    results: Results,
) -> None:
    """Of two tasks with equal numbers, one of them in bits: the best here is the worst there."""
    tagged = {t.run: t for t in results.trials if t.task == "tag"}
    trials = [replace(t, metric="bits_per_byte") if t.task == "tag" else t for t in results.trials]
    in_bits = replace(results, trials=trials)
    found = advice(in_bits)[list(METRICS).index("tag")]
    cells = [c for c in in_bits.cells if c.task == "tag" and c.group in EFFECTS]
    lowest = min(cells, key=lambda c: c.mean.value)
    assert found.best.startswith(
        f"Lowest mean: `{lowest.group}` with `{lowest.method}`, {lowest.mean.value:.3f} bits per"
    )
    # The majority's 0.04 is below all runs, and so the strongest baseline.
    assert tagged["majority"].value < lowest.mean.value
    [beside] = dict(found.evidence)["classical"]
    assert beside.startswith("`majority` reaches 0.040") and "no run here" in beside
    assert " points" not in " ".join(sentences(found)) and " bits per byte" in sentences(found)[0]

    table = tables.by_task(in_bits, "tag")
    columns = list(zip(*(scores for _, _, scores in table.rows), strict=True))
    for column in columns:
        assert [s.best for s in column if s] == [s.mean == 0.04 for s in column if s]
    text = pages.markdown(in_bits)
    assert "**0.040**" in text and "**4.0**" not in text.split("### type")[0]
    assert "Bold is the best mean" in text
    assert "Bold is the highest mean" in pages.markdown(results)
