"""The draws of a trial's seeds: the labelled rows and, from scratch, the initial weights."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages import fit_baseline
from stages.core import paths
from stages.core.artifacts import read_jsonl, remove, write_jsonl
from stages.core.keys import CheckpointKey, TrialKey
from stages.core.params import Params
from stages.evaluation import records
from stages.tasks._labelled_rows import labelled_rows
from stages.tasks._task import TASKS
from stages.trials import kept, store
from stages.trials.setup import TrialSetup
from tests.small_study import (
    MAX_TOKENS,
    SCRATCH,
    fine_tune,
    pretrain_run,
    run_stage,
    tuned,
    write_study,
)
from tests.smoke import alone

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
        for run in params.models:
            pretrain_run(params, run)
    return folder, params


@pytest.fixture
def params(trained, monkeypatch) -> Iterator[Params]:
    """The params of the study in the current folder, whose rows are restored afterwards."""
    monkeypatch.chdir(trained[0])
    before = TRAIN.read_bytes()
    yield trained[1]
    TRAIN.write_bytes(before)


def predictions(params: Params, run: str) -> list[str]:
    """Runs the trials of a run anew and returns their predictions."""
    remove(paths.FINETUNED / "section" / run)
    remove(store.ROOT)
    fine_tune(alone(params, run))
    path = paths.FINETUNED / "section" / run / "predictions.csv.gz"
    return [row.prediction for row in records.read(path, records.PredictionRecord)]


def file_of(run: str, method: str, budget: int | str, seed: int) -> Path:
    return kept.path_of(TrialKey(run, 1, "section", method, str(budget), seed))


def setup(run: str = SCRATCH) -> TrialSetup:
    return TrialSetup(CheckpointKey(run, 1), "section", max_tokens=MAX_TOKENS)


def test_trials_and_baselines_learn_from_the_labelled_rows_of_their_seeds_alone(params) -> None:
    """Texts that change places among unlabelled rows change nothing; among labelled rows they
    change what is learnt."""
    methods = {"full": params.finetune.methods["full"]}
    settings = {"methods": methods, "label_budgets": [BUDGET], "seeds": [2]}
    params = tuned(params, **settings).model_copy(
        update={"baselines": {"tfidf": {"name": "tfidf"}}}
    )
    rows, kind = read_jsonl(TRAIN), TASKS["classification"]
    seeds = {"pretrain_seed": 1, "finetune_seed": 2}
    chosen = {row["id"] for row in labelled_rows(rows, BUDGET, kind, **seeds, task="section")}
    assert len(chosen) == BUDGET and chosen != {row["id"] for row in rows[:BUDGET]}

    def learnt() -> list[Any]:
        results = list[Any]()
        for run in params.models:
            results.append(predictions(params, run))
            weights = load_file(file_of(run, "full", BUDGET, 2)).values()
            results[-1] += [weight.tolist() for weight in weights]
        run_stage(params, fit_baseline, "section")
        path = paths.BASELINES / "section" / "predictions.csv.gz"
        of_baseline = [row.prediction for row in records.read(path, records.PredictionRecord)]
        return [*results, of_baseline]

    def rewritten(some: set[str]) -> list[Any]:
        texts = [row["text"] for row in rows if row["id"] in some]
        moved = iter([*texts[1:], texts[0]])
        write_jsonl(TRAIN, [r | {"text": next(moved)} if r["id"] in some else r for r in rows])
        return learnt()

    before = learnt()
    assert rewritten({row["id"] for row in rows} - chosen) == before
    assert all(a != b for a, b in zip(rewritten(chosen), before, strict=True))


# Initial weights ---------------------------------------------------------------------------------


def initial(seed: int) -> str:
    """Returns a hash of the weights that a trial from scratch starts from."""
    weights = setup().backbone(seed=seed).parameters()
    return sha256(b"".join(weight.detach().numpy().tobytes() for weight in weights)).hexdigest()


def test_backbone_from_scratch_is_drawn_from_the_seed(params) -> None:
    drawn = {seed: initial(seed) for seed in range(1, 6)}
    assert len({*drawn.values()}) == 5
    assert drawn[3] == initial(3)
    one, other = (setup("public").backbone(seed=seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(one[name], other[name]) for name in one), "those of the checkpoint"


def test_head_is_drawn_from_both_seeds(params) -> None:
    """Checkpoints of several pretraining seeds do not share the draws of their trials."""
    public = setup("public")

    def head(pretrain_seed: int, finetune_seed: int) -> list[float]:
        public.checkpoint = CheckpointKey("public", pretrain_seed)
        return public.headed(seed=finetune_seed).head.linear.weight.flatten().tolist()

    heads = {seeds: head(*seeds) for seeds in ((1, 1), (1, 2), (2, 1))}
    assert heads[1, 1] == head(1, 1)
    assert len({*map(tuple, heads.values())}) == 3
