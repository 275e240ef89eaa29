"""Stages on several workers: real DVC and real workers on this machine."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import psutil
import pytest
from distributed import Client
from ruamel.yaml import YAML

from stages.core.artifacts import remove
from stages.core.paths import SCRATCH
from stages.scheduling.pool import workers
from stages.scheduling.schedule import LOCK, complete, ordered_lock
from stages.scheduling.worker import in_fork
from tests import warm_python
from tests.scheduling.small_graph import NEEDS, contents, dvc, write_graph

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DIE_WITH_PARENT = (
    f"import sys; sys.path.insert(0, '{ROOT}'); "
    "from stages.core.process import die_with_parent; die_with_parent()"
)


@pytest.fixture
def client(cluster: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of two workers in an empty folder."""
    (folder,) = {*cluster.run(os.getcwd).values()}
    monkeypatch.chdir(folder)
    for path in Path().iterdir():
        if path.name != SCRATCH.name:
            remove(path)
    return cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of two workers. Their DVC starts faster, as a fork of a warm process."""
    path = os.pathsep.join([str(warm_python.commands()), os.environ["PATH"]])
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", path)
            patch.chdir(tmp_path_factory.mktemp("cluster"))
            client = stack.enter_context(workers(2))
        yield client


@pytest.fixture
def cold_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(tmp_path)
    with workers(2) as client:
        yield client


def processes() -> list[psutil.Process]:
    """Returns the processes that run units."""
    children = psutil.Process().children()
    return [process for process in children if "spawn_main" in " ".join(process.cmdline())]


def sleepers(candidates: Iterable[psutil.Process]) -> list[psutil.Process]:
    sleeping = []
    for process in candidates:
        with contextlib.suppress(psutil.Error):  # a process that has just ended has no command
            if "sleep(61.5)" in " ".join(process.cmdline()[-1:]):
                sleeping.append(process)
    return sleeping


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def test_complete_has_the_results_and_the_lock_of_one_dvc_repro(
    client: Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here, other = Path.cwd(), tmp_path_factory.mktemp("one")
    graph = write_graph(here)
    write_graph(other)
    dvc("repro", "--quiet", folder=other)
    with ordered_lock([*YAML(typ="safe").load(other / LOCK)["stages"]]):
        complete(client, graph)
    assert contents(here) == contents(other)


def test_complete_leaves_out_only_what_needs_a_failed_unit(client: Client) -> None:
    graph = write_graph(Path.cwd(), {"ab": "echo no such luck >&2; exit 3"})
    with pytest.raises(ValueError, match="1 failed: ab; 2 that need them"):
        complete(client, graph)
    assert contents(Path.cwd()).keys() == {*NEEDS, "dvc.lock"} - {"ab", "abc", "all"}
    (failed,) = [unit for unit in graph if unit.name == "ab"]
    assert "no such luck" in failed.log.read_text()


def test_complete_runs_stages_side_by_side(client: Client) -> None:
    look = "test -e {1}.here && exec touch {0}; sleep 0.1"
    meet = f"touch {{0}}.here; for i in $(seq 600); do {look}; done"
    complete(client, write_graph(Path.cwd(), {n: meet.format(n, o) for n, o in ("ab", "ba")}))
    assert contents(Path.cwd()).keys() == {*NEEDS, "dvc.lock"}


def test_in_fork_starts_processes_of_workers_which_are_daemons(client: Client) -> None:
    assert client.submit(in_fork, sorted, "cab").result() == ["a", "b", "c"]


def test_complete_tries_a_killed_unit_again_but_not_for_ever(client: Client) -> None:
    once = "test -e b.tried && exec touch b; touch b.tried; kill -9 $$"
    graph = write_graph(Path.cwd(), {"b": once, "c": "kill -9 $$"})
    with pytest.raises(ValueError, match="1 failed: c"):
        complete(client, graph)
    assert contents(Path.cwd()).keys() == {*NEEDS, "dvc.lock"} - {"c", "abc", "all"}


def test_complete_goes_on_after_a_worker_dies(cold_client: Client) -> None:
    # The command dies with DVC, as a stage does.
    script = f"{DIE_WITH_PARENT}; import time; open('c.began', 'w'); time.sleep(61.5)"
    wait = f'test -e c.began && exec touch c; exec {sys.executable} -c "{script}"'
    graph = write_graph(Path.cwd(), {"c": wait})

    def kill() -> bool:
        for worker in processes() if Path("c.began").exists() else ():
            if sleepers(worker.children(recursive=True)):
                worker.kill()
                return True
        return False

    with ThreadPoolExecutor() as threads:
        killed = threads.submit(eventually, kill)
        # The next worker may meet the DVC lock of the killed one; the unit is then tried again.
        complete(cold_client, graph)
        assert killed.result()
    assert contents(Path.cwd()).keys() == {*NEEDS, "dvc.lock"}
    assert not sleepers(psutil.process_iter())


def test_ordered_lock_puts_new_entries_after_the_old_in_the_order_of_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ordered_lock(["a"]):
        assert not LOCK.exists()
    LOCK.write_text("stages:\n  b: 1\n  a: 2\n")
    with ordered_lock(["x@1", "a", "x@2", "b", "c"]):
        LOCK.write_text("stages:\n  b: 1\n  x@2: 5\n  a: 2\n  x@1: 3\n  z: 4\n")
    assert LOCK.read_text() == "stages:\n  b: 1\n  a: 2\n  x@1: 3\n  x@2: 5\n  z: 4\n"


def test_local_cluster_does_not_wait_for_its_units_when_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not restart a worker either."""
    monkeypatch.chdir(tmp_path)
    others, seen, is_over = len(processes()), set[int](), Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            seen.update(worker.pid for worker in processes())

    with ThreadPoolExecutor() as threads:
        threads.submit(watch)
        with pytest.raises(KeyboardInterrupt), workers(1) as client:
            waiting = client.submit(time.sleep, 60)
            assert eventually(lambda: any(client.processing().values())), waiting
            began = time.monotonic()
            raise KeyboardInterrupt
        took = time.monotonic() - began
        is_over.set()
    assert took < 4
    assert eventually(lambda: len(processes()) == others)
    assert len(seen) == others + 1
