"""Options that a study did not try, and the time for each."""

from dataclasses import replace
from pathlib import Path

import pytest

from stages.findings.not_tried import ENCODER, TEXT_TO_TEXT, NotTried, Untried, not_tried
from stages.findings.results import Results
from stages.reporting.words.overview import gaps
from stages.text.published_files import refuse_unpinned
from tests.synthetic_study import RUNS, public, raw_params, repeated

CHECKPOINTS = Path(__file__).parents[2] / "docs/public_checkpoints.md"


def omitted_of(results: Results) -> dict[Untried, NotTried]:
    return {omitted.what: omitted for omitted in not_tried(results)}


def test_not_tried_scales_the_times_of_the_study(results: Results) -> None:
    """One seed, one number of labels, two methods and no published checkpoint."""
    omitted = omitted_of(results)
    assert [*omitted] == [Untried.PUBLISHED, Untried.LABELS, Untried.SEEDS]
    finetuning = sum(cost.wall_time_s / 2 for cost in results.finetuning_costs.values())
    pretraining = 61.5 * len(results.params.checkpoints)
    labels, seeds = omitted[Untried.LABELS], omitted[Untried.SEEDS]
    assert labels.setting == ("100", "200", "400")
    assert labels.seconds == pytest.approx((1 + 2) * finetuning) and labels.is_upper_bound
    assert seeds.setting == ("1", "2", "3")
    assert seeds.seconds == pytest.approx(2 * (pretraining + finetuning))
    assert omitted[Untried.PUBLISHED].seconds is None


def test_not_tried_proposes_no_more_labels_than_there_are(results: Results) -> None:
    few = {
        task: {"num_examples": {"train": 399}, "kind": "tagging", "split_seeds": []}
        for task in results.tasks
    }
    omitted = omitted_of(replace(results, tasks=few))
    assert omitted[Untried.LABELS].setting == ("100", "200", "all")
    finetuning = sum(cost.wall_time_s / 2 for cost in results.finetuning_costs.values())
    assert omitted[Untried.LABELS].seconds == pytest.approx((1 + 399 / 200) * finetuning)


def test_not_tried_counts_all_labels_of_the_largest_task(results: Results) -> None:
    """The time is an upper bound; above 1,000 rows, 400 labels are proposed instead of all."""
    first, *others = results.tasks
    rows = {first: 1000} | dict.fromkeys(others, 400)
    tasks = {
        task: {"num_examples": {"train": rows[task]}, "kind": "tagging", "split_seeds": []}
        for task in results.tasks
    }
    omitted = omitted_of(replace(results, tasks=tasks))
    finetuning = sum(cost.wall_time_s / 2 for cost in results.finetuning_costs.values())
    assert omitted[Untried.LABELS].setting == ("100", "200", "all")
    assert omitted[Untried.LABELS].seconds == pytest.approx((1 + 1000 / 200) * finetuning)
    tasks[first] = {**tasks[first], "num_examples": {"train": 1001}}
    omitted = omitted_of(replace(results, tasks=tasks))
    assert omitted[Untried.LABELS].setting == ("100", "200", "400")


def test_not_tried_proposes_labels_that_every_task_has(results: Results) -> None:
    """Tasks may have different numbers of rows, and a budget may use all rows."""
    few = {
        task: {"num_examples": {"train": 150}, "kind": "tagging", "split_seeds": []}
        for task in results.tasks
    }
    omitted = omitted_of(replace(results, tasks=few))
    assert omitted[Untried.LABELS].setting == ("75", "200")


def test_not_tried_is_empty_for_a_study_that_tried_everything(study_of) -> None:
    runs = {"encoder_mlm": RUNS["encoder_mlm"], "bert": public("bert"), "large": public("bert")}
    raw = raw_params(repeated(runs, 3))
    raw["finetune"] |= {"label_budgets": [100, 200], "seeds": [1]}
    assert not_tried(study_of(raw=raw)) == []


def test_a_single_published_checkpoint_is_named(study_of) -> None:
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"], "bert": public("bert")})
    (gap, *_) = gaps(not_tried(study_of(raw=raw)))
    assert gap.sentence.startswith("One published checkpoint was compared, `bert`; a larger one")


@pytest.mark.parametrize(
    ("kind", "text_to_text", "setting"),
    [
        ("tagging", False, (ENCODER,)),
        ("tagging", True, (TEXT_TO_TEXT,)),
        ("seq2seq", False, (TEXT_TO_TEXT,)),
        ("language_modelling", False, None),
    ],
)
def test_not_tried_proposes_a_published_checkpoint_that_fits_the_answers(
    results: Results, kind: str, text_to_text: bool, setting: tuple[str] | None
) -> None:
    """An encoder writes no text; only a decoder scores it."""
    tasks = {task: {**about, "kind": kind} for task, about in results.tasks.items()}
    finetune, update = results.params.finetune, {"text_to_text": text_to_text}
    methods = {k: m.model_copy(update=update) for k, m in finetune.methods.items()}
    changed = finetune.model_copy(update={"methods": methods})
    params = results.params.model_copy(update={"finetune": changed})
    omitted = omitted_of(replace(results, tasks=tasks, params=params))
    published = omitted.get(Untried.PUBLISHED)
    assert (published and published.setting) == setting
    if published:
        (gap, *_) = gaps([published])
        assert f"`pretrain.runs.{published.setting[0]}`" in gap.sentence
        assert ("studies/default.yaml" in gap.sentence) == (setting == (ENCODER,))
        checkpoint = published.setting[0].partition("path: ")[2].rstrip("}")
        path, _, revision = checkpoint.partition(", revision: ")
        refuse_unpinned(path, revision)
        assert f"`{path}` | `{revision}`" in CHECKPOINTS.read_text(encoding="utf-8")


def test_gaps_name_a_setting_for_everything_that_was_not_tried(study_of) -> None:
    raw = raw_params({"encoder_mlm": RUNS["encoder_mlm"]})
    del raw["finetune"]["methods"]["linear_probe"]
    gaps_by_name = {gap.name: gap for gap in gaps(not_tried(study_of(raw=raw)))}
    assert [*gaps_by_name] == [what.value for what in Untried]
    settings = {
        Untried.PUBLISHED: "`pretrain.runs.",
        Untried.LABELS: "`finetune.label_budgets: [100, 200, 400]`",
        Untried.SEEDS: "`pretrain.seeds: [1, 2, 3]`",
        Untried.METHODS: "`finetune.methods.linear_probe: {}`",
    }
    for what, setting in settings.items():
        assert setting in gaps_by_name[what.value].sentence
    assert [bool(gap.takes) for gap in gaps_by_name.values()] == [False, True, True, False]
