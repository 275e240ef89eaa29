"""The store of trials: stored trials are not computed again, but damaged entries are."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.core import paths
from stages.core.artifacts import CONTENTS, read_json, read_jsonl, write_json, write_jsonl
from stages.core.code import hashes
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Method, Params
from stages.core.study_file import load
from stages.trials import store
from stages.trials.groups import trial_groups
from stages.trials.runner import Trial, TrialRunner
from stages.trials.setup import TrialSetup
from stages.trials.store import RECORDS, addresses_of
from tests.small_study import (
    SCRATCH,
    files_of,
    fine_tune,
    pretrain_run,
    tuned,
    write_inputs,
    write_study,
)
from tests.smoke import SMOKE, alone
from tests.trials.small_trials import TRAINING, plan_of

TASK, FULL, PROBE = "section", "full", "linear_probe"
STORE, RESULT = Path(".scratch/trials"), Path("data/finetuned") / TASK / SCRATCH
CHECKPOINT = CheckpointKey(SCRATCH, 1)
KEY = TrialKey(*CHECKPOINT, TASK, FULL, "16", 1)
Computed = Callable[[Params], list[TrialKey]]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A run from scratch, two methods and two seeds."""
    monkeypatch.chdir(tmp_path)
    params = alone(write_study(tmp_path, lr=1e-2), SCRATCH)
    pretrain_run(params, SCRATCH)
    return tuned(params, label_budgets=[16], seeds=[1, 2], keep_weights="first_seed")


@pytest.fixture
def probe(params: Params) -> Params:
    """The study with one trial."""
    return tuned(params, seeds=[1], methods={PROBE: params.finetune.methods[PROBE]})


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Computed:
    """Runs the stage and returns the trials that it computed."""
    keys, run = list[TrialKey](), TrialRunner.run

    def counted(self: TrialRunner, key: TrialKey, *others: Any) -> Trial:
        keys.append(key)
        return run(self, key, *others)

    monkeypatch.setattr(TrialRunner, "run", counted)

    def stage(params: Params) -> list[TrialKey]:
        keys.clear()
        fine_tune(params)
        return sorted(keys)

    return stage


def trials_stored() -> list[Path]:
    return [file.parent for file in STORE.glob(f"*/{RECORDS}")]


@pytest.mark.slow
def test_run_trials_computes_what_is_new_and_nothing_else(
    params: Params, computed: Computed
) -> None:
    def keys(*trials: tuple[str, int, int]) -> list[TrialKey]:
        return sorted(
            KEY._replace(method=method, label_budget=str(budget), finetune_seed=seed)
            for method, budget, seed in trials
        )

    methods = params.finetune.methods
    assert computed(params) == keys((FULL, 16, 1), (FULL, 16, 2), (PROBE, 16, 1), (PROBE, 16, 2))
    assert computed(params) == []
    more = tuned(params, seeds=[1, 2, 3])
    assert computed(more) == keys((FULL, 16, 3), (PROBE, 16, 3))
    budgets = tuned(more, label_budgets=[16, 32], seeds=[1])
    assert computed(budgets) == keys((FULL, 32, 1), (PROBE, 32, 1))
    assert computed(tuned(params, methods={FULL: methods[FULL]})) == []  # fewer methods
    assert {row["method"] for row in csv.DictReader((RESULT / "trials.csv").open())} == {FULL}
    added = tuned(params, methods=methods | {"again": methods[PROBE]})
    assert computed(added) == keys(("again", 16, 1), ("again", 16, 2))
    run = params.models[SCRATCH].model_copy(update={"seeds": [1, 2]})
    seeds = tuned(params, seeds=[1]).model_copy(update={"models": {SCRATCH: run}})
    write_inputs(seeds)
    pretrain_run(seeds, SCRATCH)
    expected = [key._replace(pretrain_seed=2) for key in keys((FULL, 16, 1), (PROBE, 16, 1))]
    assert computed(seeds) == expected


@pytest.mark.slow
def test_a_study_from_the_store_has_the_bytes_of_one_that_was_computed_at_once(
    params: Params, computed: Computed
) -> None:
    """Holds for probes too, which share states of a frozen backbone within one study."""
    budgets = [16, 32]
    computed(tuned(params, label_budgets=budgets))
    at_once = files_of(RESULT)
    shutil.rmtree(STORE)
    for seeds in ([2], [1]):
        for budget in reversed(budgets):
            assert len(computed(tuned(params, label_budgets=[budget], seeds=seeds))) == 2
    assert computed(tuned(params, label_budgets=budgets)) == []
    assert files_of(RESULT) == at_once


def test_addresses_cover_all_that_a_trial_depends_on(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, examples = paths.pretrained(CHECKPOINT), paths.examples(TASK)
    test = examples / "test.jsonl"
    edits: dict[str, Callable[[], None]] = {
        "train": lambda: _swap_labels(examples / "train.jsonl"),
        "validation": lambda: _swap_labels(examples / "validation.jsonl"),
        "test inputs": lambda: write_jsonl(test, reversed(read_jsonl(test))),
        "task": lambda: _change(examples / "task.json", "code", "another"),
        "checkpoint": lambda: _change(run / "run.json", "fingerprint", "another"),
        "tokenizer": lambda: _change(run / "run.json", "tokenizer", "another"),
        "account": lambda: _change(run / "metrics.json", "lineage_tokens", 7),
        "library": lambda: monkeypatch.setattr(store, "version", lambda name: "another"),
        "code": lambda: monkeypatch.setattr(store, "code_hash", lambda *names: "another"),
    }
    double = params.compute.model_copy(update={"threads": 2, "trial_threads": 2})
    studies = [tuned(params, max_tokens=20), params.model_copy(update={"compute": double})]

    def address(study: Params) -> str:
        setup = TrialSetup(CHECKPOINT, TASK, max_tokens=study.finetune.max_tokens)
        return addresses_of(study.finetune, study.compute, setup, [[KEY]])[KEY]

    seen = {address(study) for study in [params, *studies]}
    for edit in edits.values():
        edit()
        seen.add(last := address(params))
    assert len(seen) == 3 + len(edits)
    # The labels of the test set are no input of a trial.
    write_jsonl(paths.test_labels(TASK), [{"id": "row 80", "label": "x"}])
    assert address(params) == last


def _swap_labels(path: Path) -> None:
    rows = read_jsonl(path)
    rows[0]["label"] = "calm" if rows[0]["label"] == "loud" else "loud"
    write_jsonl(path, rows)


def _change(path: Path, key: str, value: str | int) -> None:
    write_json(path, read_json(path) | {key: value})


def test_addresses_cover_what_computes_this_trial_alone(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the code of stages and other methods, nor the runs that a method adapts, nor the training
    of another run."""

    def address(**settings: Any) -> str:
        entry = Method.model_validate(params.finetune.methods[FULL].model_dump() | settings)
        study = tuned(params, methods=params.finetune.methods | {FULL: entry})
        setup = TrialSetup(CHECKPOINT, TASK, max_tokens=64)
        return addresses_of(study.finetune, params.compute, setup, [[KEY]])[KEY]

    own, of_another = ({run: {"lr": 0.5}} for run in (KEY.model, "another"))
    assert (
        address() == address(only=[KEY.model]) == address(models=of_another) != address(models=own)
    )
    modules: list[tuple[str, ...]] = []
    monkeypatch.setattr(store, "code_hash", lambda *names: modules.append(names) or "hash")
    address()
    files = hashes(*modules[0]).keys()
    assert {"methods/full.py", "models/modernbert.py", "tasks/classification.py"} <= files
    assert {"trials/validation.py", "training/finetuning.py", "tasks/_task.py"} <= files
    assert not {"finetune.py", "trials/estimates.py", "methods/lora.py"} & files


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.slow
def test_run_trials_computes_damaged_entries_again(probe: Params, computed: Computed) -> None:
    computed(probe)
    before = files_of(RESULT)
    for damage in (
        lambda entry: _cut(entry / CONTENTS),
        lambda entry: _cut(next(entry.glob("*.safetensors"))),
    ):
        (entry,) = trials_stored()
        damage(entry)
        assert len(computed(probe)) == 1
        assert files_of(RESULT) == before and computed(probe) == []


@pytest.mark.slow
def test_run_trials_computes_weights_that_are_now_kept(probe: Params, computed: Computed) -> None:
    without = tuned(probe, keep_weights="none")
    for study, trials, kept in ((without, 1, 0), (probe, 1, 1), (without, 0, 0)):
        assert (len(computed(study)), len([*RESULT.glob("weights/*")])) == (trials, kept)


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_trial_that_ends_early_leaves_no_entry_and_the_others_are_kept(
    params: Params, computed: Computed, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    study, run = tuned(params, methods={FULL: params.finetune.methods[FULL]}), TrialRunner.run

    def failing(self: TrialRunner, key: TrialKey, folder: Path) -> Trial:
        if key.finetune_seed == 2:
            raise error("fault")
        return run(self, key, folder)

    with monkeypatch.context() as patch, pytest.raises(error, match="fault"):
        patch.setattr(TrialRunner, "run", failing)
        fine_tune(study)
    assert not RESULT.exists() and len([*STORE.iterdir()]) == 1
    assert [key.finetune_seed for key in computed(study)] == [2]


# Which trials run in one process -----------------------------------------------------------------


def test_trial_groups_share_a_process_where_trials_share_a_frozen_backbone() -> None:
    methods: dict[str, Any] = {"full": {"training": TRAINING}, "linear_probe": {}}
    finetune = plan_of(methods, label_budgets=[200, "all"], seeds=[1, 2]).finetune
    keys = [(budget, seed) for budget in ("200", "all") for seed in (1, 2)]
    by_seed = [[(budget, seed) for budget in ("200", "all")] for seed in (1, 2)]
    for from_scratch in (False, True):
        groups = trial_groups(finetune, CHECKPOINT, "tag", methods, from_scratch=from_scratch)
        cells = [[(k.label_budget, k.finetune_seed) for k in group] for group in groups]
        assert cells == [[key] for key in keys] + (by_seed if from_scratch else [keys])


def test_from_scratch_is_without_objective_parent_and_published_weights() -> None:
    scratch = load(SMOKE).models["encoder_scratch"]
    assert scratch.from_scratch
    for changes in (
        {"parent": "other"},
        {"objective": {"name": "mlm"}},
        {"architecture": {"name": "hub", "path": "p", "revision": "r"}},
    ):
        assert not scratch.model_copy(update=changes).from_scratch
