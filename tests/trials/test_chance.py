"""What the seeds of a trial vary: the labelled rows and, from scratch, the initial weights."""

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

from stages import finetune, fit_baseline, pretrain
from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, remove, write_json, write_jsonl
from stages.core.params import Params
from stages.evaluation import records
from stages.kinds._kind import KINDS, labelled_rows
from stages.trials import kept, store
from stages.trials.setup import TrialSetup
from tests import warm_python
from tests.small_study import MAX_TOKENS, SCRATCH, write_study
from tests.smoke import alone

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BUDGET = 16
TRAIN = Path("data/tasks/section/examples/train.jsonl")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Params]:
    """The folder of a study whose runs are there, and its params."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        params = write_study(folder, lr=1e-2)
        for run in params.pretrain:
            pretrain.main(params, run)
        write_json(paths.SEEDS, {"pretrain_seeds": params.pretrain_seeds})
    return folder, params


@pytest.fixture
def params(trained, monkeypatch) -> Iterator[Params]:
    """Its params; the folder is the current one, and its rows are as they were afterwards."""
    monkeypatch.chdir(trained[0])
    before = TRAIN.read_bytes()
    yield trained[1]
    TRAIN.write_bytes(before)


def tuned(params: Params, **settings: Any) -> Params:
    return params.model_copy(update={"finetune": params.finetune.model_copy(update=settings)})


def predictions(params: Params, run: str) -> dict[tuple[str, str, int], list[str]]:
    """What each trial of the task predicts, and the weights that it keeps."""
    remove(paths.FINETUNED / "section" / run)
    remove(store.root())
    finetune.main(alone(params, run), "section")
    found: dict[tuple[str, str, int], list[str]] = {}
    path = paths.FINETUNED / "section" / run / "predictions.csv.gz"
    for row in records.read(path, records.PredictionRecord):
        key = row.method, row.label_budget, row.finetune_seed
        found.setdefault(key, []).append(row.prediction)
    return found


def weights(run: str, method: str, budget: int | str, seed: int) -> dict[str, torch.Tensor]:
    return load_file(file_of(run, method, budget, seed))


def file_of(run: str, method: str, budget: int | str, seed: int) -> Path:
    return paths.FINETUNED / "section" / run / "weights" / f"{method}-{budget}-{seed}.safetensors"


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def setup() -> TrialSetup:
    return TrialSetup(SCRATCH, "section", max_tokens=MAX_TOKENS)


def initial(seed: int) -> str:
    """The hash of the weights that a trial from scratch starts from."""
    digest = hashlib.sha256()
    for weight in setup().backbone(seed=seed).parameters():
        digest.update(weight.detach().numpy().tobytes())
    return digest.hexdigest()


# Which rows are labelled -------------------------------------------------------------------------


def rows_of(finetune_seed: int, budget: int) -> set[str]:
    kind, rows = KINDS["classification"], read_jsonl(TRAIN)
    seeds = {"pretrain_seed": 1, "finetune_seed": finetune_seed}
    return {row["id"] for row in labelled_rows(rows, budget, kind, **seeds, task="section")}


def test_runs_of_one_seed_and_baselines_learn_from_the_same_rows_and_no_others(params) -> None:
    """Texts that change places among the other rows change nothing; among these they change what
    is learnt."""
    methods = {"full": params.finetune.methods["full"]}
    settings = {"methods": methods, "label_budgets": [BUDGET], "seeds": [2]}
    params = tuned(params, **settings).model_copy(
        update={"baselines": {"tfidf": {"name": "tfidf"}}}
    )
    rows, chosen = read_jsonl(TRAIN), rows_of(2, BUDGET)
    assert len(chosen) == BUDGET and chosen != {row["id"] for row in rows[:BUDGET]}

    def learnt() -> list[Any]:
        found = [weights_of(params, run) for run in params.pretrain]
        fit_baseline.main(params, "section")
        path = paths.BASELINES / "section" / "predictions.csv.gz"
        return [*found, [row.prediction for row in records.read(path, records.PredictionRecord)]]

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
    """A probe's states are those of all trials, its labels are not: alone it is the same trial."""
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


def test_each_seed_draws_its_own_weights_from_scratch_and_again_the_same(params) -> None:
    drawn = {seed: initial(seed) for seed in range(1, 6)}
    assert len({*drawn.values()}) == 5
    assert in_another_process("initial(3)") == drawn[3]
    public = TrialSetup("public", "section", max_tokens=MAX_TOKENS)
    one, other = (public.backbone(seed=seed).state_dict() for seed in (1, 2))
    assert same(one, other), "a checkpoint has its weights in every trial"


def test_a_head_is_drawn_from_both_seeds(params) -> None:
    """Checkpoints of several pretraining seeds do not share the draws of their trials."""
    public = TrialSetup("public", "section", max_tokens=MAX_TOKENS)

    def head(pretrain_seed: int, finetune_seed: int) -> list[float]:
        public.run_record["settings"]["seed"] = pretrain_seed
        return public.headed(seed=finetune_seed).head.linear.weight.flatten().tolist()

    found = {seeds: head(*seeds) for seeds in ((1, 1), (1, 2), (2, 1))}
    assert found[1, 1] == head(1, 1)
    assert len({*map(tuple, found.values())}) == 3


def test_they_are_drawn_as_those_of_a_run_are(params) -> None:
    """The same distribution: only the stream is another one."""
    checkpoint = load_file(paths.PRETRAINED / SCRATCH / "model.safetensors")
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


def test_from_scratch_no_trial_knows_another(params) -> None:
    """Byte for byte: a probe looks up no state of another seed's backbone."""
    params = tuned(params, label_budgets=[BUDGET, 32])
    together = predictions(params, SCRATCH)
    files = {key: weights(SCRATCH, *key) for key in together}
    alone = predictions(tuned(params, seeds=[2]), SCRATCH)
    assert len(alone) == 4 and all(alone[key] == together[key] for key in alone)
    assert all(same(weights(SCRATCH, *key), files[key]) for key in alone)


def test_a_kept_probe_from_scratch_is_its_seeds_and_predicts_what_it_predicted(params) -> None:
    """The scores of the last bit too, in a new process."""
    predicted = predictions(tuned(params, seeds=[1, 2]), SCRATCH)
    assert in_another_process("said()") == said()
    for seed, (labels, _) in json.loads(said()).items():
        assert labels == predicted["linear_probe", "64", int(seed)]


def in_another_process(call: str) -> str:
    """What a function of this module gives there."""
    name, one_thread = call.partition("(")[0], "import torch; torch.set_num_threads(1)"
    code = f"{one_thread}; from tests.trials.test_chance import {name}; print({call})"
    return subprocess.run(
        [warm_python.commands() / "python", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def said() -> str:
    """What kept probes say of the test inputs: labels and scores, by seed."""
    from stages.core.params import Compute
    from stages.training.device import resolve
    from stages.trials.prediction import predict

    compute = Compute(device="cpu", precision="float32", compile=False, threads=1, trial_threads=1)
    device, found = resolve(compute, threads=1), {}
    rows = read_jsonl(TRAIN.with_name("test.jsonl"))
    for seed in (1, 2):
        path = file_of(SCRATCH, "linear_probe", 64, seed)
        trial = kept.read(path)
        opened = kept.setup_of(trial, path)
        model, by = kept.rebuilt(trial, opened, path), kept.predictor(trial, opened)
        each = predict(by, model, rows, by.encode(rows), device)
        found[seed] = [e.prediction for e in each], [e.scores for e in each]
    return json.dumps(found)


def test_a_kept_probe_is_refused_where_its_seed_draws_other_weights(params) -> None:
    """As with another version of torch; what is stored whole needs no draw."""
    predictions(tuned(params, seeds=[1]), SCRATCH)
    probe, full = (file_of(SCRATCH, name, 64, 1) for name in ("linear_probe", "full"))
    for path in (probe, full):
        kept.setup_of(kept.read(path), path)
    assert kept.read(full).drawn_weights == "" != kept.read(probe).drawn_weights
    elsewhere = replace(kept.read(probe), drawn_weights="of another torch")
    record = json.dumps(elsewhere.__dict__)
    save_file(load_file(probe), probe, metadata={kept.KEY: record})
    with pytest.raises(
        ValueError, match=r"linear_probe-64-1\.safetensors: .*this version of torch"
    ):
        kept.setup_of(kept.read(probe), probe)


# What the interval over seeds sees ---------------------------------------------------------------


def test_scores_from_scratch_vary_with_the_draw_of_weights(params) -> None:
    """Planted: a copy of the run that counts as pretrained, whose trials share one draw. All rows
    are labelled, so that nothing else differs between the two."""
    methods = {"linear_probe": params.finetune.methods["linear_probe"]}
    params = tuned(params, methods=methods, label_budgets=["all"], seeds=[*range(1, 9)])
    record = paths.PRETRAINED / SCRATCH / "run.json"
    about = read_json(record)
    rows = read_jsonl(TRAIN.with_name("test.jsonl"))
    gold = ["loud" if row["text"].isupper() else "calm" for row in rows]

    def deviation() -> float:
        right = [
            np.mean([a == b for a, b in zip(predicted, gold, strict=True)])
            for predicted in predictions(params, SCRATCH).values()
        ]
        return float(np.std(right, ddof=1))

    fresh = deviation()
    write_json(record, about | {"objective": "mlm"})
    try:
        shared = deviation()
    finally:
        write_json(record, about)
    assert fresh > 1.5 * shared
