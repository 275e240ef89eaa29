"""The store of trials: what is there is not computed again, and nothing else is trusted."""

import csv
import errno
import gzip
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from stages import finetune, pretrain
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.code import hashes
from stages.core.params import Params
from stages.matching.budget import plans
from stages.training.device import resolve
from stages.trials import store
from stages.trials.outcome import Outcome, TrialKey
from stages.trials.runner import TrialRunner
from stages.trials.setup import TrialSetup
from tests.small_study import SCRATCH, write_study
from tests.smoke import alone

TASK = "section"
STORE, RESULT = Path(".scratch/trials"), Path("data/finetuned") / TASK / SCRATCH
EXAMPLES = Path("data/tasks") / TASK / "examples"
Ran = Callable[[Params], list[TrialKey]]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    monkeypatch.chdir(tmp_path)
    params = write_study(tmp_path, lr=1e-2)
    pretrain.main(params, SCRATCH)
    return tuned(params, label_budgets=[16], seeds=[1, 2], keep_weights="first_seed")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs the stage; which trials were computed."""
    computed: list[TrialKey] = []
    run = TrialRunner.run

    def counted(self: TrialRunner, key: TrialKey, *others: Any) -> Outcome:
        computed.append(key)
        return run(self, key, *others)

    monkeypatch.setattr(TrialRunner, "run", counted)

    def stage(params: Params) -> list[TrialKey]:
        computed.clear()
        finetune.main(alone(params, SCRATCH), TASK)
        return sorted(computed, key=str)

    return stage


def trials_stored() -> list[Path]:
    return [folder for folder in STORE.iterdir() if store.ADDRESS.fullmatch(folder.name)]


def tuned(params: Params, **settings: Any) -> Params:
    return params.model_copy(update={"finetune": params.finetune.model_copy(update=settings)})


def with_lr(params: Params, lr: float) -> Params:
    full = params.finetune.methods["full"]
    assert full.training
    changed = full.model_copy(update={"training": full.training.model_copy(update={"lr": lr})})
    return tuned(params, methods=params.finetune.methods | {"full": changed})


def results() -> dict[str, bytes]:
    files = [file for file in RESULT.rglob("*") if file.is_file()]
    return {file.relative_to(RESULT).as_posix(): file.read_bytes() for file in files}


@pytest.mark.slow
def test_what_is_new_is_computed_and_nothing_else(params: Params, ran: Ran) -> None:
    full, probe = "full", "linear_probe"

    def keys(*found: tuple[str, int, int]) -> list[TrialKey]:
        return sorted((TrialKey(m, str(n), seed) for m, n, seed in found), key=str)

    assert ran(params) == keys((full, 16, 1), (full, 16, 2), (probe, 16, 1), (probe, 16, 2))
    assert ran(params) == []
    more = tuned(params, seeds=[1, 2, 3])
    assert ran(more) == keys((full, 16, 3), (probe, 16, 3))
    assert ran(tuned(more, label_budgets=[16, 32], seeds=[1])) == keys(
        (full, 32, 1), (probe, 32, 1)
    )
    alone = {full: params.finetune.methods[full]}
    assert ran(tuned(params, methods=alone)) == []  # fewer
    assert {row["method"] for row in csv.DictReader((RESULT / "trials.csv").open())} == {full}
    assert ran(with_lr(params, 2e-2)) == keys((full, 16, 1), (full, 16, 2))
    again = {"again": params.finetune.methods[probe]}
    added = tuned(params, methods=params.finetune.methods | again)
    assert ran(added) == keys(("again", 16, 1), ("again", 16, 2))


@pytest.mark.slow
def test_a_study_from_the_store_has_the_bytes_of_one_that_was_computed_at_once(
    params: Params, ran: Ran
) -> None:
    """The states of a frozen backbone among them, which trials of one study share."""
    budgets = [16, 32]
    ran(tuned(params, label_budgets=budgets))
    at_once = results()
    shutil.rmtree(STORE)
    for seeds in ([2], [1]):
        for budget in reversed(budgets):
            assert len(ran(tuned(params, label_budgets=[budget], seeds=seeds))) == 2
    # What is kept, and how fast it predicts, depends on which seed is the study's first.
    kept = ran(tuned(params, label_budgets=budgets))
    assert kept == []
    assert results() == at_once


@pytest.mark.slow
def test_what_a_trial_depends_on_is_in_its_address(
    params: Params, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = tuned(
        params, seeds=[1], methods={"linear_probe": params.finetune.methods["linear_probe"]}
    )
    assert len(ran(params)) == 1
    run = Path("data/pretrained") / SCRATCH
    edits: dict[str, Callable[[Path], None]] = {
        "train": lambda folder: _swap_labels(folder / "train.jsonl"),
        "validation": lambda folder: _swap_labels(folder / "validation.jsonl"),
        "test inputs": lambda folder: _swap_rows(folder / "test.jsonl"),
        "task": lambda folder: _changed(folder / "task.json", "code", "another"),
        "checkpoint": lambda folder: _changed(run / "run.json", "fingerprint", "another"),
        "tokenizer": lambda folder: _changed(run / "run.json", "tokenizer", "another"),
        "account": lambda folder: _changed(run / "metrics.json", "lineage_tokens", 7),
        "weights": lambda folder: _more_metadata(run / "model.safetensors"),
        "library": lambda folder: monkeypatch.setattr(store, "version", lambda name: "another"),
        "code": lambda folder: monkeypatch.setattr(store, "code_hash", lambda *names: "another"),
    }
    for name, edit in edits.items():
        edit(EXAMPLES)
        assert len(ran(params)) == 1, name
        assert ran(params) == [], name
    assert len(ran(tuned(params, max_tokens=20))) == 1
    double = params.compute.model_copy(update={"threads": 2, "trial_threads": 2})
    assert len(ran(params.model_copy(update={"compute": double}))) == 1
    assert len(ran(tuned(params, seeds=[2]))) == 1
    # The labels of the test are no input of a trial.
    write_jsonl(Path("data/tasks") / TASK / "test_labels.jsonl", [{"id": "row 80", "label": "x"}])
    assert ran(params) == []


def _swap_labels(path: Path) -> None:
    rows = read_jsonl(path)
    rows[0]["label"] = "calm" if rows[0]["label"] == "loud" else "loud"
    write_jsonl(path, rows)


def _swap_rows(path: Path) -> None:
    first, second, *rest = read_jsonl(path)
    write_jsonl(path, [second, first, *rest])


def _changed(path: Path, key: str, value: str | int) -> None:
    write_json(path, read_json(path) | {key: value})


def _more_metadata(path: Path) -> None:
    """Other bytes, the same weights."""
    save_file(load_file(path), path, {"some": "metadata"})


def test_the_code_of_a_trial_is_that_of_its_method_model_and_task(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that of stages which compute no trial."""
    modules: list[tuple[str, ...]] = []
    monkeypatch.setattr(store, "code_hash", lambda *names: modules.append(names) or "hash")
    setup = TrialSetup(SCRATCH, TASK, max_tokens=64)
    addresses = store.Addresses(params, setup, resolve(params.compute, threads=1))
    addresses.of(TrialKey("full", "16", 1))
    (names,) = modules
    files = hashes(*names)
    assert {"methods/full.py", "models/encoder.py", "tasks/classification.py"} <= files.keys()
    assert {"trials/search.py", "training/finetuning.py", "kinds/classification.py"} <= files.keys()
    assert not {"finetune.py", "trials/text_bits.py", "methods/lora.py"} & files.keys()


@pytest.mark.parametrize("from_scratch", [True, False])
def test_initial_weights_to_try_are_part_of_addresses_from_scratch_alone(
    params: Params, monkeypatch: pytest.MonkeyPatch, from_scratch: bool
) -> None:
    monkeypatch.setattr(TrialSetup, "from_scratch", from_scratch)
    setup = TrialSetup(SCRATCH, TASK, max_tokens=64)
    found = [
        store.Addresses(changed, setup, resolve(params.compute, threads=1)).of(
            TrialKey("full", "16", 1)
        )
        for changed in (params, tuned(params, initial_weights=["as_pretrained", "usual"]))
    ]
    assert (found[0] != found[1]) == from_scratch


def damage() -> dict[str, Callable[[Path], object]]:
    def truncated(file: Path) -> None:
        file.write_bytes(file.read_bytes()[:-20])

    def foreign(entry: Path) -> None:
        """Whole, and of another version of this code."""
        with gzip.open(entry / store.OUTCOME, "wt") as file:
            file.write('{"trial": {"run": "another"}}')
        write_json(entry / store.CONTENTS, {store.OUTCOME: store.sha256(entry / store.OUTCOME)})

    return {
        "records cut": lambda entry: truncated(entry / store.OUTCOME),
        "contents cut": lambda entry: truncated(entry / store.CONTENTS),
        "records gone": lambda entry: (entry / store.OUTCOME).unlink(),
        "weights cut": lambda entry: truncated(next(entry.glob("*.safetensors"))),
        "weights gone": lambda entry: next(entry.glob("*.safetensors")).unlink(),
        "empty": lambda entry: [file.unlink() for file in entry.iterdir()],
        "foreign": foreign,
    }


@pytest.mark.slow
def test_what_is_damaged_or_foreign_is_computed_again(params: Params, ran: Ran) -> None:
    params = tuned(
        params, seeds=[1], methods={"linear_probe": params.finetune.methods["linear_probe"]}
    )
    ran(params)
    before = results()
    for name, break_it in damage().items():
        (entry,) = trials_stored()
        break_it(entry)
        assert len(ran(params)) == 1, name
        assert results() == before and ran(params) == [], name


@pytest.mark.slow
def test_weights_that_are_asked_for_now_are_computed(params: Params, ran: Ran) -> None:
    params = tuned(
        params, seeds=[1], methods={"linear_probe": params.finetune.methods["linear_probe"]}
    )
    ran(tuned(params, keep_weights="none"))
    assert not [*RESULT.glob("weights/*")]
    assert len(ran(params)) == 1 and len([*RESULT.glob("weights/*")]) == 1
    assert ran(tuned(params, keep_weights="none")) == []
    assert not [*RESULT.glob("weights/*")]


@pytest.mark.slow
def test_a_killed_trial_leaves_no_entry_and_the_others_are_kept(
    params: Params, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = tuned(params, methods={"linear_probe": params.finetune.methods["linear_probe"]})
    run = TrialRunner.run

    def killed(self: TrialRunner, key: TrialKey, *others: Any) -> Outcome:
        if key.finetune_seed == 2:
            raise KeyboardInterrupt
        return run(self, key, *others)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrialRunner, "run", killed)
        finetune.main(alone(params, SCRATCH), TASK)
    assert len(trials_stored()) == 1
    assert [key.finetune_seed for key in ran(params)] == [2]


@pytest.mark.slow
def test_a_store_may_be_shared(
    params: Params, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = tuned(
        params, seeds=[1], methods={"linear_probe": params.finetune.methods["linear_probe"]}
    )
    monkeypatch.setenv("TRIALS_STORE", str(tmp_path / "shared"))
    assert len(ran(params)) == 1 and not STORE.exists()
    assert ran(params) == []
    monkeypatch.delenv("TRIALS_STORE")
    assert len(ran(params)) == 1


@pytest.mark.slow
def test_a_run_that_fails_costs_its_own_trials_and_is_named(
    params: Params, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = {"linear_probe": params.finetune.methods["linear_probe"]}
    encoder = params.pretrain[SCRATCH]
    decoder = encoder.model_copy(update={"model": encoder.model | {"name": "decoder"}})
    # The run that fails is the first.
    runs = {"decoder": decoder, SCRATCH: encoder}
    params = tuned(params, methods=probe).model_copy(update={"pretrain": runs})
    write_json(Path("data/plans/decoder.json"), asdict(plans(params)["decoder"]))
    pretrain.main(params, "decoder")
    run = TrialRunner.run

    def failing(self: TrialRunner, key: TrialKey, *others: Any) -> Outcome:
        if self.setup.run_key == "decoder":
            raise ValueError("finetune.methods.full.training.lr: training diverged")
        return run(self, key, *others)

    with monkeypatch.context() as patch:
        patch.setattr(TrialRunner, "run", failing)
        with pytest.raises(ValueError, match=f"decoder on {TASK}, linear_probe: finetune.methods"):
            finetune.main(params, TASK)
    assert not RESULT.exists() and len(trials_stored()) == 2
    computed: list[str] = []

    def counted(self: TrialRunner, key: TrialKey, *others: Any) -> Outcome:
        computed.append(self.setup.run_key)
        return run(self, key, *others)

    monkeypatch.setattr(TrialRunner, "run", counted)
    finetune.main(params, TASK)
    assert computed == ["decoder"] * 2 and RESULT.exists()


@pytest.fixture
def shared(params: Params, ran: Ran, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Outcome]:
    """A store of its own, an address and an outcome to write there."""
    ran(tuned(params, seeds=[1], methods=params.finetune.methods))
    (entry, *_) = trials_stored()
    trial = store.load(entry.name)
    assert trial
    monkeypatch.setenv("TRIALS_STORE", "other")
    store.check_writable()
    return "a" * 64, trial.outcome


@pytest.mark.slow
def test_a_second_writer_takes_nothing_from_an_entry(shared: tuple[str, Outcome]) -> None:
    """Of two studies one keeps weights and measures speed, and the other does neither."""
    address, outcome = shared
    slow = replace(outcome, cost=replace(outcome.cost, latency_s=None))
    with store.unfinished() as first, store.unfinished() as second:
        (first / "weights.safetensors").write_bytes(b"weights")
        store.save(address, outcome, first)
        store.save(address, slow, second)
    both = store.load(address, with_weights=True, with_speed=True)
    assert both and both.weights and both.weights.read_bytes() == b"weights"
    assert both.outcome.cost == outcome.cost
    assert [path.name for path in store.root().iterdir()] == [address]


@pytest.mark.slow
def test_many_writers_and_readers_of_one_entry_see_it_whole(shared: tuple[str, Outcome]) -> None:
    address, outcome = shared

    def write(number: int) -> None:
        with store.unfinished() as folder:
            (folder / "weights.safetensors").write_bytes(bytes([number]) * 100_000)
            store.save(address, outcome, folder)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write, number) for number in range(40)]:
            done.result()
    entry = store.load(address, with_weights=True)
    assert entry and entry.weights and len({*entry.weights.read_bytes()}) == 1
    assert [path.name for path in store.root().iterdir()] == [address]


@pytest.mark.slow
def test_an_entry_may_be_read_by_others(shared: tuple[str, Outcome]) -> None:
    address, outcome = shared
    before = os.umask(0o002)
    try:
        with store.unfinished() as folder:
            store.save(address, outcome, folder)
    finally:
        os.umask(before)
    assert (store.root() / address).stat().st_mode & 0o777 == 0o775


def test_a_store_that_cannot_be_written_is_refused_before_anything_is_trained(
    params: Params, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TRIALS_STORE", str(tmp_path / "file"))
    with pytest.raises(ValueError, match="TRIALS_STORE: .*file: .*cannot be written"):
        ran(params)


@pytest.mark.slow
def test_a_full_disk_is_named(shared: tuple[str, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*values: object, **others: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store, "write_json", full)
    with store.unfinished() as folder, pytest.raises(ValueError, match="No space left"):
        store.save(*shared, folder)
    assert not [*store.root().iterdir()]
