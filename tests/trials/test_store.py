"""The store of trials: stored trials are not computed again, but damaged entries are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages.baselines import _kept
from stages.core import paths
from stages.core.artifacts import CONTENTS, read_json, read_jsonl, remove, write_json, write_jsonl
from stages.core.code import hashes
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Method
from stages.core.plans import FinetunePlan
from stages.evaluation.records import CLASSICAL
from stages.tasks._labelled_rows import labelled_rows
from stages.tasks._task import TASKS
from stages.trials import kept, store
from stages.trials.groups import trial_groups
from stages.trials.runner import Trial, TrialRunner
from stages.trials.setup import TrialSetup
from stages.trials.store import RECORDS, ROOT, addresses_of
from tests.trials.small_trials import (
    CHECKPOINT,
    TRAINING,
    plan_of,
    trials,
    write_checkpoint,
    write_task,
)

TASK = "classification"
FULL: dict[str, Any] = {"full": {"method": {"name": "full"}, "training": TRAINING}}
PROBE: dict[str, Any] = {"linear_probe": {"method": {"name": "linear_probe", "C": [0.1]}}}
KEY = TrialKey(*CHECKPOINT, TASK, "full", "16", 1)
WEIGHTS = Path("data/finetuned", TASK, CHECKPOINT.model, "weights")


def study(methods: dict[str, Any] = FULL | PROBE, **settings: Any) -> FinetunePlan:
    usual: dict[str, Any] = {"label_budgets": [16], "seeds": [1, 2], "keep_weights": "first_seed"}
    return plan_of(methods, **(usual | settings))


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint and a task in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint("bert")
    write_task(TASK)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Callable[[FinetunePlan], list[TrialKey]]:
    """Runs the trials of a plan and returns those that it computed."""
    keys, run = list[TrialKey](), TrialRunner.run

    def counted(self: TrialRunner, key: TrialKey, *others: Any) -> Trial:
        keys.append(key)
        return run(self, key, *others)

    monkeypatch.setattr(TrialRunner, "run", counted)

    def computed_by(plan: FinetunePlan) -> list[TrialKey]:
        keys.clear()
        assert [trial.key for trial in trials(plan, TASK)]
        return sorted(keys)

    return computed_by


@pytest.mark.slow
def test_run_trials_computes_what_is_new_and_nothing_else(computed) -> None:
    for plan, expected in (
        (
            study(),
            [("full", 16, 1), ("full", 16, 2), ("linear_probe", 16, 1), ("linear_probe", 16, 2)],
        ),
        (study(), []),
        (study(seeds=[1, 2, 3]), [("full", 16, 3), ("linear_probe", 16, 3)]),
        (study(label_budgets=[16, 32], seeds=[1]), [("full", 32, 1), ("linear_probe", 32, 1)]),
        (study(FULL), []),
        (study(FULL | {"again": PROBE["linear_probe"]}), [("again", 16, 1), ("again", 16, 2)]),
    ):
        keys = [
            KEY._replace(method=method, label_budget=str(budget), finetune_seed=seed)
            for method, budget, seed in expected
        ]
        assert computed(plan) == sorted(keys)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.slow
def test_run_trials_computes_damaged_entries_and_weights_that_are_now_kept(computed) -> None:
    without, kept = (study(PROBE, seeds=[1], keep_weights=keep) for keep in ("none", "all"))
    for plan, number, num_files in ((without, 1, 0), (kept, 1, 1), (without, 0, 1)):
        assert (len(computed(plan)), len([*WEIGHTS.iterdir()])) == (number, num_files)
    before = trials(kept, TASK)
    for damaged in (CONTENTS, "*.safetensors"):
        (entry,) = [
            e.parent for e in ROOT.glob(f"*/{RECORDS}") if [*e.parent.glob("*.safetensors")]
        ]
        _cut(next(entry.glob(damaged)))
        assert len(computed(kept)) == 1 and computed(kept) == []
        (trial,) = trials(kept, TASK)
        assert (trial.record, trial.predictions) == (before[0].record, before[0].predictions)


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_trial_that_ends_early_leaves_no_entry_and_the_others_are_kept(
    computed, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    run = TrialRunner.run

    def failing(self: TrialRunner, key: TrialKey, folder: Path) -> Trial:
        if key.finetune_seed == 2:
            raise error("fault")
        return run(self, key, folder)

    with monkeypatch.context() as patch, pytest.raises(error, match="fault"):
        patch.setattr(TrialRunner, "run", failing)
        trials(study(FULL), TASK)
    assert len([*ROOT.iterdir()]) == 1
    assert computed(study(FULL)) == [KEY._replace(finetune_seed=2)]


# Addresses ---------------------------------------------------------------------------------------


def address(plan: FinetunePlan, key: TrialKey = KEY) -> str:
    setup = TrialSetup(CHECKPOINT, TASK, max_tokens=plan.finetune.max_tokens)
    return addresses_of(plan.finetune, plan.compute, setup, [[key]])[key]


def _swap_labels(path: Path) -> None:
    rows = read_jsonl(path)
    rows[0]["label"] = "calm" if rows[0]["label"] == "loud" else "loud"
    write_jsonl(path, rows)


def _change(path: Path, key: str, value: str | int) -> None:
    write_json(path, read_json(path) | {key: value})


def test_addresses_cover_all_that_a_trial_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
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
    plan = study()
    double = plan.compute.model_copy(update={"threads": 2, "trial_threads": 2})
    plans = [plan, study(max_tokens=20), plan.model_copy(update={"compute": double})]
    keys = [KEY._replace(finetune_seed=2), KEY._replace(label_budget="32")]
    seen = {*map(address, plans), *(address(plan, key) for key in keys)}
    for edit in edits.values():
        edit()
        seen.add(last := address(plan))
    assert len(seen) == 5 + len(edits)
    # The labels of the test set are no input of a trial.
    write_jsonl(paths.test_labels(TASK), [{"id": "row 80", "label": "x"}])
    assert address(plan) == last


def test_addresses_cover_what_computes_this_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the code of stages and other methods, nor the models that a method adapts, nor the
    training of another model."""

    def with_entry(**settings: Any) -> str:
        entry = Method.model_validate(FULL["full"] | settings)
        plan = study()
        methods = plan.finetune.methods | {"full": entry}
        finetune = plan.finetune.model_copy(update={"methods": methods})
        return address(plan.model_copy(update={"finetune": finetune}))

    own, of_another = ({model: {"lr": 0.5}} for model in (KEY.model, "another"))
    usual = with_entry()
    assert usual == with_entry(only=[KEY.model]) == with_entry(models=of_another)
    assert usual != with_entry(models=own)
    modules: list[tuple[str, ...]] = []
    monkeypatch.setattr(store, "code_hash", lambda *names: modules.append(names) or "hash")
    with_entry()
    files = hashes(*modules[0]).keys()
    assert {"methods/full.py", "models/bert.py", "tasks/classification.py"} <= files
    assert {"trials/validation.py", "training/finetuning.py", "optimizers/adamw.py"} <= files
    assert not {"finetune.py", "trials/estimates.py", "methods/lora.py"} & files
    # An edit of an estimate's code trains no trial again.
    assert {"trials/estimates.py", "evaluation/transferability.py"} <= hashes("finetune").keys()


# Which trials run in one process -----------------------------------------------------------------


def test_trial_groups_share_a_process_where_trials_share_a_frozen_backbone() -> None:
    finetune = study(label_budgets=[200, "all"]).finetune
    keys = [(budget, seed) for budget in ("200", "all") for seed in (1, 2)]
    by_seed = [[(budget, seed) for budget in ("200", "all")] for seed in (1, 2)]
    for from_scratch in (False, True):
        groups = trial_groups(finetune, CHECKPOINT, "tag", FULL | PROBE, from_scratch=from_scratch)
        cells = [[(k.label_budget, k.finetune_seed) for k in group] for group in groups]
        assert cells == [[key] for key in keys] + (by_seed if from_scratch else [keys])


# Chance ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm", "none"])
def test_trials_and_baselines_learn_from_the_labelled_rows_of_their_seeds_alone(
    objective: str,
) -> None:
    """Texts that change places among unlabelled rows change nothing; among labelled rows they
    change what is learnt."""
    remove(paths.pretrained(CHECKPOINT))
    write_checkpoint("bert", objective=objective)
    train, test = (paths.examples(TASK) / f"{split}.jsonl" for split in ("train", "test"))
    rows, seeds = read_jsonl(train), {"pretrain_seed": 1, "finetune_seed": 2}
    labelled = labelled_rows(rows, 16, TASKS[TASK], **seeds, task=TASK)
    chosen = {row["id"] for row in labelled}
    assert len(chosen) == 16 and chosen != {row["id"] for row in rows[:16]}
    longer = {"full": FULL["full"] | {"training": TRAINING | {"num_epochs": 4}}}
    plan = study(longer, seeds=[2], keep_weights="all")

    def learnt() -> list[Any]:
        remove(store.ROOT)
        (trial,) = trials(plan, TASK)
        weights = [w.tolist() for w in load_file(kept.path_of(trial.key)).values()]
        of_trial = [weights, [row.prediction for row in trial.predictions]]
        key = TrialKey("tfidf", 1, TASK, CLASSICAL, "16", 2)
        examples = _kept.Examples.read(paths.examples(TASK))
        baseline = _kept.fit({"name": "tfidf"}, key, examples)
        return [*of_trial, baseline.probabilities(read_jsonl(test))]

    def rewritten(some: set[str]) -> list[Any]:
        texts = [row["text"] for row in rows if row["id"] in some]
        moved = iter([*texts[1:], texts[0]])
        write_jsonl(train, [r | {"text": next(moved)} if r["id"] in some else r for r in rows])
        return learnt()

    before = learnt()
    assert rewritten({row["id"] for row in rows} - chosen) == before
    weights, _, probabilities = rewritten(chosen)
    assert weights != before[0] and probabilities != before[2]


def weights_of(setup: TrialSetup, seed: int) -> list[torch.Tensor]:
    """Returns the weights that a trial starts from."""
    return [weight.detach() for weight in setup.backbone(seed=seed).parameters()]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("objective", ["mlm", "none"])
def test_backbone_is_drawn_from_the_seed_if_it_is_from_scratch(objective: str) -> None:
    remove(paths.pretrained(CHECKPOINT))
    write_checkpoint("bert", objective=objective)
    setup = TrialSetup(CHECKPOINT, TASK, max_tokens=32)
    first, again, second = (weights_of(setup, seed) for seed in (1, 1, 2))
    assert equal(first, again) and equal(first, second) == (objective == "mlm")


def test_head_is_drawn_from_both_seeds() -> None:
    """Checkpoints of several pretraining seeds do not share the draws of their trials."""
    setup = TrialSetup(CHECKPOINT, TASK, max_tokens=32)

    def head(pretrain_seed: int, finetune_seed: int) -> list[float]:
        setup.checkpoint = CheckpointKey(CHECKPOINT.model, pretrain_seed)
        return setup.headed(seed=finetune_seed).head.linear.weight.flatten().tolist()

    heads = [head(*seeds) for seeds in ((1, 1), (1, 2), (2, 1))]
    assert heads[0] == head(1, 1)
    assert len({*map(tuple, heads)}) == 3
