"""A folder in the hub's layout is read like the hub's cache; missing data is reported quickly."""

import json
import shutil
import socket
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast

import datasets
import huggingface_hub.constants
import pyarrow.parquet
import pytest
from huggingface_hub.utils import close_session

from stages.core.artifacts import Json
from stages.kinds._kind import KINDS, SPLITS
from stages.sources._source import SOURCES
from stages.sources.hub import Hub

pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ON_THE_HUB = {"path": "requirements.lock", "dataset": "own/reviews", "revision": COMMIT}


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "cache"))


def source(**settings: Any) -> Hub:
    return cast(Hub, SOURCES.build({"name": "hub", **settings}, where="tasks.own.source"))


def rows(kind: str, **settings: Any) -> list[dict]:
    return [e.row for e in source(**settings).examples(KINDS[kind])]


def write_csv(path: str, *texts: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("text,label\n" + "".join(f"{text},1\n" for text in texts))


def write_card(folder: str, **configs: Any) -> None:
    """Writes a README.md. ``configs`` maps configurations to their files or to all settings."""
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


def test_hub_gives_labels_questions_and_translations(parquet: dict) -> None:
    assert rows("classification", text="sentence", **parquet) == [
        {"text": "A dog.", "label": "positive"},
        {"text": "A dog.", "label": "negative"},
    ]
    tagged = {"words": ["A", "dog"], "tags": ["DET", "NOUN"]}
    assert rows("tagging", tags="pos", **parquet) == [tagged] * 2
    pairs = rows("seq2seq", text="translation.en", target="translation.de", **parquet)
    assert pairs == [{"text": "A dog.", "target": "Ein Hund."}] * 2
    every = rows("span_qa", context="sentence", **parquet | {"test": "test"})
    answers = [[{"text": "dog", "answer_start": 2}]] * 2
    assert [row["answers"] for row in every] == [*answers, []]
    answered = rows("span_qa", context="sentence", unanswerable="drop", **parquet)
    assert answered == every[:2]


def test_hub_refuses_hidden_labels(parquet: dict) -> None:
    message = "own test row 1: label is -1, which is none of the labels negative, positive; -1 says"
    with pytest.raises(ValueError, match=message):
        rows("classification", text="sentence", **parquet | {"test": "test"})
    assert rows("tagging", tags="pos", **parquet | {"test": "test"})  # none of its labels is hidden


def test_hub_gives_or_draws_splits() -> None:
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


def test_hub_draws_all_rows_of_a_group_into_one_split() -> None:
    lines = [f"text {i},{i % 2},user{i % 40}" for i in range(200)]
    Path("folder").mkdir()
    Path("folder/train.csv").write_text("\n".join(["text,label,user", *lines]))
    drawn: Json = {"path": "folder", "validation": "none", "test": "none", "group": "user"}
    splits = {(e.group, e.split) for e in source(**drawn).examples(KINDS["classification"])}
    assert len(splits) == 40 and {split for _, split in splits} == set(SPLITS)
    with pytest.raises(ValueError, match="source: group: train, validation and test are given"):
        source(path="folder", group="user")


def test_hub_draws_splits_in_the_order_of_time() -> None:
    lines = [f"text {i},{i % 2},{2000 + i * 7 % 20}" for i in range(200)]
    Path("folder").mkdir()
    Path("folder/train.csv").write_text("\n".join(["text,label,year", *lines]))
    drawn: Json = {"path": "folder", "validation": "none", "test": "none", "time": "year"}
    examples = [*source(**drawn).examples(KINDS["classification"])]
    splits = {(e.time.shown, e.split) for e in examples if e.time}
    expected = {**dict.fromkeys(range(2000, 2016), "train"), 2016: "validation"}
    expected |= {2017: "validation", 2018: "test", 2019: "test"}
    assert splits == {(str(year), split) for year, split in expected.items()}
    assert [d.split for d in source(**drawn).documents()] == [e.split for e in examples]
    with pytest.raises(ValueError, match="source: time: validation and test are given, but time"):
        source(path="folder", time="year")


def test_hub_reads_a_configuration_of_the_card_or_a_folder() -> None:
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


@pytest.mark.parametrize(
    "files",
    [
        "../outside.csv",
        ["train.csv", "a/../../outside.csv"],
        [{"split": "train", "path": ["../*.csv"]}],
        "/etc/passwd",
        "https://example.com/x.csv",
        "zip://x.csv::/outside.zip",
        "file:/outside.csv",
        [{"split": "train", "path": "local:/outside.csv"}],
        "simplecache::/outside.csv",
        {"data_dir": ".."},
    ],
)
def test_hub_refuses_a_card_that_names_files_outside_its_folder(files: Any) -> None:
    """DVC watches the folder alone."""
    write_csv("outside.csv", "Secret.")
    write_csv("own/train.csv", "One.")
    write_card("own", default=files)
    settings = {"path": "own", "validation": "none", "test": "none"}
    with pytest.raises(ValueError, match="^own/README.md: its files must be in the folder of the"):
        rows("classification", **settings)
    with pytest.raises(ValueError, match=r"config: the files must be .*, not '\.\./own'"):
        source(**settings, config="../own")


def expanding(depth: int) -> str:
    """Returns YAML in which nested aliases stand for 9 ** ``depth`` values."""
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth + 1)]
    return "\n".join(["a0: &a0 x", *lines])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (expanding(11), "line 8: the file has more than 300,000 values, those of aliases counted"),
        ("a: " + "[" * 100_000, "line 2: is nested more than 40 deep"),
        ("a: " + "x" * 2**25, "it has more than 33,554,432 bytes"),
    ],
)
def test_hub_refuses_a_card_that_would_fill_the_memory(header: str, message: str) -> None:
    write_csv("own/train.csv", "One.")
    card, settings = Path("own/README.md"), {"path": "own", "validation": "none", "test": "none"}
    card.write_text(f"---\n{expanding(3)}\n---\n")
    assert rows("classification", **settings)
    card.write_text(f"---\n{header}\n---\n")
    with pytest.raises(ValueError, match=f"^own/README.md: no card of a dataset: {message}"):
        rows("classification", **settings)


def test_hub_refuses_a_second_card() -> None:
    """``datasets`` reads .huggingface.yaml, too, which could name files outside the folder."""
    write_csv("own/train.csv", "One.")
    Path("own/.huggingface.yaml").write_text("configs: []\n")
    with pytest.raises(ValueError, match="^own/.huggingface.yaml: is not read; move its settings"):
        rows("classification", path="own", validation="none", test="none")


@pytest.mark.parametrize("target", ["outside", "outside/train.csv"])
def test_hub_refuses_files_and_folders_that_are_linked_from_elsewhere(target: str) -> None:
    write_csv("outside/train.csv", "Secret.")
    write_csv("own/train.csv", "One.")
    Path("own/test.csv").symlink_to("train.csv")
    source(path="own")
    Path("own/data").symlink_to(f"../{target}")
    with pytest.raises(ValueError, match="path: own/data is a link out of own; copy what it"):
        source(path="own")


@pytest.mark.parametrize("name", ["train.xml", "train.h5", "train.tar", "train.conll"])
def test_hub_reads_no_other_formats(name: str) -> None:
    Path("own").mkdir()
    Path("own", name).write_text("<a>One.</a>\n")
    with pytest.raises(ValueError, match="^path: own cannot be read: its files must be one of par"):
        rows("classification", path="own", validation="none", test="none", label="text")


@pytest.mark.parametrize("medium", [datasets.Image(), datasets.Audio(), datasets.Pdf()])
def test_hub_opens_no_file_and_no_address_that_a_row_names(medium: Any, monkeypatch) -> None:
    refuse_network(monkeypatch)
    text = datasets.Value("string")
    features = datasets.Features(text=text, label=datasets.Json(), media=datasets.List(medium))
    media = [{"bytes": None, "path": path} for path in ("http://own.example/x", "secret.csv")]
    write_csv("secret.csv", "Secret.")
    Path("own").mkdir()
    for name in ("train", "test"):
        row = {"text": "One.", "label": '{"a": 1}', "media": media}
        table = pyarrow.Table.from_pylist([row], features.arrow_schema)
        pyarrow.parquet.write_table(table, f"own/{name}.parquet")
        media.reverse()
    settings = {"path": "own", "validation": "none", "label": "label.a"}
    assert rows("classification", **settings) == [{"text": "One.", "label": "1"}] * 2
    with pytest.raises(ValueError, match="own train row 1: media must be a text, not .*'path': 'h"):
        rows("classification", **settings, text="media")


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
        (ON_THE_HUB | {"path": "/dev/zero"}, "path: /dev/zero must be a regular file"),
        (ON_THE_HUB | {"revision": "main"}, "revision: must be the hash of a commit of own/revi"),
        (ON_THE_HUB | {"dataset": "a/b/c"}, "dataset: cannot be a name on the hub such as"),
    ],
)
def test_hub_refuses_settings_that_do_not_fit(settings: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        source(**settings)
    assert message in str(error.value)


def test_hub_names_data_that_cannot_be_read(capfd) -> None:
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

LISTED = ON_THE_HUB | {"validation": "none", "test": "none"}


def refuse_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: pytest.fail("network"))


class Served(SimpleHTTPRequestHandler):
    """Serves files with the headers of the hub."""

    requested: list[str] = []

    def end_headers(self) -> None:
        self.requested.append(self.path)
        self.send_header("ETag", self.path.replace("/", "-"))
        self.send_header("X-Repo-Commit", COMMIT)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_hub_downloads_a_dataset_once_and_no_more_of_it_than_is_read(monkeypatch) -> None:
    files = Path("served/datasets/own/reviews/resolve", COMMIT)
    for config in "ab":
        write_csv(str(files / config / "train.csv"), f"One {config}.", f"Two {config}.")
    write_card(str(files), a="a/*.csv", b="b/*.csv")
    names = ["README.md", "a/train.csv", "b/train.csv"]
    listed = [{"type": "file", "path": name, "size": 1, "oid": name} for name in names]
    about = {"revision": {"id": "own/reviews", "sha": COMMIT}, "tree": listed}
    for name, content in about.items():
        path = Path("served/api/datasets/own/reviews", name, COMMIT)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))
    handler = partial(Served, directory="served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        first = rows("classification", **LISTED, config="b")
        server.shutdown()
    assert [row["text"] for row in first] == ["One b.", "Two b."]
    downloaded = {path.split(COMMIT)[1] for path in Served.requested if "resolve" in path}
    assert downloaded == {"/README.md", "/b/train.csv"}
    refuse_network(monkeypatch)
    assert rows("classification", **LISTED, config="b") == first
    assert source(**LISTED).versions() == {"own/reviews": COMMIT}


def test_hub_downloads_what_half_a_cache_lacks(folder: Path, monkeypatch) -> None:
    snapshot = folder / "cache/datasets--own--reviews/snapshots" / COMMIT
    write_csv(str(snapshot / "all/train.csv"), "One.", "Two.")
    write_card(str(snapshot), default="all/*.csv")
    with monkeypatch.context() as offline:
        refuse_network(offline)
        assert [row["text"] for row in rows("classification", **LISTED)] == ["One.", "Two."]
    shutil.rmtree(snapshot / "all")
    expect_refusal("refused", closed_port(), monkeypatch)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def expect_refusal(message: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    began = time.monotonic()
    with pytest.raises(ValueError) as error:
        rows("classification", **ON_THE_HUB)
    assert time.monotonic() - began < 15
    text = str(error.value)
    assert f"own/reviews at revision {COMMIT} is not in the cache nor can be downloaded" in text
    assert message in text and "HF_HOME" in text and "`dataset: none`" in text


def test_hub_says_within_seconds_that_it_cannot_be_reached(monkeypatch) -> None:
    """The second server accepts a connection and never answers."""
    monkeypatch.setattr("stages.sources.hub.REACHED_WITHIN_S", 0.3)
    expect_refusal("refused", closed_port(), monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"http://127.0.0.1:{server.getsockname()[1]}"
        expect_refusal("timed out", silent, monkeypatch)


def test_hub_asks_nobody_if_it_is_offline(monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    close_session()
    expect_refusal("offline mode is enabled", closed_port(), monkeypatch)
    close_session()


def test_check_asks_the_hub_for_nothing(monkeypatch) -> None:
    refuse_network(monkeypatch)
    source(**ON_THE_HUB).check(KINDS["classification"])
