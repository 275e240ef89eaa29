"""A folder in the hub's layout is read like the hub's cache; missing data is reported quickly."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast
from urllib.parse import urlparse

import datasets
import huggingface_hub.constants
import pytest
from huggingface_hub.utils import close_session

from stages.kinds._kind import KINDS
from stages.sources._source import SOURCES
from stages.sources.hub import Hub

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ON_THE_HUB = {"path": "requirements.lock", "dataset": "own/reviews", "revision": COMMIT}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    Path("requirements.lock").write_text("datasets==1\n")


def source(**settings: Any) -> Hub:
    return cast(Hub, SOURCES.build({"name": "hub", **settings}, where="tasks.own.source"))


def rows(kind: str, **settings: Any) -> list[dict]:
    return [e.row for e in source(**settings).examples(KINDS[kind])]


def write_csv(path: str, *texts: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("text,label\n" + "".join(f"{text},1\n" for text in texts))


def write_card(folder: str, **configs: Any) -> None:
    """Writes a README.md. ``configs`` are the files of configurations, or all of their settings."""
    listed = [
        {"config_name": name, **(config if isinstance(config, dict) else {"data_files": config})}
        for name, config in configs.items()
    ]
    Path(folder, "README.md").write_text(f"---\n{json.dumps({'configs': listed})}\n---\n# Own\n")


@pytest.fixture
def parquet() -> dict[str, str]:
    """Two splits with every kind of column, as ``push_to_hub`` writes them."""
    features = datasets.Features(
        sentence=datasets.Value("string"),
        label=datasets.ClassLabel(names=["negative", "positive"]),
        words=datasets.List(datasets.Value("string")),
        pos=datasets.List(datasets.ClassLabel(names=["DET", "NOUN"])),
        question=datasets.Value("string"),
        answers=datasets.Features(
            text=datasets.List(datasets.Value("string")),
            answer_start=datasets.List(datasets.Value("int32")),
        ),
        translation=datasets.Translation(["en", "de"]),
    )
    row = {
        **{"sentence": "A dog.", "label": 1, "words": ["A", "dog"], "pos": [0, 1]},
        **{"question": "What?", "answers": {"text": ["dog"], "answer_start": [2]}},
        **{"translation": {"en": "A dog.", "de": "Ein Hund."}},
    }
    hidden = row | {"label": -1, "answers": {"text": [], "answer_start": []}}
    Path("own/data").mkdir(parents=True)
    for split, contents in {"train": [row, row | {"label": 0}], "test": [hidden]}.items():
        table = datasets.Dataset.from_list(contents, features=features)
        table.to_parquet(f"own/data/{split}-00000-of-00001.parquet")
    return {"path": "own", "validation": "none", "test": "none"}


def test_labels_have_their_names(parquet: dict) -> None:
    assert rows("classification", text="sentence", **parquet) == [
        {"text": "A dog.", "label": "positive"},
        {"text": "A dog.", "label": "negative"},
    ]
    assert rows("tagging", tags="pos", **parquet)[0] == {
        "words": ["A", "dog"],
        "tags": ["DET", "NOUN"],
    }


def test_questions_and_translations(parquet: dict) -> None:
    question = rows("span_qa", context="sentence", **parquet)[0]
    assert question["answers"] == [{"text": "dog", "answer_start": 2}]
    parquet["test"] = "test"
    every = rows("span_qa", context="sentence", **parquet)
    answered = rows("span_qa", context="sentence", unanswerable="drop", **parquet)
    assert every[-1]["answers"] == [] and answered == every[:-1]
    pairs = rows("seq2seq", text="translation.en", target="translation.de", **parquet)
    assert pairs[0] == {"text": "A dog.", "target": "Ein Hund."}


def test_hidden_labels_are_refused(parquet: dict) -> None:
    message = "own test row 1: label is -1, which is none of the labels negative, positive; -1 says"
    with pytest.raises(ValueError, match=message):
        rows("classification", text="sentence", **parquet | {"test": "test"})
    assert rows("tagging", tags="pos", **parquet | {"test": "test"})  # none of its labels is hidden


def test_splits_are_given_or_drawn() -> None:
    write_csv("own/train.csv", *(f"Film {i}." for i in range(60)))
    write_csv("own/test.csv", "Last.")
    settings = {"path": "own", "validation": "none"}
    examples = list(source(**settings).examples(KINDS["classification"]))
    assert {e.split for e in examples if e.id.startswith("train")} == {"train", "validation"}
    assert [e.id for e in examples if e.split == "test"] == ["test:1"]
    assert len({e.id for e in examples}) == 61
    texts = [d.sentences for d in source(**settings).documents()]
    assert texts == [[e.row["text"]] for e in examples]
    with pytest.raises(ValueError, match="^validation: own: unknown 'dev'; Valid: train, test; no"):
        rows("classification", path="own", validation="dev")


def test_a_configuration_is_of_the_card_or_a_folder() -> None:
    write_csv("own/one/train.csv", "One.")
    write_csv("own/two/train.csv", "Two.")
    settings = {"path": "own", "validation": "none", "test": "none"}
    assert rows("classification", config="two", **settings)[0]["text"] == "Two."
    write_card("own", first="one/*.csv", second=[{"split": "train", "path": "two/train.csv"}])
    assert rows("classification", config="second", **settings)[0]["text"] == "Two."
    with pytest.raises(ValueError, match="config: unknown 'secnd'; did you mean 'second'"):
        rows("classification", config="secnd", **settings)
    with pytest.raises(ValueError, match="config: name one of first, second"):
        rows("classification", **settings)
    write_card("own", first="one/*.csv", default="two/*.csv")
    assert rows("classification", **settings)[0]["text"] == "Two."
    write_card("own", first="gone/*.csv", second="two/*.csv")
    assert rows("classification", config="second", **settings)[0]["text"] == "Two."
    write_card("own", first={"data_dir": "one"}, second={"data_dir": "two"})
    assert rows("classification", config="second", **settings)[0]["text"] == "Two."
    Path("own/two/train.csv").write_text("text;label\nOdd, too.;1\n")
    write_card("own", second={"data_files": "two/*.csv", "sep": ";"})
    assert rows("classification", **settings)[0]["text"] == "Odd, too."


def test_of_a_dataset_on_the_hub_only_the_configurations_files_are_asked_for() -> None:
    card = {"a": {"data_files": [{"split": "train", "path": ["a/0.csv", "a/1.csv"]}]}}
    card |= {"b": {"data_files": "b/*.csv", "default": True}}
    for config, patterns in {"a": ["a/0.csv", "a/1.csv"], "none": ["b/*.csv"]}.items():
        assert source(**ON_THE_HUB, config=config)._patterns(card) == patterns
    assert "*.csv" in source(**ON_THE_HUB, config="a")._patterns(card | {"c": {"data_dir": "c"}})
    assert source(**ON_THE_HUB, config="e")._patterns({}) == ["e/*"]


def test_check_reads_the_first_row_of_each_split() -> None:
    write_csv("own/train.csv", "One.")
    Path("own/test.csv").write_text("text,gold\nx,1\n")
    settings = {"path": "own", "validation": "none"}
    with pytest.raises(ValueError, match="^own test row 1: no column 'label'; there are: text, go"):
        source(**settings).check(KINDS["classification"])
    source(**settings).check(None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": "nowhere"}, "source: path: no such file or folder: nowhere"),
        ({"path": "requirements.lock"}, "path: requirements.lock is no folder; to use a dataset"),
        ({"path": ".", "revision": COMMIT}, "revision: must be none, not '0123"),
        ({"path": ".", "train": "none"}, "train: name the dataset's split"),
        (ON_THE_HUB | {"path": "."}, "path: . is a folder, but the data is own/reviews of the hub"),
        (ON_THE_HUB | {"revision": "main"}, "revision: must be the hash of a commit of own/revi"),
        (ON_THE_HUB | {"dataset": "a/b/c"}, "dataset: cannot be a name on the hub such as"),
    ],
)
def test_settings_that_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        source(**settings)
    assert message in str(error.value)


def test_data_that_cannot_be_read_is_named(capfd) -> None:
    Path("own").mkdir()
    Path("own/train.parquet").write_bytes(b"PAR1 and no more")
    settings = {"path": "own", "validation": "none", "test": "none"}
    with pytest.raises(ValueError, match="^path: own cannot be read: Parquet magic bytes"):
        rows("classification", **settings)
    assert capfd.readouterr() == ("", "")
    Path("own/train.parquet").unlink()
    with pytest.raises(ValueError, match="^path: own cannot be read"):
        rows("classification", **settings)
    Path("own/train.jsonl").write_text('{"text": "One.", "label": 1}\n' * 9 + '{"text": \n')
    with pytest.raises(ValueError, match="^own train cannot be read: JSON parse error: .* row 9"):
        rows("classification", **settings)


# The hub and its cache


def into_cache(tmp_path: Path) -> Path:
    """Writes files as a download leaves them in the hub's cache."""
    snapshot = tmp_path / "cache/datasets--own--reviews/snapshots" / COMMIT
    write_csv(str(snapshot / "all/train.csv"), "One.", "Two.")
    write_card(str(snapshot), default="all/*.csv")
    return snapshot


def test_the_cache_is_used_without_a_network(tmp_path: Path, monkeypatch) -> None:
    into_cache(tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: pytest.fail("network"))
    settings = ON_THE_HUB | {"validation": "none", "test": "none"}
    assert [row["text"] for row in rows("classification", **settings)] == ["One.", "Two."]
    assert source(**settings).versions() == {"own/reviews": COMMIT}


def test_half_a_cache_is_none(tmp_path: Path, monkeypatch) -> None:
    shutil.rmtree(into_cache(tmp_path) / "all")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", refusing_server())
    expect_refusal("refused")


class Served(BaseHTTPRequestHandler):
    """The folder ``own`` as the hub serves a dataset: its commit, its list of files, each file."""

    def do_HEAD(self) -> None:
        self.respond(body=False)

    def do_GET(self) -> None:
        self.respond(body=True)

    def respond(self, *, body: bool) -> None:
        path = urlparse(self.path).path
        files = [p for p in sorted(Path("own").rglob("*")) if p.is_file()]
        names = {file.relative_to("own").as_posix(): file for file in files}
        if path == f"/api/datasets/own/reviews/revision/{COMMIT}":
            content = json.dumps({"id": "own/reviews", "sha": COMMIT}).encode()
        elif path == f"/api/datasets/own/reviews/tree/{COMMIT}":
            listed = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": name}
                for name, file in names.items()
            ]
            content = json.dumps(listed).encode()
        else:
            name = path.removeprefix(f"/datasets/own/reviews/resolve/{COMMIT}/")
            if name not in names:
                return self.send_error(404)
            content = names[name].read_bytes()
        self.server.asked.append(path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", hashlib.sha256(content).hexdigest())
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def texts_in_a_process(endpoint: str) -> list[str]:
    """Returns the texts that a process with an empty cache reads from the hub at this address."""
    splits = {"validation": "none", "test": "none"}
    entry = {"name": "hub", **ON_THE_HUB, "config": "b", **splits}
    program = (
        "from stages.sources._source import SOURCES\nfrom stages.kinds._kind import KINDS\n"
        f"source = SOURCES.build({entry}, where='')\n"
        "examples = source.examples(KINDS['classification'])\n"
        "print(*(e.row['text'] for e in examples), sep='\\n')\n"
    )
    address = {"HF_ENDPOINT": endpoint, "HF_HOME": str(Path("home").absolute())}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **address},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_a_dataset_is_downloaded_once_and_no_more_of_it_than_is_read() -> None:
    for config in "ab":
        write_csv(f"own/{config}/train.csv", f"One {config}.", f"Two {config}.")
    write_card("own", a="a/*.csv", b="b/*.csv")
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        server.asked = []  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        assert texts_in_a_process(endpoint) == ["One b.", "Two b."]
        files = {path.split(COMMIT)[1] for path in server.asked if "resolve" in path}  # type: ignore[attr-defined]
        server.shutdown()
    assert files == {"/README.md", "/b/train.csv"}
    assert texts_in_a_process(endpoint) == ["One b.", "Two b."]  # the server is closed by now


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that accepts a connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def refusing_server() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"  # closed by now


def expect_refusal(message: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError) as error:
        rows("classification", **ON_THE_HUB)
    assert time.monotonic() - began < 15
    text = str(error.value)
    assert f"own/reviews at revision {COMMIT} is not in the cache nor can be downloaded" in text
    assert message in text and "HF_HOME" in text and "`dataset: none`" in text


def test_a_hub_out_of_reach_is_said_within_seconds(monkeypatch) -> None:
    monkeypatch.setattr("stages.sources.hub.REACHED_WITHIN_S", 0.3)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", refusing_server())
    expect_refusal("refused")
    with silent_server() as endpoint:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
        expect_refusal("timed out")


def test_offline_asks_nobody(monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    close_session()
    expect_refusal("offline mode is enabled")
    close_session()


def test_the_library_is_loaded_when_it_is_needed() -> None:
    program = "import sys, stages.sources.hub; print('datasets' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_a_dataset_on_the_hub_is_not_asked_for_by_check() -> None:
    source(**ON_THE_HUB).check(KINDS["classification"])
