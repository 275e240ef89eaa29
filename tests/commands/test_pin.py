"""The command that pins public checkpoints, with the hub's own client and a local server as the
hub."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest
from huggingface_hub import constants
from ruamel.yaml import YAML

from stages.commands.pin import main
from tests.small_hub import checkpoint, revision_of

COMMITS = {
    ("models", "google-bert/bert-base-uncased", "main"): "a" * 40,
    ("models", "google-bert/bert-base-uncased", "v1"): "b" * 40,
    ("models", "gpt2", "main"): "c" * 40,
    ("datasets", "stanfordnlp/sst2", "main"): "d" * 40,
}
STUDY = """\
# A study.
study: mine
tasks:
  sst:
    source: {name: hub, path: requirements.lock, dataset: stanfordnlp/sst2, text: sentence}
tokenizers:
  own: {algorithm: hub, path: google-bert/bert-base-uncased, revision: v1} # not the latest
pretrain:
  bert:
    model: &bert {name: hub, path: google-bert/bert-base-uncased, revision: main}
    seed: 1   # spaces stay
  gpt:
    model:
      name: hub
      path: gpt2
  again: {model: *bert}
  pinned: {model: {name: hub, path: gpt2, revision: 0123456789012345678901234567890123456789}}
  own: {model: {name: encoder, path: gpt2}}
"""


class Hub(BaseHTTPRequestHandler):
    """Answers requests for the commit of a name, as the hub does."""

    def do_GET(self) -> None:
        kind, _, rest = self.path.removeprefix("/api/").partition("/")
        name, _, branch = rest.partition("/revision/")
        commit = COMMITS.get((kind, name, branch or "main"))
        name_exists = any(name == listed for _, listed, _ in COMMITS)
        self.send_response(200 if commit else 404)
        if not commit:
            self.send_header("X-Error-Code", "RevisionNotFound" if name_exists else "RepoNotFound")
        self.end_headers()
        self.wfile.write(json.dumps({"id": name, "sha": commit}).encode())

    def log_message(self, format: str, *_: object) -> None:
        """Logs nothing."""


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def pin(folder: Path, study: str, hub: str) -> tuple[int, str, str]:
    """Runs the command in this process; returns its exit status, its output and the new study."""
    path = folder / "params.yaml"
    path.write_text(study)
    printed, status = StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(printed):
        patch.setattr(constants, "ENDPOINT", hub)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(sys, "argv", ["pin"])
        patch.chdir(folder)
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, printed.getvalue(), path.read_text()


@pytest.mark.slow
def test_pin_asks_the_hub_that_the_environment_names(tmp_path, hub) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(STUDY)
    subprocess.run(
        [sys.executable, "-m", "stages.commands.pin"],
        cwd=tmp_path,
        env=os.environ | {"HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0"},
        check=True,
    )
    other = tmp_path / "other"
    other.mkdir()
    assert path.read_text() == pin(other, STUDY, hub)[2] != STUDY


def test_pin_writes_commits_for_branches_tags_and_what_is_missing_and_nothing_else(
    tmp_path, hub
) -> None:
    status, output, after = pin(tmp_path, STUDY, hub)
    assert status == 0, output
    expected = STUDY.replace("revision: main}", f"revision: {'a' * 40}}}")
    expected = expected.replace("revision: v1}", f"revision: {'b' * 40}}}")
    expected = expected.replace(
        "      path: gpt2\n", f"      path: gpt2\n      revision: {'c' * 40}\n"
    )
    sst = "dataset: stanfordnlp/sst2"
    assert after == expected.replace(sst, f"{sst}, revision: {'d' * 40}")
    assert len(output.splitlines()) == 4 and "pretrain.gpt.model: gpt2" in output
    status, output, again = pin(tmp_path, after, hub)
    assert (status, again) == (0, after) and "nothing to pin" in output


def test_pin_has_every_fault_at_once_and_writes_nothing(tmp_path, hub) -> None:
    study = STUDY.replace("revision: v1}", "revision: v2}").replace("path: gpt2\n", "path: gpt9\n")
    status, output, after = pin(tmp_path, study, hub)
    assert (status, after) == (2, study) and "Traceback" not in output
    assert "tokenizers.own.revision:" in output and "'v2'" in output
    assert "pretrain.gpt.model.path: gpt9" in output


def test_pin_says_in_one_line_that_the_hub_is_not_reached(tmp_path) -> None:
    status, output, after = pin(tmp_path, STUDY, "http://127.0.0.1:9")
    assert (status, after) == (2, STUDY) and "Traceback" not in output
    assert "pretrain.bert.model.path: the hub was not reached" in output


def test_pin_writes_the_content_of_a_local_folder(tmp_path) -> None:
    folder = checkpoint("bert")
    study = f"pretrain:\n  bert:\n    model: {{name: hub, path: {folder}, revision: none}}\n"
    status, output, after = pin(tmp_path, study, "http://127.0.0.1:9")
    assert status == 0, output
    assert after == study.replace("revision: none", f"revision: {revision_of(folder)}")


@pytest.mark.parametrize("commit", ["1" * 40, "12" + "0" * 20 + "e" + "1" * 17])
@pytest.mark.parametrize(
    "study", ["a: {name: hub, path: gpt2}\n", "a: {name: hub, path: gpt2, revision: main}\n"]
)
def test_pin_writes_a_commit_that_reads_as_a_number_as_text(
    tmp_path, hub, monkeypatch, study, commit
) -> None:
    monkeypatch.setitem(COMMITS, ("models", "gpt2", "main"), commit)
    status, output, after = pin(tmp_path, study, hub)
    assert status == 0, output
    assert YAML(typ="safe").load(after)["a"]["revision"] == commit


def test_pin_refuses_what_is_no_study(tmp_path) -> None:
    status, output, _ = pin(tmp_path, "pretrain: [", "http://127.0.0.1:9")
    assert status == 2 and output.startswith("error: params.yaml") and "Traceback" not in output


@pytest.mark.parametrize(
    "study",
    [
        "a: {name: hub, path: gpt2, revision: &m main}\nb: {name: hub, path: gpt2, revision: *m}\n",
        "a: {name: hub, path: &p gpt2}\nb: {name: hub, path: *p}\n",
        "a: {name: hub, path: gpt2, revision: }\n",
        "a:\n  name: hub\n  path: gpt2\n  revision:\n  b: 1\n",
    ],
)
def test_pin_refuses_what_cannot_be_written_in_its_place(tmp_path, hub, study) -> None:
    status, output, after = pin(tmp_path, study, hub)
    assert "Traceback" not in output
    if status == 0:
        models = YAML(typ="safe").load(after)
        assert all(model["revision"] == "c" * 40 for model in models.values())
    else:
        assert (status, after) == (2, study) and ".revision:" in output


def test_pin_keeps_blanks_comments_and_ends_of_lines(tmp_path, hub) -> None:
    study = "run:\n  model:\n    name: hub\n    path:   gpt2\n    # more\n"
    status, output, after = pin(tmp_path, study, hub)
    assert status == 0, output
    assert after == study.replace("gpt2\n", f"gpt2\n    revision: {'c' * 40}\n")
