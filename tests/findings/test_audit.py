"""Each question of the audit, for a study with an objection and for one without."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stages.core.keys import RunKey
from stages.evaluation.records import CLASSICAL, ScoredTrial
from stages.evaluation.variance import Between, Variance
from stages.findings import audit
from stages.findings.answers import Standing
from stages.findings.audit import Check, Subject
from stages.findings.results import Results
from stages.models.encoder import Encoder
from stages.reporting.words.audit import (
    CHOICE,
    EFFECTS,
    Told,
    in_order,
    objections,
    summary,
    told,
)
from stages.tasks.tagging import Tagging
from tests.synthetic_study import RUNS, public, raw_params, repeated, run


@pytest.fixture
def study(study_of: Callable[..., Results]) -> Callable[..., Results]:
    """Writes a study with one task and with changes to ``finetune:``."""

    def write(runs: dict[str, Any], **changes: Any) -> Results:
        raw = raw_params(runs)
        raw["tasks"] = {"type": raw["tasks"]["type"]}
        raw["finetune"] |= changes
        return study_of(raw=raw)

    return write


def some(*names: str) -> dict[str, Any]:
    return {name: RUNS[name] for name in names}


def checked(results: Results, subject: Subject) -> Check:
    return audit.audit(results)[subject]


def changed(results: Results, which: Callable[[ScoredTrial], bool], **values: Any) -> Results:
    """Changes values of the trials that ``which`` selects."""
    trials = [replace(t, **values) if which(t) else t for t in results.trials]
    return replace(results, trials=trials)


def full(trial: ScoredTrial) -> bool:
    return trial.method == "full"


def solved(trial: ScoredTrial) -> bool:
    return trial.method == "linear_probe"


def test_audit_has_each_subject_once_and_words_for_every_check(results, five_seeds) -> None:
    for study_results in (results, five_seeds):
        checks = audit.audit(study_results)
        assert [*checks] == [*Subject]
        assert len({words.question for words in told(checks).values()}) == len(Subject)
        for words in told(checks).values():
            assert words.question.endswith("?") and words.answer.endswith(".")
            assert "nan" not in words.answer and "None" not in words.answer


def test_objections_to_the_choice_stand_before_those_to_why_runs_differ() -> None:
    why, free, choice, open_question = questions = [
        Told("Alike?", "", "objection", EFFECTS, []),
        Told("Cut?", "", "none", CHOICE, []),
        Told("Tried?", "", "objection", CHOICE, []),
        Told("Probed?", "", "does not apply", CHOICE, []),
    ]
    assert in_order(questions) == [choice, why, free, open_question]
    assert objections(questions) == [
        "Questions with an objection that affects the choice: Tried?",
        "Questions with an objection that affects why runs differ: Alike?",
    ]
    assert summary(questions) == (
        "Audit: 4 questions, 1 without objection, 2 with an objection (1 affects the choice), "
        "1 that does not apply"
    )
    assert summary([free, free]) == (
        "Audit: 2 questions, 2 without objection, 0 with an objection, 0 that do not apply"
    )
    assert objections([free]) == []


def test_a_study_from_scratch_has_no_objection_to_its_pretraining(study) -> None:
    checks = audit.audit(study(some("encoder_scratch", "decoder_scratch")))
    for subject in (
        Subject.PRETRAINING_END,
        Subject.PRETRAINING_RATES,
        Subject.PRETRAINING_SEEDS,
        Subject.OVERLAP,
    ):
        assert checks[subject].objection is None


@pytest.mark.parametrize(
    "runs",
    [some("encoder_scratch", "decoder_scratch"), repeated(some("encoder_mlm"), 2)],
    ids=["from scratch", "one run"],
)
def test_every_check_has_an_answer(runs, study) -> None:
    for words in told(audit.audit(study(runs))).values():
        assert words.answer.endswith(".") and "nan" not in words.answer


@pytest.mark.parametrize(
    ("which", "values", "expected"),
    [
        (lambda t: False, {}, False),
        (lambda t: solved(t) and t.run == "encoder_mlm", {"converged": 0}, True),
        (lambda t: solved(t) and t.finetune_seed == 1, {"at_edge": 1}, False),  # of 20%
        (lambda t: solved(t) and t.finetune_seed <= 2, {"at_edge": 1}, True),
        (solved, {"converged": None}, None),
    ],
)
def test_probes(results, which, values, expected) -> None:
    check = audit.probes(changed(results, which, **values).scores.cells)
    assert check.objection is expected
    if "converged" in values and expected:
        assert check.numbers["converged"] == 90 and check.numbers["trials"] == 105
        assert [cell.group for cell, _ in check.details] == ["encoder_mlm"] * 3


def test_end_of_finetuning(results) -> None:
    late = changed(results, full, best_is_last=1)  # harmless alone
    for fine in (results, late):
        assert audit.end_of_finetuning(fine.scores.cells).objection is False
    short = changed(late, lambda t: full(t) and t.run == "decoder_scratch", still_improving=1)
    check = audit.end_of_finetuning(short.scores.cells)
    assert check.objection is True
    assert (check.numbers["converged"], check.numbers["cells"]) == (18, 21)
    assert check.numbers["best"] == 105
    untrained = changed(results, full, num_epochs=0)
    assert audit.end_of_finetuning(untrained.scores.cells).objection is None


@pytest.mark.parametrize(
    ("slope", "every", "objection", "numbers"),
    [(None, 200, False, (0, 0)), (-0.4, 200, True, (1, 0)), (0.0, 1000, True, (0, 1))],
)
def test_end_of_pretraining(results, slope, every, objection, numbers) -> None:
    """A validation loss that still falls, or was measured too rarely, is an objection."""
    if slope is not None:
        key = RunKey("decoder_causal", 1)
        progress = results.progress[key]
        losses = [
            5 + slope * float(np.log2(s.step)) if s.step % every == 0 else None
            for s in progress.history
        ]
        history = [
            replace(step, validation_loss=loss)
            for step, loss in zip(progress.history, losses, strict=True)
        ]
        changed_progress = {key: replace(progress, history=history)}
        results = replace(results, progress=results.progress | changed_progress)
    check = audit.end_of_pretraining(results.endings)
    assert check.objection is objection
    assert (check.numbers["falling"], check.numbers["unknown"]) == numbers
    assert [ending.name for ending in check.details] == ["decoder_causal"] * sum(numbers)
    assert slope != -0.4 or check.numbers["steepest"] == pytest.approx(-0.4)


def test_finetuning_rates(results, study) -> None:
    """A single rate for unlike models is an objection, and so are many choices at an edge."""

    def check_of(some_results: Results) -> Check:
        methods = some_results.params.finetune.methods
        return audit.finetuning_rates(some_results.scores.cells, some_results.contrasts, methods)

    assert check_of(results).objection is True
    several = changed(results, full, num_tries=3, at_edge=0)
    assert check_of(several).objection is False
    edge = check_of(changed(several, lambda t: full(t) and "scratch" in t.run, at_edge=1))
    assert edge.objection is True and edge.numbers["share"] == pytest.approx(2 / 7)
    alike = study(some("encoder_mlm", "encoder_scientific"))  # a contrast of training sets alone
    assert check_of(alike).objection is False


@pytest.mark.parametrize(
    ("rates", "expected"), [([0.003], True), ([0.001, 0.003, 0.01], False), ([0.001, 0.003], True)]
)
def test_pretraining_rates(rates, expected, study) -> None:
    """The synthetic study keeps the second of several rates."""
    runs = {name: {**entry} for name, entry in some("encoder_mlm", "decoder_causal").items()}
    for entry in runs.values():
        entry["training"] = entry["training"] | {"lr": rates}
    results = study(runs)
    assert audit.pretraining_rates(results.endings, results.contrasts).objection is expected


def test_tries(results) -> None:
    check = audit.tries(results.trials, results.endings)
    assert check.objection is True and check.numbers["tries"] == [1, 4, 6]
    assert {name: {*numbers} for name, numbers in check.details} == {
        "full": {1},
        "linear_probe": {6},
        "baseline majority": {4},
        "baseline tfidf": {4},
        "baseline window": {4},
        "pretraining": {1},
    }
    equal = changed(results, lambda _: True, num_tries=4)
    equal = changed(equal, lambda t: t.run == "majority", num_tries=1)  # nothing to choose
    assert audit.tries(equal.trials, equal.endings).objection is False
    more = changed(equal, lambda t: t.method == CLASSICAL and t.run == "tfidf", num_tries=8)
    assert audit.tries(more.trials, more.endings).objection is True


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"label_budgets": [200]}, False),
        ({"label_budgets": [200, "all"]}, True),
        ({"label_budgets": [1200]}, True),  # all of the 1,200 rows
        ({"seeds": [1]}, True),
    ],
)
def test_labelled_rows(settings, expected, study) -> None:
    """Trials that share one sample of labels are an objection."""
    results = study(some("encoder_mlm"), **settings)
    check = audit.labelled_rows(
        results.params.finetune, results.params.pretrain_seeds, results.tasks
    )
    assert check.objection is expected
    assert check.numbers["nested"] == (len(results.scores.label_budgets) > 1)
    distinct = {number for *_, number in check.details}
    assert (1 in distinct) == expected and distinct <= {1, 5}


@pytest.mark.parametrize(("budget", "expected"), [(200, False), (100, True)])
def test_validation_labels(budget, expected, study) -> None:
    results = study(some("encoder_mlm"), label_budgets=[budget])
    check = audit.validation_labels(results.num_labels, results.tasks)
    assert check.objection is expected
    assert check.numbers["most"] == pytest.approx(200 / (200 + budget))


def with_inputs(results: Results, run: str, **values: Any) -> Results:
    records = [replace(r, **values) if r.run == run else r for r in results.inputs["tag"]]
    return replace(results, inputs=results.inputs | {"tag": records})


@pytest.mark.parametrize(("rows_cut", "expected"), [(10, False), (11, True)])
def test_cut_texts(results, rows_cut, expected) -> None:
    """More than 5% of a split's 200 rows are an objection."""
    inputs = with_inputs(results, "encoder_mlm", rows_cut=rows_cut).inputs
    check = audit.cut_texts(inputs, results.tasks)
    assert check.objection is expected
    assert dict(check.details)["tag"] == check.numbers["most"] == rows_cut / 200


def test_cut_texts_names_the_setting_by_which_the_end_of_texts_is_read(results) -> None:
    records = [replace(record, rows_cut=20) for record in results.inputs["tag"]]
    cut: dict[str, Any] = dict.fromkeys(("tag", "type", "section"), records)

    def answer(**settings: str) -> str:
        section = {"task": {"name": "classification", **settings}}
        check = audit.cut_texts(cut, results.tasks | {"section": section})
        return told({Subject.CUT: check})[Subject.CUT].answer

    assert "a larger `finetune.max_tokens`" in answer()
    both = "`long_texts: head_tail` reads their end, too, and `windows` all of them"
    assert answer().endswith(f"{both}: type, section.")
    middle = "`long_texts: windows` reads their middle, too: section"
    assert answer(long_texts="head_tail").endswith(f"{both}: type; {middle}.")
    assert answer(long_texts="windows").endswith(f"{both}: type.")


def test_read_at(results) -> None:
    """A causal model that is read before the end of a word is an objection."""
    assert audit.read_at(results.inputs).objection is False
    task = Tagging.__new__(Tagging)
    task.is_causal, task.label_subwords = True, "first"
    place = task.states_read(Encoder.__new__(Encoder))  # does not look at the model itself
    check = audit.read_at(with_inputs(results, "decoder_causal", read_at=place).inputs)
    assert check.objection is True and check.details == [("decoder_causal", "tag", place)]


def test_near_duplicates(results) -> None:
    check = checked(results, Subject.NEAR_DUPLICATES)
    assert check.objection is False and check.numbers["most"] == 0.005
    assert "`group`" not in told({Subject.NEAR_DUPLICATES: check})[Subject.NEAR_DUPLICATES].answer
    few = results.near_duplicates
    task = next(iter(few))
    check = audit.near_duplicates(few | {task: replace(few[task], number=15)})
    words = told({Subject.NEAR_DUPLICATES: check})[Subject.NEAR_DUPLICATES]
    assert check.objection is True and "At most 1.5%" in words.answer and "`group`" in words.answer
    assert (
        f"{task}: 15 of 1,000 test rows, such as 'a b' in test, 'b a' in train" in words.details[0]
    )


def test_overlap(results, study) -> None:
    shares = results.overlap.shares
    check = audit.overlap(shares, results.params.runs, [])
    assert check.objection is False and check.numbers["most"] == pytest.approx(0.015)
    high = audit.overlap(shares | {("tag", "all"): 0.08}, results.params.runs, [])
    assert high.objection is True and high.numbers["most"] == 0.08
    unknown = study(some("encoder_mlm") | {"bert": public("google-bert/bert-base-uncased")})
    check = checked(unknown, Subject.OVERLAP)
    assert check.objection is True and check.numbers["public"] == 1


def test_pretraining_seeds(results, five_seeds) -> None:
    check = checked(results, Subject.PRETRAINING_SEEDS)
    assert check.objection is True
    assert (check.numbers["without"], check.numbers["contrasts"]) == (69, 81)
    check = checked(five_seeds, Subject.PRETRAINING_SEEDS)
    assert check.objection is False and {*check.numbers["seeds"]} == {5}


@pytest.mark.slow
def test_power(results) -> None:
    assert audit.power(results.contrasts, results.tasks).objection is True
    exact = replace(
        changed(results, lambda _: True, value=0.5),
        row_scores={
            key: np.full_like(rows, 0.5) + 0.01 * (np.arange(len(rows)) % 2)
            for key, rows in results.row_scores.items()
        },
    )
    check = audit.power(exact.contrasts, exact.tasks)
    assert check.objection is True and not check.details  # no contrast has an interval
    steady = replace(
        results,
        row_scores={key: rows / 100 for key, rows in results.row_scores.items()},
        trials=[
            replace(t, value=0.5 + t.value / 100 if t.method == "full" else t.value / 100)
            for t in results.trials
        ],
    )
    assert audit.power(steady.contrasts, steady.tasks).objection is False


@pytest.mark.parametrize(("seeds", "rows"), [(3, 200), (10, 1000)])
def test_smallest_effect_is_found_in_four_of_five_studies(seeds: int, rows: int) -> None:
    """Simulates studies with an interval each: seeds vary by 1 point, rows by 20 points."""
    rng = np.random.default_rng(1)
    planned = Variance(
        Between(0.01**2 / seeds, seeds - 1, 0.0, None, seeds), 0.2**2 / rows, rows, True
    )
    effect = audit.smallest_effect(planned, 0.95)
    num_detected = 0
    for _ in range(2000):
        of_seeds, of_rows = rng.normal(0, 0.01, seeds), rng.normal(0, 0.2, rows)
        units = float(np.var(of_seeds, ddof=1)) / seeds
        between = Between(units, seeds - 1, 0.0, None, seeds)
        variance = Variance(between, float(np.var(of_rows, ddof=1)) / rows, rows, True)
        num_detected += abs(effect + of_seeds.mean() + of_rows.mean()) > variance.half_width(0.95)
    assert num_detected / 2000 == pytest.approx(0.8, abs=0.04)


def test_identical(results) -> None:
    """A model compared with itself is an objection."""
    group_of = results.scores.group_of
    assert audit.identical(results.contrasts, group_of).objection is False
    compared = [c for c in results.contrasts if c.axis == "architecture"]
    one = next(c for c in compared if c.a.group.endswith("_scratch"))
    design = one.a.trials[0].design
    twin = replace(one, b=replace(one.b, trials=(replace(one.b.trials[0], design=design),)))
    check = audit.identical([twin], group_of)
    assert check.objection is True and check.numbers == {"same": 1, "between": 1}


def test_missing_comparisons(results, study) -> None:
    """Runs that differ too much in size, or are compared with no run, are an objection."""
    assert audit.missing_comparisons(results.not_compared).objection is True
    odd = run("decoder", "causal", "scientific", d_model=48)
    alone = study(some("encoder_mlm", "encoder_small") | {"odd": odd})
    check = audit.missing_comparisons(alone.not_compared)
    assert check.objection is True and check.details[0].a == "odd"
    whole = study(some("encoder_mlm", "encoder_scratch"))
    assert audit.missing_comparisons(whole.not_compared) == Check(False, {"kinds": {}}, [])


def test_confounds(results, study) -> None:
    check = audit.confounds(results.contrasts)
    assert check.objection is True and check.numbers == {"clean": 12, "total": 36}
    assert check.details[0] == ("architecture", 12, {"objective": 6})  # 6 are from scratch
    sizes = next(names for axis, _, names in check.details if axis == "size")
    assert "trained parameters" not in sizes  # implied by size
    clean = study(some("encoder_scientific", "encoder_deep_learning"))
    check = audit.confounds(clean.contrasts)
    assert check.objection is False and check.numbers == {"clean": 2, "total": 2}


def test_baselines(results, five_seeds) -> None:
    """Unbeaten baselines are an objection, and so is a study without baselines."""
    check = audit.baselines(results.best_runs[None], results.scores.baselines)
    assert check.objection is True and check.numbers == {"beaten": 0, "places": 3}  # one seed
    best_runs = {
        place: best
        for place, best in five_seeds.best_runs[None].items()
        if best.standing is Standing.LEADS
    }
    assert best_runs and audit.baselines(best_runs, ["majority"]).objection is False
    assert audit.baselines(best_runs, []).objection is True
