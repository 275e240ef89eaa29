"""The order of the entries of dvc.lock."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from stages.scheduling import lock_order

HEAD = "schema: '2.0'\nstages:\n"


def entry(name: str) -> str:
    return f"  {name}:\n    cmd: run\n      {name}\n    outs:\n    - path: data/{name}\n"


def test_of_one_run_puts_new_entries_after_the_old_in_the_order_of_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lock_order.LOCK.write_text(HEAD + "".join(map(entry, ["b", "a"])))
    with lock_order.of_one_run(["x@1", "a", "x@2", "b", "c"]):
        lock_order.LOCK.write_text(HEAD + "".join(map(entry, ["b", "x@2", "a", "x@1", "c"])))
    assert [*lock_order.entries()[1]] == ["b", "a", "x@1", "x@2", "c"]


@given(st.permutations([f"s@{i}" for i in range(6)]), st.permutations([f"s@{i}" for i in range(6)]))
def test_of_one_run_changes_no_entry(
    tmp_path_factory, written: list[str], order: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("lock"))
        with lock_order.of_one_run(order):
            lock_order.LOCK.write_text(HEAD + "".join(map(entry, written)))
            before = YAML(typ="safe").load(lock_order.LOCK)
        assert [*lock_order.entries()[1]] == order
        assert YAML(typ="safe").load(lock_order.LOCK) == before


def test_of_one_run_writes_nothing_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with lock_order.of_one_run(["a"]):
        pass
    assert [*lock_order.entries()[1]] == [] and not lock_order.LOCK.exists()
