"""Files in a known form that is not read: the command of the table makes one that is read."""

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pytest
from ruamel.yaml import YAML

from stages.proposal.forms import TABLE
from tests.labelled_files import NUM, objects, proposed, table, texts

PAIRS = texts(NUM)
ROWS = [{"text": text, "label": label} for text, label in PAIRS]
SPLITS = (("train", slice(0, 40)), ("dev", slice(40, 50)), ("test", slice(50, 60)))
HEADER = ("text", "label")
PIECES = "[CLS] X\nHe{0} O\nliv O\n##ed O\nin O\nBuda B-LOC\n##pe I-LOC\n##st I-LOC\n[SEP] X\n\n"
MARKDOWN = "".join(
    f"\n## intent:{name}\n" + "".join(f"- {name} in [Rome](city) for {i}\n" for i in range(40))
    for name in ("stay", "dine")
)


def tar(path: Path) -> None:
    Path("train.csv").write_text(table([HEADER, *PAIRS]))
    with tarfile.open(path, "w:gz") as archive:
        archive.add("train.csv")


def saved_to_disk(path: Path) -> None:
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features(text=datasets.Value("string"), label=label)
    splits = {s: datasets.Dataset.from_list(ROWS[rows], features=features) for s, rows in SPLITS}
    datasets.DatasetDict(splits).save_to_disk(path.parent.parent)


def slots(path: Path) -> None:
    for split, rows in SPLITS:
        folder = path.parent.parent / split
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"from rome to {split} {i}\n" for i in range(NUM)[rows]]
        (folder / "seq.in").write_text("".join(lines))
        (folder / "seq.out").write_text("O B-from O B-to O\n" * len(lines))


class Example(NamedTuple):
    """The name of a file; its text, value in JSON, or function that writes it; the name of what
    the command writes; the kind of task that this is read as; names of its columns."""

    name: str
    content: Any
    written: str = "a-rows.jsonl"
    kind: str = "classification"
    names: list[str] | None = None


EXAMPLES = {  # by a part of what the table calls the form
    "save_to_disk": Example("d/test/data-00000-of-00001.arrow", saved_to_disk, "d"),
    "pandas writes": Example(
        "a.json", {key: {i: row[key] for i, row in enumerate(ROWS)} for key in HEADER}
    ),
    "the hub's API": Example(
        "a.json",
        {
            "features": [{"name": "label", "type": {"names": ["bad", "good"]}}],
            "rows": [
                {"row_idx": i, "row": {"text": text, "label": i % 2}}
                for i, (text, _) in enumerate(PAIRS)
            ],
        },
    ),
    "in JSON": Example(
        "a.json",
        {"rasa_nlu_data": {"common_examples": [{"text": t, "intent": of} for t, of in PAIRS]}},
    ),
    "with entities": Example(
        "a.json",
        [[f"Ada saw {t}.", {"entities": [[0, 3, "PER"]]}] for t, _ in PAIRS],
        kind="tagging",
    ),
    "doccano": Example(
        "a.jsonl",
        objects([{"text": f"Ada saw {t}.", "label": [[0, 3, "PER"]]} for t, _ in PAIRS]),
        kind="tagging",
    ),
    "with cats": Example(
        "a.json", [[t, {"cats": {"good": of == "good", "bad": of == "bad"}}] for t, of in PAIRS]
    ),
    "several annotators": Example(
        "a.json",
        {
            text: {"annotators": [{"label": x} for x in (of, "bad", of)]}
            | {"post_tokens": text.split()}
            for text, of in PAIRS
        },
    ),
    "CMRC": Example(
        "a.json",
        [
            {
                "context_text": f"Film {i} was made in {1900 + i}.",
                "qas": [{"query_text": f"When was film {i} made?", "answers": [str(1900 + i)]}],
            }
            for i in range(NUM)
        ],
        kind="span_qa",
    ),
    "pairs of text and label": Example("a.json", {split: PAIRS[rows] for split, rows in SPLITS}),
    "objects below the names": Example("a.json", {split: ROWS[rows] for split, rows in SPLITS}),
    "objects below their ids": Example("a.json", {f"p{i}": row for i, row in enumerate(ROWS)}),
    "lists below the names": Example("a.json", {key: [r[key] for r in ROWS] for key in HEADER}),
    "the first names": Example("a.json", [HEADER, *PAIRS]),
    "lists of a text": Example("a.json", PAIRS),
    "a list of a text": Example("a.jsonl", "".join(json.dumps(pair) + "\n" for pair in PAIRS)),
    "chat": Example(
        "a.jsonl",
        objects(
            [
                {
                    "messages": [
                        {"role": "user", "content": text},
                        {"role": "assistant", "content": of},
                    ]
                }
                for text, of in PAIRS
            ]
        ),
    ),
    "Prodigy": Example(
        "a.jsonl",
        objects([row | {"answer": "accept", "_task_hash": i} for i, row in enumerate(ROWS)]),
    ),
    "retrieval": Example(
        "a.jsonl",
        objects([{"query": t, "pos": [f"it was {t}"], "neg": [f"no {t}"]} for t, _ in PAIRS]),
    ),
    "Python's": Example("a.jsonl", "".join(f"{row}\n" for row in ROWS)),
    "tar": Example("a.tgz", tar, "a-rows"),
    "choices of which": Example(
        "a.csv",
        "question,correct_answer,distractor1,distractor2\n"
        + table([(f"What is {i}?", f"{'amz'[i % 3]} {i}", f"b {i}", f"c {i}") for i in range(NUM)]),
        kind="multiple_choice",
    ),
    "cells between tabs": Example(
        "a.csv",
        "".join(
            "\t".join([of, t, str(i), *"xy"[: i % 3]]) + "\n" for i, (t, of) in enumerate(PAIRS)
        ),
        "a-rows.tsv",
        names=["label", "text", "id"],
    ),
    "SIGN between": Example(
        "a.txt",
        "".join(f"{of} ||| {text}, so\n" for text, of in PAIRS),
        "a-rows.tsv",
        names=["label", "text"],
    ),
    "printed": Example(
        "a.csv",
        "| text | label |\n|---|:--|\n" + "".join(f"| {t}, so | {of} |\n" for t, of in PAIRS),
        "a-rows.csv",
    ),
    "after blanks": Example(
        "a.csv", "text, label\n" + "".join(f'"{t}, so", "{of}"\n' for t, of in PAIRS), "a-rows.csv"
    ),
    "ARFF": Example(
        "a.arff",
        "@relation r\n@attribute text string\n@attribute class {good,bad}\n@data\n"
        + "".join(f"'{text}, so it\\'s', {of}\n" for text, of in PAIRS),
    ),
    "YAML": Example("a.yaml", lambda path: YAML().dump(ROWS, path)),
    "in Markdown": Example("a.md", MARKDOWN),
    "fastText": Example("a.txt", "".join(f"__label__{of} {text}\n" for text, of in PAIRS)),
    "TREC": Example("a.label", "".join(f"HUM:{of} {text}\n" for text, of in PAIRS)),
    "SST": Example(
        "a.txt", "".join(f"({i % 3} (2 {text}) (1 .))\n" for i, (text, _) in enumerate(PAIRS))
    ),
    "wordSIGNtag": Example(
        "a.pos", "".join(f"He/PRP saw/VBD film/NN {i}/CD\n" for i in range(NUM)), kind="tagging"
    ),
    "seq.in": Example("d/test/seq.in", slots, "d", "tagging"),
    "pieces": Example(
        "a.conll", "".join(map(PIECES.format, range(NUM))), "a-rows.conll", "tagging"
    ),
    "HTML": Example(
        "a.csv", table([HEADER, *((f"<p>{t} &amp; so</p>", of) for t, of in PAIRS)]), "a-rows.csv"
    ),
    "line breaks": Example(
        "a.tsv", table([HEADER, *((f"{t}\\nso", of) for t, of in PAIRS)], "\t"), "a-rows.tsv"
    ),
}
WITH_COMMAND = [
    form["what"] for form in TABLE["forms"] if {*form} & {"command", *TABLE["commands"]}
]


@pytest.mark.parametrize("what", WITH_COMMAND)
def test_each_form_is_recognised_and_its_command_makes_a_file_that_is_read(what: str) -> None:
    example = next(example for part, example in EXAMPLES.items() if part in what)
    path = Path(example.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(example.content):
        example.content(path)
    else:
        text = example.content
        path.write_text(text if isinstance(text, str) else json.dumps(text, indent=len(what) % 2))
    data = "d" if example.name.startswith("d/") else example.name
    try:
        said = "\n".join(note for note in proposed(data).notes if "to convert it" in note)
    except ValueError as error:
        said = str(error)
    first, command = said.split("\n  ")
    assert re.search(re.escape(what).replace("SIGN", r"\S+"), first)
    subprocess.run(command, shell=True, check=True)  # noqa: S602
    proposal = proposed(example.written, names=example.names)
    assert proposal.study.kind == example.kind
    assert not any("to convert it" in note for note in proposal.notes)
    assert "##" not in str(proposal.rows) and "SEP" not in str(proposal.rows)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.yaml.txt"])
def test_files_of_other_forms_keep_their_errors(name: str) -> None:
    Path(name).write_text('{"text": "x"}\n')
    with pytest.raises(ValueError) as error:
        proposed(name)
    assert "to convert it" not in str(error.value)
