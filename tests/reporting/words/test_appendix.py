"""Meanings of the names of a study."""

from dataclasses import replace

from stages.core.params import PackagedCheckpoint, Run
from stages.core.study_file import typed
from stages.findings.groups import Group
from stages.reporting.words.appendix import names
from tests.smoke import smoke_with
from tests.synthetic_study import METRICS, RUNS, further, public, raw_params


def test_names_say_what_each_run_is(study_of) -> None:
    runs = {name: RUNS[name] for name in ("encoder_mlm", "encoder_scratch")}
    results = study_of(raw=raw_params(runs | {"bert": public("bert")}))
    (rows,) = names(results.params, results.groups, results.trials).tables.values()
    meanings = {row["name"]: row["meaning"] for row in rows}
    assert meanings["encoder_mlm"].endswith(" weights, pretrained by mlm on all.")
    assert meanings["encoder_scratch"].endswith(" weights, from scratch.")
    assert meanings["bert"].startswith("Published checkpoint bert: ")


def test_names_say_which_part_of_a_model_tasks_use(results) -> None:
    (group, *_) = results.groups
    used = [replace(trial, used_architecture="cells") for trial in results.trials]
    ending = f" Its cells alone is used on {', '.join(METRICS)}."
    for trials, meaning_ends in ((used, f" on all.{ending}"), ([], " on all.")):
        (rows,) = names(results.params, [group], trials).tables.values()
        assert rows[0]["meaning"].endswith(meaning_ends)


def test_a_published_checkpoint_that_is_pretrained_further_is_named(results) -> None:
    entry = Run(**further("folder/bert", "mlm"))
    group = Group("adapted", entry, "encoder", 22_600_000, "none")
    (rows,) = names(results.params, [group], []).tables.values()
    meaning = "Published checkpoint bert: encoder of 22.6M weights, then pretrained by mlm on all."
    assert rows[0] == {"name": "adapted", "is a": "run", "meaning": meaning}


def test_a_checkpoint_of_a_package_is_named_with_it(results) -> None:
    """A checkpoint of the hub that ends alike is not."""
    package = PackagedCheckpoint(package="gt-bert", version="0.1", sha256="0" * 64, folder="bert")
    params = results.params.model_copy(update={"packaged_checkpoints": {"bert": package}})
    beginnings = []
    for path in ("data/checkpoints/bert", "someone/bert"):
        group = Group("bert", Run(**public(path)), "encoder", 22_600_000, "none")
        (rows,) = names(params, [group], []).tables.values()
        beginnings.append(rows[0]["meaning"].partition(":")[0])
    assert beginnings == [
        "Published checkpoint bert of the package gt-bert 0.1",
        "Published checkpoint bert",
    ]


def test_methods_and_baselines_are_what_their_components_are_unless_the_study_says_more() -> None:
    params = typed(smoke_with({"finetune.methods.full.about": "As usual."}))
    (rows,) = names(params, [], []).tables.values()
    meanings = {row["name"]: row["meaning"] for row in rows}
    assert meanings["full"] == "As usual."
    assert meanings["linear_probe"].startswith("The linear probe: the head alone")
    assert meanings["tfidf"].startswith("A linear classifier over TF-IDF of a text's")
    assert {row["is a"] for row in rows} == {"method", "baseline"}
