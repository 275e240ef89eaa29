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
from rich.console import Console
from ruamel.yaml import YAML

from stages.commands.heal import heal
from stages.core.artifacts import remove
from stages.core.paths import SCRATCH
from stages.scheduling import pool
from stages.scheduling.progress import Progress
from stages.scheduling.schedule import LOCK, complete, ordered_lock, run_units
from stages.scheduling.worker import Status, Unit, in_fork
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
    monkeypatch.chdir(folder_of(cluster))
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
            client = stack.enter_context(pool.local(2))
        yield client


@pytest.fixture
def cold_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(tmp_path)
    with pool.local(2) as client:
        yield client


def folder_of(client: Client) -> Path:
    (folder,) = {*client.run(os.getcwd).values()}
    return Path(folder)


class Recorded(Progress):
    """Records which units have started."""

    def __init__(self, units: list[Unit]) -> None:
        super().__init__(units, Console())
        self.names = list[str]()

    def started(self, unit: str) -> None:
        super().started(unit)
        self.names.append(unit)


def workers() -> list[psutil.Process]:
    """Returns the processes that run units."""
    children = psutil.Process().children()
    return [process for process in children if "spawn_main" in " ".join(process.cmdline())]


def sleepers(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    sleeping = []
    for process in processes:
        with contextlib.suppress(psutil.Error):  # a process that has just ended has no command
            if "sleep(61.5)" in " ".join(process.cmdline()[-1:]):
                sleeping.append(process)
    return sleeping


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def test_run_units_has_the_results_and_the_lock_of_one_dvc_repro(
    client: Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here, other = Path.cwd(), tmp_path_factory.mktemp("one")
    graph = write_graph(here)
    write_graph(other)
    dvc("repro", "--quiet", folder=other)
    order = [*YAML(typ="safe").load(other / LOCK)["stages"]]
    with ordered_lock(order):
        results = run_units(client, graph, progress := Recorded(graph))
    assert results.keys() == NEEDS.keys() == {*progress.names}
    assert {result.status for result in results.values()} == {Status.DONE}
    assert contents(here) == contents(other)


def test_complete_leaves_out_only_what_needs_a_failed_unit(client: Client) -> None:
    graph = write_graph(Path.cwd(), {"ab": "echo no such luck >&2; exit 3"})
    with pytest.raises(ValueError) as error:
        complete(client, graph, lambda: graph, mend=heal)
    assert "1 failed: ab; 2 that need them were left out" in str(error.value)
    assert contents(Path.cwd()).keys() == {*NEEDS, "dvc.lock"} - {"ab", "abc", "all"}
    (failed,) = [unit for unit in graph if unit.name == "ab"]
    assert "no such luck" in failed.end_of_log()


def test_run_units_runs_stages_side_by_side(client: Client) -> None:
    look = "test -e {1}.here && exec touch {0}; sleep 0.1"
    meet = f"touch {{0}}.here; for i in $(seq 600); do {look}; done"
    commands: dict[str, str] = {"a": meet.format("a", "b"), "b": meet.format("b", "a")}
    graph = write_graph(Path.cwd(), commands)
    results = run_units(client, graph, Recorded(graph))
    assert {result.status for result in results.values()} == {Status.DONE}


def test_in_fork_starts_processes_of_workers_which_are_daemons(client: Client) -> None:
    assert client.submit(in_fork, sorted, "cab").result() == ["a", "b", "c"]


def test_complete_tries_a_killed_unit_again(client: Client) -> None:
    once = "test -e b.tried && exec touch b; touch b.tried; kill -9 $$"
    graph = write_graph(Path.cwd(), {"b": once})
    complete(client, graph, iter([graph]).__next__, mend=heal)
    assert contents(Path.cwd()).keys() == {*NEEDS, "dvc.lock"}


def test_complete_gives_up_a_unit_that_is_killed_again_and_again(client: Client) -> None:
    graph = write_graph(Path.cwd(), {"a": "kill -9 $$"})
    with pytest.raises(ValueError, match="killed.* a$"):
        complete(client, graph, lambda: graph, mend=heal)


def test_complete_goes_on_after_a_worker_dies(cold_client: Client) -> None:
    # The command dies with DVC, as a stage does.
    script = f"{DIE_WITH_PARENT}; import time; open('c.began', 'w'); time.sleep(61.5)"
    wait = f'test -e c.began && exec touch c; exec {sys.executable} -c "{script}"'
    graph = write_graph(Path.cwd(), {"c": wait})

    def kill() -> bool:
        for worker in workers() if Path("c.began").exists() else ():
            if sleepers(worker.children(recursive=True)):
                worker.kill()
                return True
        return False

    with ThreadPoolExecutor() as threads:
        killed = threads.submit(eventually, kill)
        # The next worker may meet the DVC lock of the killed one; the unit is then tried again.
        complete(cold_client, graph, lambda: graph, mend=heal)
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
    others, seen, is_over = len(workers()), set[int](), Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            seen.update(worker.pid for worker in workers())

    with ThreadPoolExecutor() as threads:
        threads.submit(watch)
        with pytest.raises(KeyboardInterrupt), pool.local(1) as client:
            waiting = client.submit(time.sleep, 60)
            assert eventually(lambda: any(client.processing().values())), waiting
            began = time.monotonic()
            raise KeyboardInterrupt
        took = time.monotonic() - began
        is_over.set()
    assert took < 4
    assert eventually(lambda: len(workers()) == others)
    assert len(seen) == others + 1
