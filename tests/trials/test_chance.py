"""The draws of a trial's seeds: the labelled rows and, from scratch, the initial weights."""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from stages import fit_baseline
from stages.core import paths
from stages.core.artifacts import read_jsonl, remove, write_jsonl
from stages.core.keys import RunKey, TrialKey
from stages.core.params import Params
from stages.core.plans import BaselinePlan
from stages.evaluation import records
from stages.tasks._labelled_rows import labelled_rows
from stages.tasks._task import TASKS
from stages.trials import kept, store
from stages.trials.setup import TrialSetup
from tests import warm_python
from tests.small_study import MAX_TOKENS, SCRATCH, fine_tune, pretrain_run, tuned, write_study
from tests.smoke import alone, plans

pytestmark = pytest.mark.slow

BUDGET = 16
TRAIN = Path("data/tasks/section/examples/train.jsonl")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Params]:
    """The folder and the params of a study with pretrained runs."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        params = write_study(folder, lr=1e-2)
        for run in params.runs:
            pretrain_run(params, run)
    return folder, params


@pytest.fixture
def params(trained, monkeypatch) -> Iterator[Params]:
    """The params of the study in the current folder, whose rows are restored afterwards."""
    monkeypatch.chdir(trained[0])
    before = TRAIN.read_bytes()
    yield trained[1]
    TRAIN.write_bytes(before)


def predictions(params: Params, run: str) -> dict[tuple[str, str, int], list[str]]:
    """Runs the trials of a run and returns their predictions, by method, budget and seed."""
    remove(paths.FINETUNED / "section" / run)
    remove(store.root())
    fine_tune(alone(params, run))
    by_trial: dict[tuple[str, str, int], list[str]] = {}
    path = paths.FINETUNED / "section" / run / "predictions.csv.gz"
    for row in records.read(path, records.PredictionRecord):
        key = row.method, row.label_budget, row.finetune_seed
        by_trial.setdefault(key, []).append(row.prediction)
    return by_trial


def weights(run: str, method: str, budget: int | str, seed: int) -> dict[str, torch.Tensor]:
    return load_file(file_of(run, method, budget, seed))


def file_of(run: str, method: str, budget: int | str, seed: int) -> Path:
    return kept.path_of(TrialKey(run, 1, "section", method, str(budget), seed))


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def setup(run: str = SCRATCH) -> TrialSetup:
    return TrialSetup(RunKey(run, 1), "section", max_tokens=MAX_TOKENS)


def initial(seed: int) -> str:
    """Returns the hash of the weights that a trial from scratch starts from."""
    digest = hashlib.sha256()
    for weight in setup().backbone(seed=seed).parameters():
        digest.update(weight.detach().numpy().tobytes())
    return digest.hexdigest()


# Which rows are labelled -------------------------------------------------------------------------


def rows_of(finetune_seed: int, budget: int) -> set[str]:
    kind, rows = TASKS["classification"], read_jsonl(TRAIN)
    seeds = {"pretrain_seed": 1, "finetune_seed": finetune_seed}
    return {row["id"] for row in labelled_rows(rows, budget, kind, **seeds, task="section")}


def test_trials_and_baselines_learn_from_the_labelled_rows_of_their_seeds_alone(params) -> None:
    """Texts that change places among unlabelled rows change nothing; among labelled rows they
    change what is learnt."""
    methods = {"full": params.finetune.methods["full"]}
    settings = {"methods": methods, "label_budgets": [BUDGET], "seeds": [2]}
    params = tuned(params, **settings).model_copy(
        update={"baselines": {"tfidf": {"name": "tfidf"}}}
    )
    rows, chosen = read_jsonl(TRAIN), rows_of(2, BUDGET)
    assert len(chosen) == BUDGET and chosen != {row["id"] for row in rows[:BUDGET]}

    def learnt() -> list[Any]:
        weights = [weights_of(params, run) for run in params.runs]
        plan = plans(params)["fit_baseline", "section"]
        assert isinstance(plan, BaselinePlan)
        fit_baseline.main(plan, "section")
        path = paths.BASELINES / "section" / "predictions.csv.gz"
        return [*weights, [row.prediction for row in records.read(path, records.PredictionRecord)]]

    def rewritten(some: set[str]) -> list[Any]:
        texts = [row["text"] for row in rows if row["id"] in some]
        moved = iter([*texts[1:], texts[0]])
        write_jsonl(TRAIN, [r | {"text": next(moved)} if r["id"] in some else r for r in rows])
        return learnt()

    before = learnt()
    assert rewritten({row["id"] for row in rows} - chosen) == before
    assert all(a != b for a, b in zip(rewritten(chosen), before, strict=True))


def weights_of(params: Params, run: str) -> list[Any]:
    predicted = predictions(params, run)
    return [predicted, [w.tolist() for w in weights(run, "full", BUDGET, 2).values()]]


def test_trials_of_one_group_learn_from_their_own_rows(params) -> None:
    """Probes share states but no labels, so a trial learns the same if it runs alone."""
    methods = {"linear_probe": params.finetune.methods["linear_probe"]}
    together = predictions(
        tuned(params, methods=methods, label_budgets=[BUDGET, 32], seeds=[1, 2]), "public"
    )
    states = {key: weights("public", *key) for key in together}
    alone = predictions(tuned(params, methods=methods, label_budgets=[BUDGET], seeds=[2]), "public")
    key = ("linear_probe", str(BUDGET), 2)
    for name, weight in weights("public", *key).items():
        # Batches of other texts have other padding, and so other last bits.
        assert torch.allclose(weight, states[key][name], atol=1e-3)
    agree = [a == b for a, b in zip(alone[key], together[key], strict=True)]
    assert np.mean(agree) > 0.95
    assert not same(states[key], states["linear_probe", str(BUDGET), 1])


# Initial weights ---------------------------------------------------------------------------------


def test_backbone_from_scratch_is_drawn_from_the_seed(params) -> None:
    drawn = {seed: initial(seed) for seed in range(1, 6)}
    assert len({*drawn.values()}) == 5
    assert in_another_process("initial(3)") == drawn[3]
    one, other = (setup("public").backbone(seed=seed).state_dict() for seed in (1, 2))
    assert same(one, other), "a checkpoint has its weights in every trial"


def test_head_is_drawn_from_both_seeds(params) -> None:
    """Checkpoints of several pretraining seeds do not share the draws of their trials."""
    public = setup("public")

    def head(pretrain_seed: int, finetune_seed: int) -> list[float]:
        public.checkpoint = RunKey("public", pretrain_seed)
        return public.headed(seed=finetune_seed).head.linear.weight.flatten().tolist()

    heads = {seeds: head(*seeds) for seeds in ((1, 1), (1, 2), (2, 1))}
    assert heads[1, 1] == head(1, 1)
    assert len({*map(tuple, heads.values())}) == 3


def test_backbone_from_scratch_has_the_distribution_of_a_run(params) -> None:
    """Only the random stream differs."""
    of_run = setup().outline()
    of_run.load(paths.pretrained(RunKey(SCRATCH, 1)))
    checkpoint = dict(of_run.named_parameters())
    drawn = dict(setup().backbone(seed=1).named_parameters())
    assert drawn.keys() == checkpoint.keys()
    compared = 0
    for name, weight in drawn.items():
        if weight.dim() < 2:  # a bias or a norm, which is constant
            continue
        assert not torch.equal(weight, checkpoint[name])
        assert weight.std().item() == pytest.approx(checkpoint[name].std().item(), rel=0.2)
        compared += 1
    assert compared > 5


def in_another_process(call: str) -> str:
    """Returns what a function of this module returns in a new process, as text."""
    name, one_thread = call.partition("(")[0], "import torch; torch.set_num_threads(1)"
    code = f"{one_thread}; from tests.trials.test_chance import {name}; print({call})"
    return subprocess.run(
        [warm_python.commands() / "python", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_kept_probe_is_refused_where_its_seed_draws_other_weights(params) -> None:
    """Another version of torch may draw other weights. Weights that are stored need no draw."""
    predictions(tuned(params, seeds=[1]), SCRATCH)
    probe, full = (file_of(SCRATCH, name, 64, 1) for name in ("linear_probe", "full"))
    for path in (probe, full):
        kept.setup_of(kept.read(path), path)
    assert kept.read(full).drawn_weights == "" != kept.read(probe).drawn_weights
    elsewhere = replace(kept.read(probe), drawn_weights="of another torch")
    record = json.dumps(elsewhere.__dict__)
    save_file(load_file(probe), probe, metadata={kept.KEY: record})
    with pytest.raises(
        ValueError, match=r"linear_probe-64-1-1\.safetensors: .*this version of torch"
    ):
        kept.setup_of(kept.read(probe), probe)
