"""Files in a known form that is not read: the command of the table makes one that is read."""

import re
import subprocess
import tarfile
from pathlib import Path

import datasets
import pytest

from stages.proposal.files import FORMS
from tests.labelled_files import NUM, proposed, table, texts

PAIRS = texts(NUM)
SPLITS = (("train", slice(0, 40)), ("dev", slice(40, 50)), ("test", slice(50, 60)))


def tar(path: Path) -> None:
    Path("train.csv").write_text(table([("text", "label"), *PAIRS]))
    with tarfile.open(path, "w:gz") as archive:
        archive.add("train.csv")


def saved_to_disk(path: Path) -> None:
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features(text=datasets.Value("string"), label=label)
    rows = [{"text": text, "label": label} for text, label in PAIRS]
    splits = {s: datasets.Dataset.from_list(rows[part], features=features) for s, part in SPLITS}
    datasets.DatasetDict(splits).save_to_disk(path.parent.parent)


def slots(path: Path) -> None:
    for split, rows in SPLITS:
        folder = path.parent.parent / split
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"from rome to {split} {i}\n" for i in range(NUM)[rows]]
        (folder / "seq.in").write_text("".join(lines))
        (folder / "seq.out").write_text("O B-from O B-to O\n" * len(lines))


def annotated(path: Path) -> None:
    lines = [f"Ada saw {text}.\n" for text, _ in PAIRS]
    path.with_suffix(".txt").write_text("".join(lines))
    begins = [sum(map(len, lines[:i])) for i in range(NUM)]
    path.write_text("".join(f"T{i}\tPER {b} {b + 3}\tAda\n" for i, b in enumerate(begins)))


def sides(path: Path) -> None:
    for split, rows in SPLITS:
        for column, name in enumerate(("text", "labels")):
            lines = "".join(f"{pair[column]}\n" for pair in PAIRS[rows])
            path.with_name(f"{split}_{name}.txt").write_text(lines)


def tree(path: Path) -> None:
    for i, (text, label) in enumerate(PAIRS):
        file = Path("d", "train" if i % 10 > 1 else "test", label, f"{i}_7.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


WRITERS = {
    "a folder of texts": ("d/README", tree, "d-rows.jsonl"),
    "save_to_disk": ("d/test/data-00000-of-00001.arrow", saved_to_disk, "d"),
    "brat": ("d/x.ann", annotated, "d/x-rows.jsonl"),
    "line by line": ("d/train_labels.txt", sides, "d"),
    "tar": ("a.tgz", tar, "a-rows"),
    "seq.in": ("d/test/seq.in", slots, "d"),
}
ROW, SPAN = '{"text": "TEXT", "label": "LABEL"}', '"text": "Ada saw TEXT.", "label": '
# By a part of what the table calls the form: the kind of the file, and its content, in which a part
# between « and » is repeated for each row. ROW is its number, BIT is 0 or 1.
EXAMPLES = {
    "pandas writes": ("json", '{"text": {«"ROW": "TEXT"»}, "label": {«"ROW": "LABEL"»}}'),
    "the hub's API": (
        "json",
        '{"features": [{"name": "label", "type": {"names": ["bad", "good"]}}],\n'
        '"rows": [«{"row_idx": ROW, "row": {"text": "TEXT", "label": BIT}}»]}',
    ),
    "in JSON": (
        "json",
        '{"rasa_nlu_data": {"common_examples": [«{"text": "TEXT", "intent": "LABEL"}»]}}',
    ),
    "with entities": ("json", '[«["Ada saw TEXT.", {"entities": [[0, 3, "PER"]]}]»]'),
    "doccano": ("jsonl", f'«{{{SPAN}[[0, 3, "PER"]]}}\n»'),
    "spans of Prodigy": (
        "jsonl",
        '«{"text": "Ada TEXT", "_task_hash": ROW, "answer": "accept", "tokens": [{"text": "Ada", '
        '"id": 0}, {"text": "TEXT", "id": 1}], "spans": [{"token_start": 0, "token_end": 0, '
        '"label": "PER"}]}\n»',
    ),
    "spans of Label Studio": (
        "json",
        f'[«{{{SPAN}[{{"start": 0, "end": 3, "labels": ["PER"]}}]}}»]',
    ),
    "choices of Label Studio": (
        "json",
        '[«{"data": {"text": "TEXT"}, "annotations": [{"result": [{"value": {"choices": '
        '["LABEL"]}}]}]}»]',
    ),
    "with cats": ("json", '[«["TEXT", {"cats": {"LABEL": 1, "other": 0}}]»]'),
    "several annotators": (
        "json",
        '{«"TEXT": {"annotators": [{"label": "LABEL"}, {"label": "bad"}, {"label": "LABEL"}], '
        '"post_tokens": ["TEXT"]}»}',
    ),
    "CMRC": (
        "json",
        '[«{"context_text": "Film ROW was TEXT.", "qas": [{"query_text": "What was film ROW of '
        'all?", "answers": ["TEXT"]}]}»]',
    ),
    "pairs of text and label": (
        "json",
        '{"train": [«["TEXT", "LABEL"]»], "dev": [«["so TEXT", "LABEL"]»]}',
    ),
    "objects below the names": (
        "json",
        f'{{"train": [«{ROW}»], "dev": [«{ROW.replace("TEXT", "so TEXT")}»]}}',
    ),
    "below the key": ("json", f'{{"status": "ok", "count": 60, "results": [«{ROW}»]}}'),
    "objects below their ids": ("json", f'{{«"pROW": {ROW}»}}'),
    "lists below the names": ("json", '{"text": [«"TEXT"»], "label": [«"LABEL"»]}'),
    "the first names": ("json", '[["text", "label"], «["TEXT", "LABEL"]»]'),
    "lists of a text": ("json", '[«["TEXT", "LABEL"]»]'),
    "a list of a text": ("jsonl", '«["TEXT", "LABEL"]\n»'),
    "chat": (
        "jsonl",
        '«{"messages": [{"role": "user", "content": "TEXT"}, {"role": "assistant", "content": '
        '"LABEL"}]}\n»',
    ),
    "rows of Prodigy": (
        "jsonl",
        '«{"text": "TEXT", "label": "LABEL", "answer": "accept", "_task_hash": ROW}\n»',
    ),
    "retrieval": ("jsonl", '«{"query": "TEXT", "pos": ["it was TEXT"], "neg": ["no TEXT"]}\n»'),
    "Python's": ("jsonl", "«{'text': 'TEXT', 'label': 'LABEL'}\n»"),
    "choices of which": (
        "csv",
        "question,correct_answer,distractor1,distractor2\n«What is ROW?,LABEL ROW,b ROW,c ROW\n»",
    ),
    "cells between tabs": ("csv", "«LABEL\tTEXT\tROW\n»good\tone more\t8\tx\ty\n"),
    "SIGN between": ("txt", "«LABEL ||| TEXT, so\n»"),
    "printed": ("csv", "| text | label |\n|---|:--|\n«| TEXT, so | LABEL |\n»"),
    "after blanks": ("csv", 'text, label\n«"TEXT, so", "LABEL"\n»'),
    "a backslash": ("csv", 'text,label\n«"TEXT, \\"so\\" it was",LABEL\n»'),
    "returns within": ("csv", "text,label\n«TEXT\rTEXT,LABEL\n»"),
    "returns alone": ("csv", "text,label\r«TEXT,LABEL\r»"),
    "single quotation": ("csv", "text,label\n«'TEXT, so','LABEL'\n»"),
    "comments above": ("csv", "# made by x\ntext,label\n«TEXT,LABEL\n»"),
    "numpy": (
        "csv",
        "context,question,answers\n«film of TEXT,What was film ROW of?,"
        "\"{'text': array(['film'], dtype=object), 'answer_start': array([0])}\"\n»",
    ),
    "ARFF": (
        "arff",
        "@relation r\n@attribute text string\n@attribute class {good,bad}\n@data\n"
        "«'TEXT, so it\\'s', LABEL\n»",
    ),
    "data in YAML": (
        "yml",
        "nlu:\n- intent: ask\n  examples: |\n«    - TEXT [it](x)\n»"
        "- intent: say\n  examples: |\n«    - say TEXT [it](x)\n»",
    ),
    "YAML": ("yaml", "«- {text: TEXT, label: LABEL}\n»"),
    "in Markdown": (
        "md",
        "## intent:ask\n«- TEXT in [Rome](city)\n»\n## intent:say\n«- say TEXT in [Rome](city)\n»",
    ),
    "fastText": ("txt", "«__label__LABEL TEXT\n»"),
    "TREC": ("label", "«HUM:LABEL TEXT\n»"),
    "SST": ("txt", "«(BIT (2 TEXT) (1 .))\n»"),
    "wordSIGNtag": ("pos", "«He/PRP saw/VBD film/NN ROW/CD\n»"),
    "pieces": (
        "conll",
        "«[CLS] X\nHeROW O\nliv O\n##ed O\nin O\nBuda B-LOC\n##pe I-LOC\n##st I-LOC\n[SEP] X\n\n»",
    ),
    "HTML": ("csv", "text,label\n«<p>TEXT &amp; so</p>,LABEL\n»"),
    "line breaks": ("tsv", "text\tlabel\n«TEXT\\nso\tLABEL\n»"),
}
KINDS: dict[str, tuple[str, ...]] = {
    "span_qa": ("CMRC", "numpy"),
    "multiple_choice": ("choices of which",),
}
KINDS["tagging"] = ("with entities", "doccano", "spans", "brat", "seq.in", "wordSIGN", "pieces")
COLUMNS = {"cells between tabs": ["label", "text", "id"]}
COLUMNS |= dict.fromkeys(("SIGN between", "line by line"), ["label", "text"])
WITH_COMMAND = [
    form["what"] for form in FORMS["forms"] if {*form} & {"command", *FORMS["commands"]}
]


def filled(content: str, separator: str) -> str:
    """Returns the content of an example with all rows."""

    def rows(match: re.Match[str]) -> str:
        numbered = [(str(i), str(i % 2), *pair) for i, pair in enumerate(PAIRS)]
        named = (dict(zip(("ROW", "BIT", "TEXT", "LABEL"), row, strict=True)) for row in numbered)
        return separator.join(
            re.sub("ROW|BIT|TEXT|LABEL", lambda m: row[m[0]], match[1])  # noqa: B023
            for row in named
        )

    return re.sub("«(.*?)»", rows, content, flags=re.DOTALL)


@pytest.mark.parametrize("what", WITH_COMMAND)
def test_each_form_is_recognised_and_its_command_makes_a_file_that_is_read(what: str) -> None:
    part = next(part for part in (*WRITERS, *EXAMPLES) if part in what)
    name, write, new = WRITERS.get(part, ("", None, ""))
    if write is not None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        write(Path(name))
    else:
        ending, content = EXAMPLES[part]
        name = f"a.{ending}"
        Path(name).write_text(filled(content, ",\n" if ending == "json" else ""))
    try:
        notes = proposed(name[:1] if "/" in name else name).notes
        said = next(note for note in notes if "to convert it" in note)
    except ValueError as error:
        said = str(error)
    first, command = said.split("\n  ", 1)
    command = command.splitlines()[0]
    assert re.search(re.escape(what).replace("SIGN", r"\S+"), first)
    subprocess.run(command, shell=True, check=True)  # noqa: S602
    written = new or re.search(r"> (\S+)$", command)[1]  # type: ignore[index]
    proposal = proposed(written, names=COLUMNS.get(part))
    kinds = [kind for kind, parts in KINDS.items() if part.startswith(parts)]
    assert proposal.kind == (kinds[0] if kinds else "classification")
    assert not any("to convert it" in note for note in proposal.notes)
    assert "##" not in str(proposal.rows) and "SEP" not in str(proposal.rows)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.yaml.txt"])
def test_files_of_other_forms_keep_their_errors(name: str) -> None:
    Path(name).write_text('{"text": "x"}\n')
    with pytest.raises(ValueError) as error:
        proposed(name)
    assert "to convert it" not in str(error.value)
