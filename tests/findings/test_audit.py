"""The audit's questions: each has an objection where there is one, and none elsewhere."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stages.findings.facts import AuditAnswer, AuditQuestion, Mark
from stages.findings.results import Results
from tests.synthetic_study import (
    RUNS,
    drawn,
    public,
    raw_params,
    repeated,
    with_baseline_at,
    with_trials,
)

Q = AuditQuestion


def asked(results: Results, question: AuditQuestion) -> AuditAnswer:
    return next(answer for answer in results.audit if answer.question is question)


def of(*names: str, **finetune: Any) -> Results:
    return drawn(raw_params({name: RUNS[name] for name in names}, **finetune))


def trained(**values: Any) -> Callable[[Results], Results]:
    """Changes all trials trained in epochs."""
    return lambda r: with_trials(r, lambda t: values if t.num_epochs else {})


def read(**values: Any) -> Callable[[Results], Results]:
    """Changes what models read of texts."""
    return lambda r: replace(
        r, inputs={t: [replace(one, **values) for one in some] for t, some in r.inputs.items()}
    )


def repeating(results: Results) -> Results:
    near = {t: replace(n, number=50) for t, n in results.near_duplicates.items()}
    return replace(results, near_duplicates=near)


def overlapping(results: Results) -> Results:
    counts = {"num_test": 1000, "exact": 4, "ngram": 40}
    tasks = {"tasks": dict.fromkeys(results.params.tasks, counts)}
    texts = {text: about | tasks for text, about in results.contamination.items()}
    return replace(results, contamination=texts)


@pytest.mark.parametrize(
    ("question", "change", "values"),
    [
        (Q.CONVERGENCE, trained(still_improving=1), {"unconverged": 12}),
        (Q.RATES, trained(at_edge=1), {"share_at_edge": 0.5}),
        (Q.INPUT, read(rows_cut=50), {"largest_cut": 0.25}),
        (Q.INPUT, read(read_at="first subword, not read"), {"unread": 12}),
        (Q.TEST_ROWS, repeating, {"largest_share": 0.05}),
        (Q.OVERLAP, overlapping, {"largest_share": 0.04}),
        (Q.BASELINES, lambda r: with_baseline_at(r, 0.9), {"beaten": 0, "places": 3}),
    ],
)
def test_audit_objects_to_a_planted_fault(five_seeds, question, change, values) -> None:
    before = with_baseline_at(five_seeds, 0.2)
    answer = asked(change(before), question)
    assert answer.mark is Mark.OBJECTION
    assert {key: answer.values[key] for key in values} == values
    if question is not Q.RATES:  # one rate for unlike models is an objection in itself
        assert asked(before, question).mark is Mark.NONE


def test_a_default_that_all_unlike_models_share_could_decide(results: Results) -> None:
    """Rates chosen for each model are none. Of one architecture and size nothing is unlike."""
    answer = asked(results, Q.SHARED_DEFAULTS)
    assert answer.mark is Mark.OBJECTION
    names = ("learning rate of pretraining", "learning rate of full")
    assert answer.details == (*zip(names, (0.003, 0.001), strict=True),)
    raw = raw_params(RUNS)
    for number, entry in enumerate(raw["models"].values()):
        entry["training"] = {"lr": 0.001 * (1 + number)}
    raw["finetune"]["methods"]["full"]["training"]["lr"] = [0.001, 0.01]
    assert asked(drawn(raw), Q.SHARED_DEFAULTS).mark is Mark.NONE
    alike = of("encoder_mlm", "encoder_scientific")
    assert asked(alike, Q.SHARED_DEFAULTS).mark is Mark.NOT_ASKED


def test_audit_counts_seeds_draws_and_tries(results: Results, five_seeds: Results) -> None:
    """A study of published checkpoints is not asked about pretraining; their text is unknown."""
    assert asked(results, Q.SEEDS).mark is Mark.OBJECTION
    assert asked(five_seeds, Q.SEEDS).values == {"fewest": 5, "most": 5}
    tries = asked(results, Q.TRIES)
    assert tries.mark is Mark.OBJECTION and tries.values == {"fewest": 1, "most": 6}
    assert asked(results, Q.LABELLED_ROWS).mark is Mark.NONE
    few = asked(of("encoder_mlm", label_budgets=["all", 50]), Q.LABELLED_ROWS)
    assert few.mark is Mark.OBJECTION
    assert few.values == {"one_draw": 3, "validation_share": 0.8}
    models = {"bert": public("google-bert/bert"), "gpt2": public("openai/gpt2")}
    published = drawn(raw_params(models))
    assert asked(published, Q.SEEDS).mark is Mark.NOT_ASKED
    overlap = asked(published, Q.OVERLAP)
    assert (overlap.mark, overlap.values["public"]) == (Mark.OBJECTION, 2)


def test_power_is_the_effect_that_is_found_in_four_of_five_studies() -> None:
    """About 2.8 standard errors with many degrees of freedom, more with few."""
    study = drawn(raw_params(repeated(RUNS, 3), seeds=[1]))
    values = asked(study, Q.POWER).values
    halves = [100 * (e.estimate.high or 0) - 100 * e.estimate.value for e in study.effects]
    for size, half in ((values["smallest"], min(halves)), (values["largest"], max(halves))):
        assert isinstance(size, float) and 1.2 * half < size < 1.5 * half


def test_confounds_name_what_else_differs_and_models_without_a_match() -> None:
    answer = asked(of("encoder_mlm", "decoder_causal", "encoder_small"), Q.CONFOUNDS)
    assert answer.mark is Mark.OBJECTION and dict(answer.details)["objective"] == 1
    alone = of("encoder_mlm", "decoder_scratch")
    assert ("not matched", "decoder_scratch") in asked(alone, Q.CONFOUNDS).details
