"""Odd files of real users: what each is read as, or what its refusal says.

Each kind of fault has several inputs. `make new` proposes a study, and ``prepare_task`` reads the
same rows.
"""

import hashlib
import json
import random
import re
import subprocess
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
import pytest

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.tasks._labelled_rows import of_draw
from stages.tasks._task import SPLITS
from tests.labelled_files import objects, prepare, proposed, study_of, table, texts

NUM = 60
TEXTS = [text for text, _ in texts(NUM)]
SIDES = [label for _, label in texts(NUM)]
MOODS = (["joy", "fear"], ["joy"], [], ["anger"], ["fear", "anger"])
# A function of a row's number, cells that rows have in turn, or one cell for all rows.
Make = Callable[[int], object] | tuple[object, ...] | str


class Read(NamedTuple):
    """The expected proposal: its kind, settings of its source, rows of all splits."""

    kind: str
    labels: set[str]  # of train; empty: any
    settings: Json
    num: int
    flags: Json


class Refused(NamedTuple):
    """Words of the error, in any order."""

    words: tuple[str, ...]
    flags: Json


class Odd(NamedTuple):
    """A file, its content, and the expected result."""

    path: str
    content: str | bytes
    expected: Read | Refused


def read(
    kind: str, *labels: str, num: int = NUM, flags: Json | None = None, **settings: Any
) -> Read:
    return Read(kind, {*labels}, settings, num, flags or {})


classes, sets, spans = (partial(read, k) for k in ("classification", "multi_label", "tagging"))


def refused(*words: str, **flags: Any) -> Refused:
    return Refused(words, flags)


def csv(expected: Read | Refused, sign: str = ",", **columns: Any) -> Odd:
    return Odd("a.csv", csv_of(sign, **columns), expected)


def tsv(expected: Read | Refused, **columns: Any) -> Odd:
    return Odd("a.tsv", csv_of("\t", **columns), expected)


def jsonl(expected: Read | Refused, **columns: Any) -> Odd:
    return Odd("a.jsonl", jsonl_of(**columns), expected)


def conll(expected: Read | Refused, tags: str, sign: str = " ", more: str = "") -> Odd:
    return Odd("a.conll", conll_of(tags, sign, more), expected)


def beside_texts(expected: Read | Refused, sign: str = ",", **columns: Any) -> Odd:
    """Describes a csv file of texts and these columns."""
    return csv(expected, sign, text=text, **columns)


def labelled(expected: Read | Refused, label: Make, **columns: Any) -> Odd:
    return beside_texts(expected, label=label, **columns)


def asked(expected: Read | Refused, **columns: Any) -> Odd:
    return csv(expected, context=context, question=lambda i: f"What is the number {i}?", **columns)


def listed(expected: Read | Refused, make: Callable[[int], object]) -> Odd:
    return Odd("a.json", json.dumps([make(i) for i in range(NUM)]), expected)


def mostly(usual: Make, rare: object) -> Make:
    """Puts ``rare`` into every tenth row, from the first."""
    return lambda i: cell(usual, i) if i % 10 else rare


def cell(make: Make, i: int) -> object:
    if isinstance(make, str | tuple):
        return make if isinstance(make, str) else make[i % len(make)]
    return make(i)


def csv_of(sign: str = ",", **columns: Any) -> str:
    rows = [[_quoted(cell(make, i), sign) for make in columns.values()] for i in range(NUM)]
    return table([[*columns], *rows], sign)


def _quoted(cell: object, sign: str) -> str:
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if {sign, *'"\n\t'} & {*text} else text


def jsonl_of(**columns: Any) -> str:
    return objects([{name: cell(make, i) for name, make in columns.items()} for i in range(NUM)])


def conll_of(tags: str, sign: str = " ", more: str = "") -> str:
    words = ["Ada", "Old", "Town", "went", "home", "Rome"]
    pairs = [*zip(words, tags.split(), strict=True)]
    sentence = [f"{word}{sign}{tag}{more}" for word, tag in pairs]
    first = f"{sign}{pairs[3][1]}{more}"
    return "".join("\n".join([f"He{i}{first}", *sentence]) + "\n\n" for i in range(NUM))


def text(i: int) -> str:
    return TEXTS[i]


def side(i: int) -> str:
    return SIDES[i]


def digest(i: int, length: int = 40) -> str:
    return hashlib.sha256(str(i).encode()).hexdigest()[:length]


def assignment(i: int) -> str:
    return "".join(random.Random(i).choices("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789", k=30))


def short_text(i: int) -> str:
    return f"{('buy', 'find')[i % 2]} {('boots', 'lamps', 'cups')[i % 3]} {i}"


def hot(i: int) -> list[int]:
    return [i % 2, int(i % 3 == 0), int(i % 5 == 0)]


LONG = "a class whose name describes in many words what belongs into it, number {}"
CLASSIFIED = classes("good", "bad")
BIO = "B-PER B-LOC I-LOC O O B-LOC"
SPAN_TAGS = ("O", "B-PER", "B-LOC", "I-LOC")
SEVERAL: Json = {"task": "multi_label"}
COMMA: Json = {"decimal": "comma"}
QUESTION = {"text": "film", "answer_start": 0}


def parquet(columns: dict[str, Any]) -> bytes:
    file = BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def context(i: int) -> str:
    return f"film number {i} was made in the year {1900 + i}"


def contexts() -> list[Json]:
    return [
        {
            "context": context(i),
            "qas": [{"id": str(i), "question": f"What is number {i}?", "answers": [QUESTION]}],
        }
        for i in range(NUM)
    ]


def questions(answer: str, start: str) -> Odd:
    year, is_list = str(1900 + NUM), "." in answer
    contexts = [f"{context(i)} and again in {year}" for i in range(NUM)]
    columns: dict[str, Make] = {
        "id": digest,
        "title": lambda i: ("Films", "Years")[i % 2],
        "context": lambda i: contexts[i],
        "question": lambda i: f"When was number {i} made again?",
        answer: lambda i: [year] if is_list else year,
        start: lambda i: [contexts[i].index(year)] if is_list else contexts[i].index(year),
    }
    return csv(read("span_qa", answers=[answer, start]), ",", **columns)


def joined_labels(expected: Read | Refused, sign: str) -> Odd:
    moods = ("joy", "fear", "anger", sign.join(("joy", "fear")), sign.join(("fear", "anger")))
    return beside_texts(expected, mood=moods)


def paths_of(expected: Read | Refused, sign: str) -> Odd:
    shelves = ("Music", sign.join(("Music", "Pop, Rock")), sign.join(("News", "Local")))
    return beside_texts(expected, shelf=shelves)


def scores_of(expected: Read | Refused, spelt: Make) -> Odd:
    return beside_texts(expected, ";", score=spelt)


def variants(i: int) -> str:
    return (side(i), side(i).upper(), side(i))[i % 3]


# Tags of the same spans, and the settings with which they are read.
FORMS: dict[str, Json] = {
    "B.PER B.LOC I.LOC O O B.LOC": {"tag_form": "prefix"},
    "B–PER B–LOC I–LOC O O B–LOC": {"tag_form": "prefix"},
    "B_PER B_LOC I_LOC O O B_LOC": {"tag_form": "prefix"},
    "B-PER B-LOC I-LOC * * B-LOC": {"tag_form": "prefix"},
    "PER-B LOC-B LOC-I O O LOC-B": {"tag_form": "suffix"},
    "PER_S LOC_B LOC_E O O LOC_S": {"tag_form": "suffix", "tag_scheme": "bioes"},
    "S-PER B-LOC E-LOC O O S-LOC": {"tag_scheme": "bioes"},
}

USUAL = csv_of(text=text, label=side)
SENTENCES = conll_of(BIO)

ODD = {
    # Which column is what
    **{
        f"{name} of ids is no text": csv(
            classes(text="title"), ",", **{name: make}, title=short_text, label=side
        )
        for name, make in {
            "AssignmentId": assignment,
            "file": lambda i: f"/data/My Files/{i}.txt",
            "sender": lambda i: f"person{i % 9}@example.org",
        }.items()
    },
    "spans as text": labelled(refused("entities", "structures"), side, entities="[(0, 4, 'PER')]"),
    **{
        f"answers in the columns {answer} and {start}": questions(answer, start)
        for answer, start in (("answer", "answer_start"), ("answers.text", "answers.answer_start"))
    },
    "no answer as text": asked(read("span_qa"), answers=lambda i: [QUESTION] if i % 5 else []),
    "split": labelled(
        classes(split="split"), side, split=lambda i: ("train", "train", "dev", "test")[i // 2 % 4]
    ),
    "folds": labelled(refused("--split fold", "--split none"), side, fold=lambda i: i % 5),
    "long names": beside_texts(classes(label="area"), area=lambda i: LONG.format(i % 3)),
    "a target and a stance": csv(
        refused("Target, Stance", "--label NAME"), Tweet=text, Target=("oil", "tax"), Stance=side
    ),
    "texts of choices": jsonl(
        read("multiple_choice", choices="choices.text", first_choice="A"),
        question=lambda i: f"what is the number {i} ?",
        choices=lambda i: {"text": [f"a {i}", f"b {i}"], "label": ["A", "B"]},
        answerKey=lambda i: "AB"[i % 2],
    ),
    "a word in each row": csv(
        refused("Word has one word in each row", "conll"),
        Sentence=lambda i: f"Sentence: {i // 4}" if i % 4 == 0 else "",
        Word=("He", "saw", "Rome", "."),
        POS=("PRP", "VBD", "NNP", "."),
        Tag=("O", "O", "B-LOC", "O"),
    ),
    # Labels
    **{
        f"joined by {sign!r}": joined_labels(
            refused(f"several labels separated by {sign!r}", "--task classification"), sign
        )
        for sign in (" ", "/", "+", "&", "#", " and ", "_", "-", ":")
    },
    **{
        f"a path with {sign!r}": paths_of(
            refused(f"several labels separated by {sign.strip()!r}", "--task classification"), sign
        )
        for sign in (" > ", ">", " >> ", "->")
    },
    "tags of Stack Overflow": csv(
        sets("c++", "python", flags=SEVERAL, label_separator="><"),
        Body=text,
        Tags=("<c++>", "<c++><python>", "<python>"),
    ),
    "choices of Label Studio": beside_texts(
        sets("joy", "fear"), mood=("joy", '{"choices": ["joy", "fear"]}')
    ),
    **{
        f"lists as {shown(MOODS[0])}": beside_texts(
            sets("joy", "fear", "anger", labels="moods"), moods=tuple(map(shown, MOODS))
        )
        for shown in (
            str,
            json.dumps,
            lambda moods: f"[{', '.join(moods)}]",
            lambda moods: str(tuple(moods)),
            lambda moods: json.dumps(str(moods)),
        )
    },
    **{
        f"labels with {sign!r} between": beside_texts(
            refused(f"several labels separated by {sign!r}", "--task multi_label"),
            mood=("joy", f"joy{sign}fear", f"anger{sign}fear"),
        )
        for sign in ("\n", "\t")
    },
    "0 and 1 without signs": beside_texts(refused("0,1,1"), y=lambda i: "".join(map(str, hot(i)))),
    "lists of one or none": jsonl(
        refused("--task classification"), text=text, label=lambda i: [side(i)] if i % 9 else []
    ),
    "0 and 1 by position": jsonl(sets("0", "1", "2", multi_hot=True), text=text, labels=hot),
    "columns of 0 and 1": csv(
        sets("joy", "fear", "odd", labels=["joy", "fear", "rare", "odd"]),
        id=digest,
        text=text,
        joy=lambda i: i % 2,
        fear=lambda i: int(i % 3 == 0),
        rare="0",
        odd=lambda i: int(i % 5 == 0),
    ),
    "probabilities of classes": jsonl(
        refused("0.25", "the likeliest class"),
        text=text,
        label=lambda i: [i % 4 / 4, 1 - i % 4 / 4],
    ),
    "-1 of hidden labels": labelled(
        classes("0", "1", "2", num=54, no_label=["-1"]), mostly((0, 1, 2), -1)
    ),
    "-1 beside 0 and 1": labelled(refused("no_label", "'-1' (6 rows)"), mostly((0, 1), -1)),
    "case": labelled(
        refused("'GOOD' (10 rows) and 'good' (20 rows)", "label_case: fold"), variants
    ),
    "invisible signs": labelled(
        CLASSIFIED, lambda i: side(i) + ("", "\u200b", "\xa0", "\u00ad")[i % 4]
    ),
    "decimal commas": beside_texts(
        read("regression", decimal="comma", delimiter="semicolon"),
        ";",
        score=lambda i: f"{i % 7},{i % 10}5",
    ),
    **{
        f"the number {spelt(1)}": scores_of(
            read("regression", **(COMMA if "," in spelt(1)[-3:] else {})), spelt
        )
        for spelt in (
            lambda i: f"{i + 1} 234,5",
            lambda i: f"{i + 1},234.5",
            lambda i: f"\u2212{i / 7 + 1:.2f}",
            lambda i: f"{i + 1},5E-03",
        )
    },
    **{
        f"{spelt(1)} is no number": scores_of(refused("is no number"), spelt)
        for spelt in (lambda i: f"{i + 1}.5 %", lambda i: f"€{i + 1}.50")
    },
    # Tags
    **{
        f"tags as {tags}": conll(spans(*SPAN_TAGS, **settings), tags)
        for tags, settings in FORMS.items()
    },
    **{
        f"words and tags in cells, with {sign!r}": csv(
            spans("O", "B-LOC", flags={"columns": {"words": "sentence", "tags": "y"}}),
            sentence=lambda i: f"He{i} left Rome",
            y=sign.join(("O", "O", "B-LOC")),
        )
        for sign in (" ", ",")
    },
    "a sentence without blank lines": Odd(
        "a.conll",
        SENTENCES.replace("\n\n", "\n"),
        refused("1 rows", "a blank line ends each sentence"),
    ),
    "an odd tag": Odd(
        "a.conll",
        SENTENCES + "x PER-\ny B-PER\n\n",
        refused("a.conll line 481", "'PER-' (1)", "bio"),
    ),
    "brackets of CoNLL-2012": conll(
        refused("bracket", "tag_scheme=words"), "(PERSON) (GPE* *) * * (GPE)"
    ),
    "one tag": conll(refused("a.conll", "tag 'O'"), "O O O O O O"),
    **{
        f"languages before words: {first}": Odd(
            "a.conll",
            re.sub(r"(?m)^(?=.)", first, SENTENCES),
            refused("words: each begins with a language", f"'{first}He", "sed -E"),
        )
        for first in ("en:", "zh-min-nan:")
    },
    # Rows
    "a printed table": Odd(
        "a.txt",
        csv_of("|", text=text, label=side).replace("\n", "\n---|---\n", 1),
        refused("a.txt line 2", "printed table", format="csv", delimiter="bar"),
    ),
    "a title above": Odd(
        "a.csv",
        "Survey of 2023,,\n" + csv_of(text=text, label=side, id=int),
        refused("'Survey of 2023'", "title"),
    ),
    "blanks before quotation marks": Odd(
        "a.csv",
        "text, label\n" + "".join(f'"{text(i)}, so", "{side(i)}"\n' for i in range(NUM)),
        refused("a blank stands before quotation marks", "sed"),
    ),
    "an open quotation mark": Odd(
        "a.csv", USUAL + '"one more,good\n', refused("a.csv line 62", "never closes")
    ),
    # Messages
    "nameless and filled": Odd(
        "a.csv",
        USUAL.replace("\n", ",,\n") + "more,good,no,\n",
        refused("not name column 3", "header=yes"),
    ),
    "backslashes": Odd(
        "a.csv",
        'text,label\n"a \\"fine\\" film",good\n',
        refused("a.csv line 2", 'has \\" for', "sed"),
    ),
    "CR alone": Odd(
        "a.csv", USUAL.replace("\n", "\r"), refused("a.csv line 1", "carriage return", "tr ")
    ),
    "windows": Odd(
        "a.csv",
        csv_of(text=lambda i: f"{text(i)} – „schön“ für £{i}…", label=side).encode("cp1252"),
        refused("a.csv line 2", "iconv -f WINDOWS-1252"),
    ),
    "doccano": jsonl(
        refused("doccano", "to_conll2003"), id=int, text=text, label=lambda i: [[0, 4, "PER"]]
    ),
    "prodigy": jsonl(
        refused("Prodigy", "accept"),
        text=text,
        label=side,
        answer="accept",
        _input_hash=int,
        _task_hash=int,
    ),
    "a list below a key": Odd(
        "a.json", json.dumps({"version": 1, "rows": contexts()}), refused("jq .rows FILE")
    ),
    "label studio": listed(
        refused("Label Studio"), lambda i: {"id": i, "data": {"text": text(i)}, "completions": []}
    ),
    "tags written out": conll(refused("'Begin-PER' (60)"), "Begin-PER Begin-LOC Inside-LOC O O O"),
    "spacy": listed(refused("spaCy", "conll"), lambda i: [text(i), {"entities": [[0, 4, "PER"]]}]),
    "argilla": listed(
        refused("Argilla", "to_list"),
        lambda i: {
            "id": str(i),
            "fields": {"text": text(i)},
            "responses": {"label": [{"value": side(i)}]},
            "suggestions": {},
        },
    ),
}

TOWN = spans("O", "B-LOC", "I-LOC")
# Refused lines, and what is read after the command in their refusal.
CONVERTED = {
    "fastText": (lambda i: f"__label__{side(i)} {text(i)}", CLASSIFIED),
    "TREC": (
        lambda i: f"{('HUM:ind', 'LOC:city')[i % 2]} What is {short_text(i)} ?",
        classes("HUM:ind", "LOC:city"),
    ),
    "SST": (lambda i: f"({i % 2} (2 It) ({i % 2} (2 is) (3 number{i})))", classes("0", "1")),
    "word/tag": (lambda i: f"He{i}/O saw/O Old/B-LOC Town/I-LOC  ./O", TOWN),
    "word_tag": (lambda i: f"He{i}_O saw_O Old_B-LOC Town_I-LOC ._O ", TOWN),
}


def put(name: str) -> tuple[str, Read | Refused]:
    path, content, expected = ODD[name]
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path, expected


@pytest.mark.parametrize(
    "name", [name for name, odd in ODD.items() if isinstance(odd.expected, Read)]
)
def test_propose_and_prepare_task_read_odd_inputs_alike(name: str) -> None:
    path, expected = put(name)
    assert isinstance(expected, Read)
    proposal = proposed(path, **expected.flags)
    assert proposal.study.kind == expected.kind
    assert expected.settings.items() <= proposal.study.entry.source.items()
    assert len(proposal.rows) == 3 and all(": " in row for row in proposal.rows)
    prepare(study_of(proposal), "a")
    rows = [read_jsonl(paths.examples("a") / f"{split}.jsonl") for split in SPLITS]
    seed = proposal.study.design.finetuning_seeds[0]
    assert sum(len(of_draw(part, seed)) for part in rows) == expected.num
    record = json.loads((paths.examples("a") / "task.json").read_text())
    assert {*record["labels"]} == (expected.labels or {*record["labels"]})


@pytest.mark.parametrize(
    "name", [name for name, odd in ODD.items() if isinstance(odd.expected, Refused)]
)
def test_propose_refuses_odd_inputs_and_says_what_helps(name: str) -> None:
    path, expected = put(name)
    assert isinstance(expected, Refused)
    with pytest.raises(ValueError) as refused:
        proposed(path, **expected.flags)
    for words in expected.words:
        assert words in str(refused.value)


@pytest.mark.parametrize("name", CONVERTED)
def test_propose_refuses_lines_with_a_command_that_makes_them_readable(name: str) -> None:
    line, expected = CONVERTED[name]
    Path("a.txt").write_text("".join(f"{line(i)}\n" for i in range(NUM)))
    with pytest.raises(ValueError, match=name) as refused:
        proposed("a.txt")
    command = re.search(r"sed .* > (NEW\.\w+)", str(refused.value))
    assert command
    subprocess.run(command[0].replace("FILE", "a.txt"), shell=True, check=True)
    names = ["label", "text"] if command[1] == "NEW.tsv" else None
    proposal = proposed(command[1], names=names)
    assert proposal.study.kind == expected.kind
    prepare(study_of(proposal), "new")
    record = json.loads((paths.examples("new") / "task.json").read_text())
    labels = {label.removeprefix("__label__") for label in record["labels"]}
    assert labels == expected.labels


def test_propose_says_that_a_test_file_may_have_placeholders() -> None:
    Path("a").mkdir()
    Path("a/train.csv").write_text(csv_of(text=text, label=lambda i: i % 3))
    Path("a/test.csv").write_text(csv_of(text=lambda i: f"more {text(i)}", label=lambda i: 0))
    assert any("Every row of test has the label 0" in note for note in proposed("a").notes)


def test_propose_says_which_file_has_no_labels_and_what_a_folder_of_texts_needs() -> None:
    Path("a").mkdir()
    Path("a/train.csv").write_text(USUAL)
    Path("a/test.csv").write_text(csv_of(id=int, text=lambda i: f"more {text(i)}"))
    with pytest.raises(ValueError, match=r"test.csv line 2: no column 'label'.*leave out a file"):
        proposed("a")
    for side_ in ("pos", "neg"):
        Path(f"b/{side_}").mkdir(parents=True)
        Path(f"b/{side_}/1.txt").write_text("a fine film\n")
    with pytest.raises(ValueError, match="a folder for each class must become one csv file"):
        proposed("b")
