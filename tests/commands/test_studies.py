"""`new` writes a study and loses none; `repro` takes one and counts its jobs; `heal` mends what a
killed DVC left. tests/scheduling has the runs themselves."""

import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.commands import heal, repro
from stages.commands.new import MAX_LINES
from stages.core import parallel
from stages.core.parallel import cores
from stages.core.study_file import load
from stages.scheduling import schedule
from tests import warm_python
from tests.labelled_files import classified, paced
from tests.smoke import ROOT, with_values

NEW = ("new", "--no-published", "reviews.csv")
LOCK = repro._lock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder; `repro` finds stages to run there, but calls no DVC."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAKELEVEL", raising=False)  # of `make test`
    monkeypatch.setattr("stages.commands.new.measured", paced)
    monkeypatch.setattr(repro, "pending", lambda params: {"resolve": []})
    monkeypatch.setattr(repro, "REPRO", [sys.executable, "-c", "pass"])
    monkeypatch.setattr(repro, "_lock", lambda: None)  # a lock lasts as long as the process
    Path("requirements.lock").write_text("")
    Path("reviews.csv").write_text(classified())


# new -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_new_says_what_it_saw_and_writes_only_over_what_is_kept_elsewhere(run) -> None:
    """That is its own work, a file in studies/ and a committed file."""
    params = Path("params.yaml")
    status, out, _ = run(*NEW)
    assert status == 0 and "study: reviews\n" in params.read_text()
    for part in ("classification: stars", "from review", "text: 'a", "make repro"):
        assert part in out
    assert len(out.partition("The first rows")[0].splitlines()) <= MAX_LINES + 3
    assert re.search(r"on all \d+ labels", " ".join(out.split()))
    assert run(*NEW, "--minutes", "5").status == 0  # the file is as new wrote it
    mine = params.read_text().replace("study: reviews", "study: mine")
    params.write_text(mine)
    ended = run(*NEW)
    assert ended.status == 2 and "--force" in ended.err and params.read_text() == mine
    Path("studies").mkdir()
    Path("studies/mine.yaml").write_text(mine)
    assert run(*NEW).status == 0
    params.write_text(mine + "# edited\n")
    assert run(*NEW, "--force").status == 0
    params.write_text("study: committed\n")
    for command in ("init -q .", "add params.yaml", "-c user.name=a -c user.email=b commit -qm a"):
        subprocess.run(["git", *command.split()], check=True)
    assert run(*NEW).status == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["review.csv"], "review.csv: no such file; did you mean reviews.csv?"),
        (["reviews.csv", "--label", "star"], "no column 'star'; did you mean 'stars'?"),
        (["reviews.csv", "--lable", "stars"], "--lable stars"),
        (["reviews.csv", "--set", "decimals=point"], "did you mean 'decimal'"),
        (["reviews.csv", "--corpus", "nowhere"], "--corpus"),
    ],
)
def test_new_refuses_a_mistake_in_one_line_and_writes_nothing(flags, said, run) -> None:
    ended = run("new", "--no-published", *flags)
    assert ended.status == 2 and ended.err.count("\n") == 1
    assert ended.err.startswith("error: ") and said in ended.err
    assert not Path("params.yaml").exists()


# repro ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "some"], ["--jobs", "some"]),
        (["--jobs", "auto", "--cluster", "slurm"], ["error: --jobs", "cluster"]),
        (["--jobs", str(cores() + 1)], ["error: --jobs", str(cores())]),
        (["--jobs", "1", "--cluster", "slurm"], ["sbatch"]),
        (["--scheduler", "tcp://127.0.0.1:1"], ["tcp://127.0.0.1:1", "dask scheduler"]),
    ],
)
def test_repro_refuses_workers_that_cannot_be_had(arguments, words, run, monkeypatch) -> None:
    with_values(Path.cwd(), {"compute.threads": 1})
    monkeypatch.setattr(schedule, "PATIENCE_S", 1)
    ended = run("repro", *arguments)
    assert ended.status == 2 and all(word in ended.err for word in words)


@pytest.mark.parametrize(
    ("threads", "gpus", "settings", "expected"),
    [
        (1, [], {}, 8),
        (3, [], {}, 2),
        (16, [], {}, 0),  # one call of DVC, whose stages run trials side by side
        (1, ["0", "1"], {}, 2),
        (1, ["0", "1"], {"distributed.devices": 2}, 1),
        (4, ["0", "1"], {"compute.device": "cpu"}, 2),
    ],
)
def test_repro_starts_as_many_jobs_as_the_machine_allows(
    threads, gpus, settings, expected, monkeypatch, run
) -> None:
    with_values(Path.cwd(), {"compute.threads": threads} | settings)
    monkeypatch.setattr(parallel, "cores", lambda: 8)
    monkeypatch.setattr(parallel, "visible_gpus", lambda: gpus)
    monkeypatch.setattr(schedule, "workers", lambda number, *_: sys.exit(100 + number))
    monkeypatch.setattr(repro.os, "execv", lambda *_: sys.exit(100))
    assert run("repro", "--jobs", "auto").status == 100 + expected


@pytest.mark.slow
def test_lock_is_held_by_the_dvc_that_replaces_the_command() -> None:
    dvc = [sys.executable, "-c", "print(flush=True); input()"]
    call = f"from stages.commands import repro; repro._lock(); repro.os.execv({dvc[0]!r}, {dvc})"
    with subprocess.Popen(
        [sys.executable, "-c", call],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as first:
        assert first.stdout and first.stdout.readline()
        with pytest.raises(ValueError, match=rf"^another `make repro` .*`kill {first.pid}`"):
            LOCK()
        first.communicate(b"\n")
    LOCK()


def test_take_replaces_a_study_that_is_kept_elsewhere_and_refuses_mistakes(tmp_path: Path) -> None:
    Path("requirements.lock").unlink()
    Path("requirements.lock").symlink_to(ROOT / "requirements.lock")  # a source
    for name in ("other", "studies"):
        Path(name).mkdir()
    mine = with_values(tmp_path / "other", {"study": "mine"}).rename(tmp_path / "mine.yaml")
    here = with_values(tmp_path, {})
    Path("studies/before.yaml").write_text(here.read_text())
    repro._take(mine)
    assert here.read_text() == mine.read_text() and load(here).study == "mine"
    # params.yaml as this command wrote or found it may be replaced, also once its source is edited.
    mine.write_text(mine.read_text() + "# an edit\n")
    here.write_text(mine.read_text())
    repro._take(mine)
    mine.write_text(mine.read_text() + "# another edit\n")
    repro._take(mine)
    assert here.read_text() == mine.read_text()
    here.write_text(edited := here.read_text() + "# another\n")
    with pytest.raises(ValueError, match=r"^params\.yaml is neither.*keep it"):
        repro._take(mine)
    mine.write_text(mine.read_text().replace("causal\n", "casual\n"))
    with pytest.raises(ValueError, match=r"objective\.name: unknown 'casual'"):
        repro._take(mine)
    with pytest.raises(ValueError, match="--study"):
        repro._take(tmp_path / "none.yaml")
    assert here.read_text() == edited


# heal ----------------------------------------------------------------------------------------

STAGES = """\
stages:
  one: {cmd: echo 1 > one, outs: [one]}
  two: {cmd: cat one one > two, deps: [one], outs: [two]}
"""


def dvc(*arguments: str) -> subprocess.CompletedProcess[str]:
    # No analytics and no settings of this machine.
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "HOME": str(Path.cwd())}
    command = [warm_python.commands() / "dvc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


ENTRY = """  {0}:
    cmd: cat {0}
    deps:
    - path: in
      hash: md5
      md5: b026324c6904b2a9cb4b88d6d61c81d1
      size: 2
"""


def test_heal_keeps_the_whole_entries_wherever_the_lock_is_cut(monkeypatch) -> None:
    names, lock = ("one", "two", "three"), Path("dvc.lock")
    text = "schema: '2.0'\nstages:\n" + "".join(map(ENTRY.format, names))
    whole = YAML(typ="safe").load(text)["stages"]
    monkeypatch.setattr(heal, "running_dvc", lambda: None)  # it looks at every process
    for end in range(len(text)):
        lock.write_text(text[:end])
        heal.heal()
        healed = YAML(typ="safe").load(lock.read_text()).get("stages", {})
        for name, later in itertools.pairwise(names):
            if f"\n  {later}:" in text[:end]:
                assert healed[name] == whole[name], end
    lock.write_text(text)
    heal.heal()
    assert lock.read_text() == text


@pytest.mark.slow
def test_heal_lets_dvc_go_on_and_compute_nothing_again() -> None:
    """It removes empty folders of the run cache: DVC makes a folder before it writes the record."""
    assert dvc("init", "--no-scm").returncode == 0
    Path("dvc.yaml").write_text(STAGES)
    assert dvc("repro").returncode == 0
    text = (lock := Path("dvc.lock")).read_text()
    lock.write_text(text[: text.rindex("path:") + 5])
    heal.RWLOCK.write_text('{"read": {"one')
    assert dvc("repro").returncode != 0
    heal.heal()
    again = dvc("repro")
    assert again.returncode == 0 and "is cached" in again.stdout and lock.read_text() == text
    assert dvc("cache", "dir", "--local", "elsewhere").returncode == 0
    assert dvc("repro", "--force").returncode == 0
    for record in Path("elsewhere/runs").glob("*/*/*"):
        record.unlink()
    Path("one").unlink()
    lock.unlink()
    assert dvc("repro").returncode != 0
    heal.heal()
    assert dvc("repro").returncode == 0


@pytest.mark.slow
def test_heal_changes_nothing_while_another_dvc_runs() -> None:
    """A later argument "dvc" does not make a process a DVC: the first words do."""
    lock, half = Path("dvc.lock"), "schema: '2.0'\nsta"
    lock.write_text(half)
    commands = [sys.executable, "-c", "input()", "dvc"], ["bash", "-c", "exec -a dvc sleep 60"]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands]
    try:
        # During exec its command line is empty.
        while not Path(f"/proc/{running[1].pid}/cmdline").read_text().startswith("dvc"):
            time.sleep(0.01)
        heal.heal()
        assert lock.read_text() == half and heal.running_dvc() == running[1].pid
        running[1].kill()
        running[1].wait()
        heal.heal()
        assert lock.read_text() != half
    finally:
        for process in running:
            process.kill()
            process.wait()
