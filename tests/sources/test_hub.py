"""A folder in the hub's layout is read like the hub's cache; missing data is reported quickly."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import datasets
import pyarrow.parquet
import pytest

from stages.sources._source import SOURCES, split_of
from stages.sources.hub import Hub
from stages.tasks._task import TASKS
from tests.hub_server import COMMIT, hub
from tests.project import ROOT

pytestmark = pytest.mark.slow

ON_THE_HUB = {"path": "requirements.lock", "dataset": "own/reviews", "revision": COMMIT}


def source(**settings: Any) -> Hub:
    return cast(Hub, SOURCES.build({"name": "hub", **settings}, where="tasks.own.source"))


def rows(kind: str, **settings: Any) -> list[dict]:
    return [e.row for e in source(**settings).examples(TASKS[kind])]


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
    examples = list(source(**settings).examples(TASKS["classification"]))
    assert {e.split for e in examples if e.id.startswith("train")} == {"train", "validation"}
    assert [e.id for e in examples if e.split == "test"] == ["test:1"]
    assert len({e.id for e in examples}) == 61
    texts = [d.sentences for d in source(**settings).documents()]
    assert texts == [[e.row["text"]] for e in examples]
    with pytest.raises(ValueError, match="^validation: own: unknown 'dev'; Valid: train, test; no"):
        rows("classification", path="own", validation="dev")
    Path("own/test.csv").write_text("text,gold\nx,1\n")
    with pytest.raises(ValueError, match="^own test row 1: no column 'label'; there are: text, go"):
        source(**settings).check(TASKS["classification"])


@pytest.mark.parametrize("by", ["group", "time"])
def test_hub_draws_splits_by_group_and_in_the_order_of_time(by: str) -> None:
    lines = [f"text {i},{i % 2},{2000 + i * 7 % 20}" for i in range(200)]
    Path("folder").mkdir()
    Path("folder/train.csv").write_text("\n".join(["text,label,year", *lines]))
    drawn = source(path="folder", validation="none", test="none", **{by: "year"})
    examples = [*drawn.examples(TASKS["classification"])]
    splits = {(e.group or (e.time.shown if e.time else ""), e.split) for e in examples}
    assert [d.split for d in drawn.documents()] == [e.split for e in examples]
    years = [str(2000 + i) for i in range(20)]
    ordered = [*["train"] * 16, *["validation"] * 2, *["test"] * 2]
    expected = ordered if by == "time" else map(split_of, years)
    assert splits == {*zip(years, expected, strict=True)}
    with pytest.raises(ValueError, match=f"source: {by}: .*given"):
        source(path="folder", **{by: "year"})


def test_hub_reads_a_configuration_of_the_card_or_a_folder() -> None:
    write_csv("own/one/train.csv", "One.")
    write_csv("own/two/train.csv", "Two.")
    settings = {"path": "own", "validation": "none", "test": "none"}
    assert rows("classification", config="two", **settings)[0]["text"] == "Two."
    write_card("own", first="one/*.csv", second=[{"split": "train", "path": "two/train.csv"}])
    assert rows("classification", config="second", **settings)[0]["text"] == "Two."
    with pytest.raises(ValueError, match="config: unknown 'secnd'; did you mean 'second'"):
        rows("classification", config="secnd", **settings)
    with pytest.raises(ValueError, match="config: unknown 'none'; .*first, second"):
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


def test_hub_reads_no_column_that_is_not_asked_for() -> None:
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.Value("string"), media=datasets.Image()
    )
    media = {"bytes": None, "path": "no_such_picture.png"}
    table = pyarrow.Table.from_pylist(
        [{"text": "One.", "label": "1", "media": media}], features.arrow_schema
    )
    Path("own").mkdir()
    pyarrow.parquet.write_table(table, "own/train.parquet")
    settings = {"path": "own", "validation": "none", "test": "none"}
    assert rows("classification", **settings) == [{"text": "One.", "label": "1"}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": "nowhere"}, "source: path: no such file or folder: nowhere"),
        ({"path": "requirements.lock"}, "path: requirements.lock is no folder; it is the folder"),
        ({"path": ".", "train": "none"}, "train: name the dataset's split"),
        (ON_THE_HUB | {"path": "."}, "path: . is a folder; it is the folder with the data, or"),
        (ON_THE_HUB | {"revision": "main"}, "revision: must be all 40 digits of a commit of own/r"),
    ],
)
def test_hub_refuses_settings_that_do_not_fit(settings: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        source(**settings)
    assert message in str(error.value)


FILES = {
    "README.md": b"---\nconfigs:\n- {config_name: a, data_files: a/*.csv}\n"
    b"- {config_name: b, data_files: b/*.csv}\n---\n",
    "a/train.csv": b"text,label\nOne a.,1\n",
    "b/train.csv": b"text,label\nOne b.,1\nTwo b.,0\n",
}


READ = f"""
from stages.sources._source import SOURCES
from stages.tasks._task import TASKS

settings = {ON_THE_HUB | {"name": "hub", "config": "b", "validation": "none", "test": "none"}}
source = SOURCES.build(settings, where="tasks.own.source")
print([example.row["text"] for example in source.examples(TASKS["classification"])])
"""


def read(endpoint: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Reads the dataset in a process of its own, whose client asks the server at ``endpoint``."""
    variables |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(Path("home").absolute())}
    return subprocess.run(
        [sys.executable, "-c", READ],
        env=os.environ | variables | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": ""} | variables,
        capture_output=True,
        text=True,
    )


def test_hub_downloads_the_files_of_a_configuration_once() -> None:
    with hub("datasets", "own/reviews", FILES) as (endpoint, sent):
        runs = [read(endpoint), read(endpoint)]
    runs += [read(endpoint), read(endpoint, HF_HUB_OFFLINE="1")]  # from the cache
    assert [run.stdout for run in runs] == ["['One b.', 'Two b.']\n"] * 4, runs[0].stderr
    assert sent == ["README.md", "b/train.csv"]


def test_hub_says_that_it_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    error = read(endpoint).stderr
    message = f"ValueError: dataset: own/reviews at revision {COMMIT} is not in the cache, nor can"
    assert message in error and "set HF_HOME" in error


def test_check_asks_the_hub_for_nothing(monkeypatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: pytest.fail("network"))
    source(**ON_THE_HUB).check(TASKS["classification"])
