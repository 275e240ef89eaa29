"""Stages on several workers: real DVC, a real git repository and real workers on this machine.
tests/test_experiments.py compares their results with those of one worker."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from threading import Event

import psutil
import pytest
from distributed import Client
from ruamel.yaml import YAML

from stages.core.artifacts import remove
from stages.core.paths import SCRATCH
from stages.scheduling.schedule import LOCK, complete, ordered_lock, workers
from stages.scheduling.worker import Unit, in_fork
from tests import warm_python
from tests.project import ROOT

NEEDS = {"a": [], "b": [], "ab": ["a", "b"], "c": [], "abc": ["ab", "c"], "a2": ["a"], "b2": ["b"]}
NEEDS |= {"all": ["abc", "a2", "b2"]}
DIE_WITH_PARENT = (
    f"import sys; sys.path.insert(0, '{ROOT}'); "
    "from stages.core.process import die_with_parent; die_with_parent()"
)
os.environ["DVC_NO_ANALYTICS"] = "1"


def write_graph(commands: Mapping[str, str]) -> list[Unit]:
    """Writes a dvc.yaml into the current folder and returns its units. Each stage writes its name
    and its inputs, unless it has another command."""
    stages = {}
    for name, needs in NEEDS.items():
        command = f"cat /dev/null {' '.join(needs)} > {name}; echo {name} >> {name}"
        command = commands.get(name, command)
        stages[name] = {"cmd": command, "deps": needs, "outs": [name]}
    YAML().dump({"stages": stages}, Path("dvc.yaml"))
    for command in ("git", warm_python.commands() / "dvc"):
        subprocess.run([command, "init", "--quiet"], check=True)
    return [Unit(name, (*needs,), name) for name, needs in NEEDS.items()]


def written() -> set[str]:
    """Returns the stages that have results."""
    return {name for name in NEEDS if Path(name).exists()}


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


LOOK = "test -e {1}.here && exec touch {0}; sleep 0.1"
MEET = f"touch {{0}}.here; for i in $(seq 600); do {LOOK}; done"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commands", "said", "missing"),
    [
        # Side by side: each of two stages waits for the other.
        ({n: MEET.format(n, o) for n, o in ("ab", "ba")}, "", ()),
        # A failure leaves out only what needs it.
        (
            {"ab": "echo no such luck >&2; exit 3"},
            "1 failed: ab; 2 that need them",
            ("ab", "abc", "all"),
        ),
        # What is killed is tried again, but not for ever.
        (
            {"b": "test -e b.tried && exec touch b; touch b.tried; kill -9 $$", "c": "kill -9 $$"},
            "1 failed: c",
            ("c", "abc", "all"),
        ),
    ],
)
def test_complete_goes_on_with_all_that_it_can(client, commands, said, missing, capsys) -> None:
    graph = write_graph(commands)
    with pytest.raises(ValueError, match=said) if said else contextlib.nullcontext():
        complete(client, graph)
    assert written() == {*NEEDS} - {*missing}
    assert ("no such luck" in capsys.readouterr().out) == ("ab" in missing)


@pytest.mark.slow
def test_complete_goes_on_after_a_worker_dies(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The command dies with DVC, as a stage does.
    script = f"{DIE_WITH_PARENT}; import time; open('c.began', 'w'); time.sleep(61.5)"
    wait = f'test -e c.began && exec touch c; exec {sys.executable} -c "{script}"'
    graph = write_graph({"c": wait})

    def kill() -> bool:
        for worker in processes() if Path("c.began").exists() else ():
            if sleepers(worker.children(recursive=True)):
                worker.kill()
                return True
        return False

    with workers(2) as client, ThreadPoolExecutor() as threads:
        killed = threads.submit(eventually, kill)
        # The next worker may meet the DVC lock of the killed one; the unit is then tried again.
        complete(client, graph)
        assert killed.result()
    assert written() == {*NEEDS}
    assert not sleepers(psutil.process_iter())


@pytest.mark.slow
def test_local_cluster_does_not_wait_for_its_units_when_it_is_interrupted(
    tmp_path: Path, monkeypatch
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


@pytest.mark.slow
def test_in_fork_has_the_result_or_the_end_of_its_function(client: Client) -> None:
    """Processes of workers are daemons, which may start others here, too."""
    assert client.submit(in_fork, sorted, "cab").result() == ["a", "b", "c"]
    with pytest.raises(SystemExit):
        in_fork(sys.exit, 2)
    with pytest.raises(BrokenProcessPool):
        in_fork(exec, "import os; os.kill(os.getpid(), 9)")


def test_ordered_lock_puts_new_entries_after_the_old_in_the_order_of_stages(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ordered_lock(["a"]):
        assert not LOCK.exists()
    LOCK.write_text("stages:\n  b: 1\n  a: 2\n")
    with ordered_lock(["x@1", "a", "x@2", "b", "c"]):
        LOCK.write_text("stages:\n  b: 1\n  x@2: 5\n  a: 2\n  x@1: 3\n  z: 4\n")
    assert LOCK.read_text() == "stages:\n  b: 1\n  a: 2\n  x@1: 3\n  x@2: 5\n  z: 4\n"
