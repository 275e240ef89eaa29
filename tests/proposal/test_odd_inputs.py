"""Files as people meet them: what each is read as, or what the refusal says.

Each kind of fault has several inputs. `make new` proposes a study, and ``prepare_task`` reads the
same rows.
"""

import gzip
import hashlib
import json
import random
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.core.study_file import load
from stages.kinds._kind import SPLITS, of_draw
from tests.labelled_files import objects, prepare, proposed, table, texts

NUM = 60
TEXTS = [text for text, _ in texts(NUM)]
SIDES = [label for _, label in texts(NUM)]
MOODS = (["joy", "fear"], ["joy"], [], ["anger"], ["fear", "anger"])
Make = Callable[[int], object]


@dataclass
class Read:
    """A proposal: its kind, some of the source's settings, and the rows of all splits."""

    kind: str
    settings: Json = field(default_factory=dict)
    num: int = NUM
    labels: set[str] | None = None  # of train
    says: str = ""  # in the notes
    flags: Json = field(default_factory=dict)


@dataclass
class Refused:
    """Words of the error, in any order."""

    words: list[str]
    flags: Json = field(default_factory=dict)


def csv_of(sign: str = ",", **columns: Make) -> str:
    rows = [[_quoted(make(i), sign) for make in columns.values()] for i in range(NUM)]
    return table([[*columns], *rows], sign)


def _quoted(cell: object, sign: str) -> str:
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if sign in text or '"' in text else text


def jsonl_of(**columns: Make) -> str:
    return objects([{name: make(i) for name, make in columns.items()} for i in range(NUM)])


def conll_of(tags: list[str], sign: str = " ", more: str = "", num: int = NUM) -> str:
    words = ["Ada", "Old", "Town", "went", "home", "Rome"]
    sentence = [f"{word}{sign}{tag}{more}" for word, tag in zip(words, tags, strict=True)]
    return "".join(
        "\n".join([f"He{i}{sign}{tags[3]}{more}", *sentence]) + "\n\n" for i in range(num)
    )


def text(i: int) -> str:
    return TEXTS[i]


def side(i: int) -> str:
    return SIDES[i]


def digest(i: int, length: int = 40) -> str:
    return hashlib.sha256(str(i).encode()).hexdigest()[:length]


def uuid(i: int) -> str:
    d = digest(i, 32)
    return f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}"


def assignment(i: int) -> str:
    return "".join(random.Random(i).choices("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789", k=30))


def short_text(i: int) -> str:
    return f"{('buy', 'find')[i % 2]} {('boots', 'lamps', 'cups')[i % 3]} {i}"


def hot(i: int) -> list[int]:
    return [i % 2, int(i % 3 == 0), int(i % 5 == 0)]


LONG = "a class whose name describes in many words what belongs into it, number {}"
CLASSIFIED = Read("classification", labels={"good", "bad"})
BIO = ["B-PER", "B-LOC", "I-LOC", "O", "O", "B-LOC"]
SPANS = Read("tagging", labels={"O", "B-PER", "B-LOC", "I-LOC"})
QUESTION = {"text": "film", "answer_start": 0}


def spans(**settings: object) -> Read:
    return Read("tagging", dict(settings), labels=SPANS.labels)


def parquet(columns: dict[str, Any]) -> bytes:
    pyarrow.parquet.write_table(pyarrow.table(columns), "made.parquet")
    return Path("made.parquet").read_bytes()


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


def questions(answer: str, start: str) -> str:
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
    return csv_of(",", **columns)


def joined_labels(sign: str) -> str:
    moods = ("joy", "fear", "anger", sign.join(("joy", "fear")), sign.join(("fear", "anger")))
    return csv_of(text=text, mood=lambda i: moods[i % 5])


def paths_of(sign: str) -> str:
    shelves = ("Music", sign.join(("Music", "Pop, Rock")), sign.join(("News", "Local")))
    return csv_of(text=text, shelf=lambda i: shelves[i % 3])


def joined_objects(sign: str) -> str:
    return sign.join(jsonl_of(text=text, label=side).splitlines())


def scores_of(spelt: Make) -> str:
    return csv_of(";", text=text, score=spelt)


def variants(i: int) -> str:
    return (side(i), side(i).upper(), side(i))[i % 3]


ODD: dict[str, tuple[str, Callable[[], str | bytes], Read | Refused]] = {
    # Which column is what
    "sha1": (
        "a.csv",
        lambda: csv_of(sha1=digest, q=short_text, intent=side),
        Read("classification", {"text": "q", "label": "intent"}),
    ),
    "uuid": (
        "a.csv",
        lambda: csv_of(key=uuid, title=short_text, label=side),
        Read("classification", {"text": "title"}),
    ),
    "two ids": (
        "a.csv",
        lambda: csv_of(id1=uuid, id2=lambda i: digest(i, 24), q=short_text, label=side),
        Read("classification", {"text": "q"}),
    ),
    "object id": (
        "a.jsonl",
        lambda: jsonl_of(_id=lambda i: {"$oid": digest(i, 24)}, title=short_text, label=side),
        Read("classification", {"text": "title"}),
    ),
    "assignment": (
        "a.csv",
        lambda: csv_of(AssignmentId=assignment, title=short_text, label=side),
        Read("classification", {"text": "title"}),
    ),
    "paths": (
        "a.csv",
        lambda: csv_of(file=lambda i: f"/data/My Files/{i}.txt", title=short_text, label=side),
        Read("classification", {"text": "title"}),
    ),
    "relative paths": (
        "a.csv",
        lambda: csv_of(f=lambda i: f"scans/{i % 7}/page_{i}.png", title=short_text, label=side),
        Read("classification", {"text": "title"}),
    ),
    "mail": (
        "a.csv",
        lambda: csv_of(sender=lambda i: f"person{i % 9}@example.org", title=short_text, label=side),
        Read("classification", {"text": "title"}),
    ),
    "ids alone": ("a.csv", lambda: csv_of(sha1=digest, label=side), Refused(["--text NAME"])),
    "spans as text": (
        "a.csv",
        lambda: csv_of(text=text, label=side, entities=lambda i: "[(0, 4, 'PER')]"),
        Refused(["entities", "structures"]),
    ),
    "an object as text": (
        "a.csv",
        lambda: csv_of(text=text, label=side, meta=lambda i: f"{{'source': 'web', 'n': {i}}}"),
        Read("classification", says="meta (structures)"),
    ),
    "answers as text": (
        "a.csv",
        lambda: csv_of(
            context=context,
            question=lambda i: f"What is {i}?",
            answers=lambda i: json.dumps(QUESTION | {"text": ["film"], "answer_start": [0]}),
        ),
        Read("span_qa"),
    ),
    "printed answers": (
        "a.csv",
        lambda: csv_of(
            context=context,
            question=lambda i: f"What is the number {i}?",
            answers=lambda i: "{'text': array(['film'], dtype=object), 'answer_start': array([0])}",
        ),
        Read("span_qa"),
    ),
    **{
        f"answers in the columns {answer} and {start}": (
            "a.csv",
            partial(questions, answer, start),
            Read("span_qa", {"answers": [answer, start]}),
        )
        for answer, start in (
            ("answer", "answer_start"),
            ("answer_text", "start"),
            ("text", "answerStart"),
            ("answers.text", "answers.answer_start"),
        )
    },
    "questions without an answer in a csv": (
        "a.csv",
        lambda: csv_of(
            context=context,
            question=lambda i: f"What is the number {i}?",
            answer=lambda i: "film" if i % 5 else "",
            answer_start=lambda i: "0.0" if i % 5 else "",
        ),
        Read("span_qa", says="12 questions have no answer"),
    ),
    "no answer as text": (
        "a.csv",
        lambda: csv_of(
            context=context,
            question=lambda i: f"What is the number {i}?",
            answers=lambda i: [QUESTION] if i % 5 else [],
        ),
        Read("span_qa", says="12 questions have no answer"),
    ),
    "one answer as text": (
        "a.csv",
        lambda: csv_of(
            context=context,
            question=lambda i: f"What is the number {i}?",
            answers=lambda i: QUESTION,
        ),
        Read("span_qa"),
    ),
    "answers without a place": (
        "a.jsonl",
        lambda: jsonl_of(
            context=context, question=lambda i: f"What is {i} ?", answers=lambda i: ["film"]
        ),
        Refused(["answers has no place in context", "answer_start", "--task seq2seq"]),
    ),
    "words as text": (
        "a.csv",
        lambda: csv_of(
            tokens=lambda i: repr([f"He{i}", "left", "Rome"]), tags=lambda i: "['O', 'O', 'B-LOC']"
        ),
        Read("tagging", labels={"O", "B-LOC"}),
    ),
    "words as numpy": (
        "a.csv",
        lambda: csv_of(
            tokens=lambda i: f"['He{i}' 'left' 'Rome']", ner_tags=lambda i: "['O' 'O' 'B-LOC']"
        ),
        Read("tagging", labels={"O", "B-LOC"}),
    ),
    "split": (
        "a.csv",
        lambda: csv_of(
            text=text, label=side, split=lambda i: ("train", "train", "dev", "test")[i // 2 % 4]
        ),
        Read("classification", {"split": "split"}),
    ),
    "set": (
        "a.jsonl",
        lambda: jsonl_of(
            text=text, label=side, set=lambda i: ("training", "training", "testing")[i % 3]
        ),
        Read("classification", {"split": "set"}),
    ),
    "folds": (
        "a.csv",
        lambda: csv_of(text=text, label=side, fold=lambda i: i % 5),
        Refused(["--split fold", "--split none"]),
    ),
    "folds left": (
        "a.csv",
        lambda: csv_of(text=text, label=side, fold=lambda i: i % 5),
        Read("classification", flags={"split": "none"}),
    ),
    "long names": (
        "a.csv",
        lambda: csv_of(text=text, area=lambda i: LONG.format(i % 3)),
        Read("classification", {"label": "area"}),
    ),
    "long names of labels": (
        "a.csv",
        lambda: csv_of(text=text, category=lambda i: LONG.format(i % 12)),
        Read("classification", {"label": "category"}),
    ),
    "rarer long names": (
        "a.csv",
        lambda: csv_of(text=text, area=lambda i: LONG.format(i % 12)),
        Refused(["--label NAME", "--target NAME"]),
    ),
    "a pair by number": (
        "a.tsv",
        lambda: csv_of(
            "\t", Quality=lambda i: i % 2, **{"#1 String": text, "#2 String": short_text}
        ),
        Read("classification", {"text": "#1 String", "text_pair": "#2 String"}),
    ),
    "a pair of a short name": (
        "a.csv",
        lambda: csv_of(premise=context, hypo=short_text, label=side),
        Read("classification", {"text": "premise", "text_pair": "hypo"}),
    ),
    "a target and a stance": (
        "a.csv",
        lambda: csv_of(Tweet=text, Target=lambda i: ("oil", "tax")[i % 2], Stance=side),
        Refused(["Target, Stance", "--label NAME"]),
    ),
    "texts of choices": (
        "a.jsonl",
        lambda: jsonl_of(
            question=lambda i: f"what is the number {i} ?",
            choices=lambda i: {"text": [f"a {i}", f"b {i}"], "label": ["A", "B"]},
            answerKey=lambda i: "AB"[i % 2],
        ),
        Read("multiple_choice", {"choices": "choices.text", "first_choice": "A"}),
    ),
    "endings": (
        "a.jsonl",
        lambda: jsonl_of(
            ctx=text, endings=lambda i: [f"and then {i}", f"or {i}"], label=lambda i: i % 2
        ),
        Read("multiple_choice", {"choices": "endings"}),
    ),
    "remarks beside words": (
        "a.csv",
        lambda: (
            "term,score,,\n"
            + "".join(
                f"w{chr(97 + i % 26)}{chr(97 + i // 26)},{i % 3},,{'a remark' * (i < 6)}\n"
                for i in range(NUM)
            )
        ),
        Read("classification", {"text": "term", "label": "score"}, flags={"header": True}),
    ),
    "a word in each row": (
        "a.csv",
        lambda: csv_of(
            Sentence=lambda i: f"Sentence: {i // 4}" if i % 4 == 0 else "",
            Word=lambda i: ("He", "saw", "Rome", ".")[i % 4],
            POS=lambda i: ("PRP", "VBD", "NNP", ".")[i % 4],
            Tag=lambda i: ("O", "O", "B-LOC", "O")[i % 4],
        ),
        Refused(["Word has one word in each row", "conll"]),
    ),
    # Labels
    **{
        f"joined by {sign!r}": (
            "a.csv",
            partial(joined_labels, sign),
            Refused([f"several labels separated by {sign!r}", "--task classification"]),
        )
        for sign in (" ", "/", "+", "&", "#", " and ", "_", "-", ":")
    },
    **{
        f"joined by {sign!r}, as several": (
            "a.csv",
            partial(joined_labels, sign),
            Read(
                "multi_label",
                {"label_separator": sign},
                labels={"joy", "fear", "anger"},
                flags={"task": "multi_label"},
            ),
        )
        for sign in (" ", "/", " and ")
    },
    **{
        f"a path with {sign!r}": (
            "a.csv",
            partial(paths_of, sign),
            Refused([f"several labels separated by {sign.strip()!r}", "--task classification"]),
        )
        for sign in (" > ", ">", " >> ", "->")
    },
    "a path as a class": (
        "a.csv",
        partial(paths_of, " > "),
        Read(
            "classification",
            labels={"Music", "Music > Pop, Rock", "News > Local"},
            flags={"task": "classification"},
        ),
    ),
    "a path as several labels": (
        "a.csv",
        partial(paths_of, " > "),
        Read(
            "multi_label",
            {"label_separator": ">"},
            labels={"Music", "Pop, Rock", "News", "Local"},
            says="separated by '>'",
            flags={"task": "multi_label"},
        ),
    ),
    "several paths": (
        "a.csv",
        lambda: csv_of(text=text, shelf=lambda i: ("A > B", "A > B; C > D", "C > D")[i % 3]),
        Read(
            "multi_label",
            {"label_separator": ";"},
            labels={"A > B", "C > D"},
            says="separated by ';'",
            flags={"task": "multi_label"},
        ),
    ),
    "signs of numbers are no paths": (
        "a.csv",
        lambda: csv_of(text=text, income=lambda i: ("<=50K", ">50K")[i % 2]),
        Read("classification", labels={"<=50K", ">50K"}),
    ),
    "never alone": (
        "a.csv",
        lambda: csv_of(text=text, mood=lambda i: ("joy+fear", "fear+anger", "anger+joy")[i % 3]),
        Refused(["several labels separated by '+'"]),
    ),
    "tags of Stack Overflow": (
        "a.csv",
        lambda: csv_of(Body=text, Tags=lambda i: ("<c++>", "<c++><python>", "<python>")[i % 3]),
        Read(
            "multi_label",
            {"label_separator": "><"},
            labels={"c++", "python"},
            flags={"task": "multi_label"},
        ),
    ),
    "names of several words": (
        "a.csv",
        lambda: csv_of(
            text=text, mood=lambda i: ("very good", "good", "bad", "very bad", "so so")[i % 5]
        ),
        Read("classification", labels={"very good", "good", "bad", "very bad", "so so"}),
    ),
    "a hierarchy": (
        "a.csv",
        lambda: csv_of(
            text=text, shelf=lambda i: ("Home", "Home/Kitchen", "Garden/Home office", "I/O")[i % 4]
        ),
        Read("classification"),
    ),
    "names of intents": (
        "a.csv",
        lambda: csv_of(
            text=text, intent=lambda i: ("lost_card", "card_arrival", "card_fee", "fee_lost")[i % 4]
        ),
        Read("classification"),
    ),
    "choices of Label Studio": (
        "a.csv",
        lambda: csv_of(text=text, mood=lambda i: ("joy", '{"choices": ["joy", "fear"]}')[i % 2]),
        Read("multi_label", labels={"joy", "fear"}),
    ),
    "choices of Label Studio in json": (
        "a.jsonl",
        lambda: jsonl_of(text=text, mood=lambda i: ("joy", {"choices": ["joy", "fear"]})[i % 2]),
        Read("multi_label", labels={"joy", "fear"}),
    ),
    "errors of a spreadsheet": (
        "a.csv",
        lambda: csv_of(
            text=text, score=lambda i: i / 7 if i % 10 else ("#DIV/0!", "#REF!")[i % 20 > 0]
        ),
        Read("regression", num=54, says="6 of 60 rows"),
    ),
    **{
        f"lists as {shown(['joy', 'fear'])}": (
            "a.csv",
            lambda shown=shown: csv_of(text=text, labels=lambda i: shown(MOODS[i % 5])),
            Read("multi_label", labels={"joy", "fear", "anger"}),
        )
        for shown in (
            lambda moods: f"frozenset({{{str(moods)[1:-1]}}})" if moods else "frozenset()",
            lambda moods: f"{{{str(moods)[1:-1]}}}" if moods else "set()",
            lambda moods: f"Index({moods}, dtype='object')",
            lambda moods: f"c({json.dumps(moods)[1:-1]})",
            lambda moods: json.dumps(str(moods)),
        )
    },
    **{
        f"labels with {sign!r} between": (
            "a.csv",
            lambda sign=sign: (
                csv_of(
                    text=text, mood=lambda i: ("joy", f"joy{sign}fear", f"anger{sign}fear")[i % 3]
                )
                .replace(f"joy{sign}fear", f'"joy{sign}fear"')
                .replace(f"anger{sign}fear", f'"anger{sign}fear"')
            ),
            Refused([f"several labels separated by {sign!r}", "--task multi_label"]),
        )
        for sign in ("\n", "\t")
    },
    **{
        f"numbers of labels with {sign!r} between": (
            "a.csv",
            lambda sign=sign: csv_of(text=text, labels=lambda i: f"{i % 3}{sign}{3 + i % 2}"),
            Refused(["several labels", "--task multi_label"]),
        )
        for sign in (" ", ",")
    },
    "two columns of labels": (
        "a.csv",
        lambda: csv_of(text=text, label1=side, label2=lambda i: side(i // 3) if i % 2 else ""),
        Refused(["label1, label2", "--label NAME"]),
    ),
    "a numbered label and text": (
        "a.csv",
        lambda: csv_of(v1=side, v2=text),
        Read("classification", {"text": "v2", "label": "v1"}),
    ),
    "0 and 1 without signs": (
        "a.csv",
        lambda: csv_of(text=text, y=lambda i: "".join(map(str, hot(i)))),
        Refused(["0 and 1 by position", "0,1,1"]),
    ),
    "one label in each row": (
        "a.csv",
        lambda: csv_of(
            text=text,
            bad=lambda i: int(i % 3 == 0),
            fair=lambda i: int(i % 3 == 1),
            good=lambda i: int(i % 3 == 2),
        ),
        Read("multi_label", says="Each row has exactly one label"),
    ),
    "a label and its score": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: {"label": side(i), "score": 0.9}),
        Refused(["label holds structures"]),
    ),
    "labels as objects": (
        "a.jsonl",
        lambda: jsonl_of(text=text, labels=lambda i: [{"name": mood} for mood in MOODS[i % 5]]),
        Refused(["labels holds structures"]),
    ),
    "a list of words as a text": (
        "a.csv",
        lambda: csv_of(text=lambda i: text(i).split(), label=side),
        Refused(["text has lists"], {"columns": {"text": "text"}}),
    ),
    "list as text": (
        "a.csv",
        lambda: csv_of(text=text, labels=lambda i: MOODS[i % 5]),
        Read("multi_label", labels={"joy", "fear", "anger"}),
    ),
    "json list as text": (
        "a.csv",
        lambda: csv_of(text=text, moods=lambda i: json.dumps(MOODS[i % 5])),
        Read("multi_label", {"labels": "moods"}, labels={"joy", "fear", "anger"}),
    ),
    "list without marks": (
        "a.csv",
        lambda: csv_of(text=text, moods=lambda i: f"[{', '.join(MOODS[i % 5])}]"),
        Read("multi_label", {"labels": "moods"}, labels={"joy", "fear", "anger"}),
    ),
    "numpy list": (
        "a.csv",
        lambda: csv_of(text=text, moods=lambda i: f"[{' '.join(map(str, range(i % 3)))}]"),
        Read("multi_label", {"labels": "moods"}, labels={"0", "1"}),
    ),
    "tuples": (
        "a.csv",
        lambda: csv_of(text=text, moods=lambda i: tuple(MOODS[i % 5])),
        Read("multi_label", labels={"joy", "fear", "anger"}),
    ),
    "sets": (
        "a.csv",
        lambda: csv_of(text=text, moods=lambda i: "{'joy', 'fear'}" if i % 2 else "{'anger'}"),
        Read("multi_label", labels={"joy", "fear", "anger"}),
    ),
    "lists of one": ("a.jsonl", lambda: jsonl_of(text=text, label=lambda i: [side(i)]), CLASSIFIED),
    "lists of one as text": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: f'["{side(i)}"]'),
        CLASSIFIED,
    ),
    "lists of one or none": (
        "a.jsonl",
        lambda: jsonl_of(text=text, label=lambda i: [side(i)] if i % 9 else []),
        Refused(["--task classification"]),
    ),
    "0 and 1 by position": (
        "a.jsonl",
        lambda: jsonl_of(text=text, labels=hot),
        Read("multi_label", {"multi_hot": True}, labels={"0", "1", "2"}),
    ),
    "0.0 and 1.0 by position": (
        "a.csv",
        lambda: csv_of(text=text, y=lambda i: [float(one) for one in hot(i)]),
        Read("multi_label", {"multi_hot": True}, labels={"0", "1", "2"}),
    ),
    "0 and 1 between blanks": (
        "a.csv",
        lambda: csv_of(text=text, y=lambda i: " ".join(map(str, hot(i)))),
        Read("multi_label", {"multi_hot": True, "label_separator": " "}, labels={"0", "1", "2"}),
    ),
    "numpy's 0 and 1": (
        "a.csv",
        lambda: csv_of(text=text, y=lambda i: f"[{' '.join(map(str, hot(i)))}]"),
        Read("multi_label", {"multi_hot": True}, labels={"0", "1", "2"}),
    ),
    "columns of 0 and 1": (
        "a.csv",
        lambda: csv_of(
            id=digest,
            text=text,
            joy=lambda i: i % 2,
            fear=lambda i: int(i % 3 == 0),
            rare=lambda i: 0,
            odd=lambda i: int(i % 5 == 0),
        ),
        Read(
            "multi_label", {"labels": ["joy", "fear", "rare", "odd"]}, labels={"joy", "fear", "odd"}
        ),
    ),
    "columns of truth": (
        "a.jsonl",
        lambda: jsonl_of(
            text=text, joy=lambda i: i % 2 == 0, fear=lambda i: i % 3 == 0, odd=lambda i: i % 5 == 0
        ),
        Read("multi_label", {"labels": ["joy", "fear", "odd"]}, labels={"joy", "fear", "odd"}),
    ),
    "columns of Y and N": (
        "a.csv",
        lambda: csv_of(
            text=text,
            joy=lambda i: "NY"[i % 2],
            fear=lambda i: "ny"[i % 3 == 0],
            odd=lambda i: "FT"[i % 5 == 0],
        ),
        Read("multi_label", {"labels": ["joy", "fear", "odd"]}, labels={"joy", "fear", "odd"}),
    ),
    "a column y of y and n": (
        "a.csv",
        lambda: csv_of(review=text, y=lambda i: "ny"[i % 2]),
        Read("classification", {"label": "y"}, labels={"y", "n"}),
    ),
    "T and F": (
        "a.csv",
        lambda: csv_of(review=text, fine=lambda i: "FT"[i % 2]),
        Read("classification", {"label": "fine"}, labels={"T", "F"}),
    ),
    "probabilities of classes": (
        "a.jsonl",
        lambda: jsonl_of(text=text, label=lambda i: [i % 4 / 4, 1 - i % 4 / 4]),
        Refused(["lists with decimals such as 0.25", "the likeliest class"]),
    ),
    "numbers of sections": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: ("1.1", "1.10", "2.3")[i % 3]),
        Read("regression", says="as classes: --task classification"),
    ),
    "two columns of 0 and 1": (
        "a.csv",
        lambda: csv_of(text=text, joy=lambda i: i % 2, fear=lambda i: int(i % 3 == 0)),
        Refused(["--labels NAME,...", "joy, fear"]),
    ),
    "two columns of 0 and 1, named": (
        "a.csv",
        lambda: csv_of(text=text, joy=lambda i: i % 2, fear=lambda i: int(i % 3 == 0)),
        Read("multi_label", labels={"joy", "fear"}, flags={"columns": {"labels": ["joy", "fear"]}}),
    ),
    "-1 of hidden labels": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: -1 if i % 10 == 0 else i % 3),
        Read("classification", {"no_label": ["-1"]}, 54, {"0", "1", "2"}, "'-1' (6 rows)"),
    ),
    "-1 beside 0 and 1": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: -1 if i % 10 == 0 else i % 2),
        Refused(["--no-label", "'-1' (6 rows)"]),
    ),
    "-1 as a class": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: -1 if i % 10 == 0 else i % 2),
        Read("classification", labels={"-1", "0", "1"}, flags={"no_label": []}),
    ),
    "-1 and 1": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: 2 * (i % 2) - 1),
        Read("classification", labels={"-1", "1"}),
    ),
    "nan": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: side(i) if i % 10 else "nan"),
        Read("classification", {"no_label": ["nan"]}, 54, {"good", "bad"}),
    ),
    r"\N": (
        "a.tsv",
        lambda: csv_of("\t", text=text, label=lambda i: side(i) if i % 10 else r"\N"),
        Read("classification", {"no_label": [r"\N"]}, 54, {"good", "bad"}),
    ),
    "null": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: side(i) if i % 10 else "NULL"),
        Read("classification", {"no_label": ["NULL"]}, 54, {"good", "bad"}),
    ),
    "a dash": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: side(i) if i % 10 else "-"),
        Refused(["--no-label", "'-' (6 rows)"]),
    ),
    "a dash that is none": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: side(i) if i % 10 else "-"),
        Read("classification", num=54, labels={"good", "bad"}, flags={"no_label": ["-"]}),
    ),
    "NA is a class": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: ("NA", "EU")[i % 2]),
        Read("classification", labels={"NA", "EU"}),
    ),
    "1 and 1.0": (
        "a.jsonl",
        lambda: jsonl_of(text=text, label=lambda i: (1, "1", 1.0, 0)[i % 4]),
        Read("classification", labels={"0", "1"}),
    ),
    "1.0 in a csv": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: ("1.0", "1", "0")[i % 3]),
        Read("classification", labels={"0", "1"}),
    ),
    "1 and true": (
        "a.jsonl",
        lambda: jsonl_of(text=text, label=lambda i: (1, True, 0, False)[i % 4]),
        Refused(["'1'", "'True'", "--label-case"]),
    ),
    "case": (
        "a.csv",
        lambda: csv_of(text=text, label=variants),
        Refused(["'GOOD' (10 rows) and 'good' (20 rows)", "label_case: fold"]),
    ),
    "letters of two scripts": (
        "a.csv",
        lambda: csv_of(
            text=text, label=lambda i: "s\u0440am" if i % 20 == 1 else ("spam", "no")[i % 2]
        ),
        Refused(["--label-case", "with CYRILLIC SMALL LETTER ER"]),
    ),
    "case, folded": (
        "a.csv",
        lambda: csv_of(text=text, label=variants),
        Read(
            "classification",
            {"label_case": "fold"},
            labels={"good", "bad"},
            flags={"label_case": "fold"},
        ),
    ),
    **{
        f"{first} and {second}": (
            "a.csv",
            lambda first=first, second=second: csv_of(
                text=text, label=lambda i: (first, second, "bad")[i % 3]
            ),
            Refused(["labels that look alike", repr(first), repr(second)]),
        )
        for first, second in (
            ("01", "1"),
            ("\u0661", "1"),
            ("Good.", "good"),
            ("'good'", "good"),
            ("very_good", "very good"),
            ("very-good", "very good"),
            ("don’t", "don't"),
            ("café", "cafe"),
            ("R&amp;D", "R&D"),
            ("\u2764\ufe0f", "\u2764"),
        )
    },
    "unlike labels": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: ("C", "C++", "C#", "-1 C", "A+", "A-")[i % 6]),
        Read("classification", labels={"C", "C++", "C#", "-1 C", "A+", "A-"}),
    ),
    "spellings, folded": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: ("Very-good.", "very_good", "bad")[i % 3]),
        Read("classification", labels={"very good", "bad"}, flags={"label_case": "fold"}),
    ),
    "wide letters": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: ("ｇｏｏｄ", "good", "bad")[i % 3]),
        Refused(["look alike", "'good'"]),
    ),
    "invisible signs": (
        "a.csv",
        lambda: csv_of(
            text=text, label=lambda i: side(i) + ("", "\u200b", "\xa0", "\u00ad")[i % 4]
        ),
        CLASSIFIED,
    ),
    "forms of accents": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: ("caf\u00e9", "cafe\u0301", "bar")[i % 3]),
        Read("classification", labels={"caf\u00e9", "bar"}),
    ),
    "decimal commas": (
        "a.csv",
        lambda: csv_of(";", text=text, score=lambda i: f"{i % 7},{i % 10}5"),
        Read("regression", {"decimal": "comma", "delimiter": "semicolon"}),
    ),
    "decimal commas and points": (
        "a.tsv",
        lambda: csv_of("\t", text=text, price=lambda i: f"{i + 1}.000,{i + 10}"),
        Read("regression", {"decimal": "comma"}),
    ),
    "commas of thousands": (
        "a.csv",
        lambda: csv_of(text=text, price=lambda i: f"{i + 1},000"),
        Refused(["--task regression"]),
    ),
    "decimals or lists": (
        "a.csv",
        lambda: csv_of(";", text=text, marks=lambda i: (f"{i % 7},5", "3")[i % 2]),
        Refused(["--task"]),
    ),
    "no numbers among numbers": (
        "a.csv",
        lambda: csv_of(
            text=text, score=lambda i: ("nan", "-", "inf")[i % 3] if i % 10 == 0 else i / 7
        ),
        Read("regression", {"empty_cells": "skip"}, 54, says="6 of 60 rows"),
    ),
    **{
        f"the number {spelt(1)}": (
            "a.csv",
            partial(scores_of, spelt),
            Read("regression", {"decimal": "comma"} if "," in spelt(1)[-3:] else {}),
        )
        for spelt in (
            lambda i: f"{i + 1} 234,5",
            lambda i: f"{i + 1}\xa0234,5",
            lambda i: f"{i + 1}'234.5",
            lambda i: f"{i + 1},234.5",
            lambda i: f"\u2212{i / 7 + 1:.2f}",
            lambda i: f",{i + 1}",
            lambda i: f"{i + 1},5E-03",
        )
    },
    **{
        f"{spelt(1)} is no number": ("a.csv", partial(scores_of, spelt), Refused(["is no number"]))
        for spelt in (
            lambda i: f"{i + 1}.5 %",
            lambda i: f"€{i + 1}.50",
            lambda i: f"{i + 1},50 EUR",
            lambda i: f"{i + 1}.5k",
            lambda i: f"{i / 8:.1f}/10",
        )
    },
    "an amount as a target": (
        "a.csv",
        lambda: csv_of(text=text, price=lambda i: f"$ {i}.50"),
        Refused(["'$ 0.50' of price is no number"], {"columns": {"target": "price"}}),
    ),
    **{
        f"{sign} is no number": (
            "a.csv",
            partial(scores_of, lambda i, sign=sign: i / 7 if i % 20 else sign),
            Read("regression", {"empty_cells": "skip"}, 57, says="3 of 60 rows"),
        )
        for sign in ("NA", "N/A", "n.a.", "-nan(ind)")
    },
    # Tags
    **{
        f"tags as {tags[0]}": ("a.conll", partial(conll_of, tags), spans(tag_form=form))
        for tags, form in (
            (["B.PER", "B.LOC", "I.LOC", "O", "O", "B.LOC"], "prefix"),
            (["B/PER", "B/LOC", "I/LOC", "O", "O", "B/LOC"], "prefix"),
            (["B–PER", "B–LOC", "I–LOC", "O", "O", "B–LOC"], "prefix"),
            (["PER.B", "LOC.B", "LOC.I", "O", "O", "LOC.B"], "suffix"),
            (["B-PER", "B-LOC", "I-LOC", "*", "*", "B-LOC"], "prefix"),
        )
    },
    **{
        f"tags written out: {tags[0]}": (
            "a.conll",
            partial(conll_of, tags),
            Refused(["written out", repr(tags[0])]),
        )
        for tags in (
            ["Begin-PER", "Begin-LOC", "Inside-LOC", "Outside", "Outside", "Begin-LOC"],
            ["begin_per", "begin_loc", "inside_loc", "O", "O", "begin_loc"],
        )
    },
    **{
        f"numbers of tags, {odd}": (
            "a.conll",
            partial(conll_of, ["1", "3", "4", "0", odd, "3"]),
            Refused(["the tags are the numbers", "--tag-names"]),
        )
        for odd in ("-100", "2.0", "0")
    },
    **{
        f"{sign} outside of spans without letters": (
            "a.conll",
            partial(conll_of, ["PER", "LOC", "LOC", sign, sign, "LOC"]),
            Read("tagging", labels=SPANS.labels, flags={"tag_scheme": "io"}),
        )
        for sign in ("*", "_", "-")
    },
    "tags before words": (
        "a.conll",
        lambda: "".join(f"O\tHe{i}\nO\tsaw\nB-LOC\tRome\n\n" for i in range(NUM)),
        Read("tagging", {"columns": ["tags", "words"]}, labels={"O", "B-LOC"}),
    ),
    **{
        f"words and tags in cells, with {sign!r}": (
            "a.csv",
            lambda sign=sign: csv_of(
                sentence=lambda i: f"He{i} left Rome", y=lambda i: sign.join(("O", "O", "B-LOC"))
            ),
            Read(
                "tagging",
                labels={"O", "B-LOC"},
                flags={"columns": {"words": "sentence", "tags": "y"}},
            ),
        )
        for sign in (" ", ",")
    },
    "a sentence without blank lines": (
        "a.conll",
        lambda: conll_of(BIO).replace("\n\n", "\n"),
        Refused(["1 rows", "a blank line ends each sentence"]),
    ),
    "bilou": (
        "a.conll",
        lambda: conll_of(["U-PER", "B-LOC", "L-LOC", "O", "O", "U-LOC"]),
        spans(tag_scheme="bilou"),
    ),
    "bmes": (
        "a.conll",
        lambda: conll_of(["S-PER", "B-LOC", "E-LOC", "O", "O", "S-LOC"]),
        spans(tag_scheme="bioes"),
    ),
    "bmes of long words": (
        "a.conll",
        lambda: conll_of(["B-PER", "M-PER", "E-PER", "O", "O", "S-LOC"]),
        Read("tagging", {"tag_scheme": "bmes"}, labels={"O", "B-PER", "I-PER", "B-LOC"}),
    ),
    "type first": (
        "a.conll",
        lambda: conll_of(["PER-B", "LOC-B", "LOC-I", "O", "O", "LOC-B"]),
        spans(tag_form="suffix"),
    ),
    "type first, in bioes": (
        "a.conll",
        lambda: conll_of(["PER_S", "LOC_B", "LOC_E", "O", "O", "LOC_S"]),
        spans(tag_form="suffix", tag_scheme="bioes"),
    ),
    "small letters": (
        "a.conll",
        lambda: conll_of(["b-PER", "b-LOC", "i-LOC", "o", "o", "b-LOC"]),
        spans(tag_form="prefix"),
    ),
    "underscores": (
        "a.conll",
        lambda: conll_of(["B_PER", "B_LOC", "I_LOC", "O", "O", "B_LOC"]),
        spans(tag_form="prefix"),
    ),
    "0 for O": (
        "a.conll",
        lambda: conll_of(["B-PER", "B-LOC", "I-LOC", "0", "0", "B-LOC"]),
        spans(tag_form="prefix"),
    ),
    "no types": (
        "a.conll",
        lambda: conll_of(["B", "B", "I", "O", "O", "B"]),
        Read("tagging", {"tag_form": "prefix"}, labels={"O", "B-SPAN", "I-SPAN"}),
    ),
    "no letters": (
        "a.conll",
        lambda: conll_of(["PER", "LOC", "LOC", "O", "O", "LOC"]),
        Refused(["--tag-scheme io", "--tag-scheme words"]),
    ),
    "no letters, as spans": (
        "a.conll",
        lambda: conll_of(["PER", "LOC", "LOC", "O", "O", "LOC"]),
        Read("tagging", {"tag_scheme": "io"}, labels=SPANS.labels, flags={"tag_scheme": "io"}),
    ),
    "numbers of tags": (
        "a.jsonl",
        lambda: jsonl_of(tokens=lambda i: [f"He{i}", "saw", "Rome"], ner_tags=lambda i: [0, 0, 1]),
        Refused(["--tag-names", "--tag-scheme words"]),
    ),
    "named numbers of tags": (
        "a.jsonl",
        lambda: jsonl_of(tokens=lambda i: [f"He{i}", "saw", "Rome"], ner_tags=lambda i: [0, 0, 1]),
        Read(
            "tagging",
            {"tag_names": ["O", "B-LOC"]},
            labels={"O", "B-LOC"},
            flags={"tag_names": ["O", "B-LOC"]},
        ),
    ),
    "an odd tag": (
        "a.conll",
        lambda: conll_of(BIO) + "x PER-\ny B-PER\n\n",
        Refused(["a.conll line 481", "'PER-' (1)", "bio"]),
    ),
    "an empty tag": (
        "a.conll",
        lambda: conll_of(BIO, "\t") + "x\t\ny\tB-PER\n\n",
        Read("tagging", {"empty_cells": "skip"}, NUM, SPANS.labels, "1 of 61 rows"),
    ),
    "parts of speech": (
        "a.conll",
        lambda: conll_of(["PROPN", "ADJ", "NOUN", "VERB", "ADV", "PROPN"]),
        Read("tagging", labels={"PROPN", "ADJ", "NOUN", "VERB", "ADV"}),
    ),
    "a colon": (
        "a.conll",
        lambda: conll_of(["B:PER", "B:LOC", "I:LOC", "O", "O", "B:LOC"]),
        spans(tag_form="prefix"),
    ),
    "another sign for O": (
        "a.conll",
        lambda: conll_of(["B-PER", "B-LOC", "I-LOC", "OUT", "OUT", "B-LOC"]),
        Refused(["'OUT' (", "write O", "--tag-scheme words"]),
    ),
    "nested tags": (
        "a.conll",
        lambda: conll_of(["B-PER", "B-LOC|B-ORG", "I-LOC|O", "O", "O", "B-LOC"]),
        Refused(["'B-LOC|B-ORG'", "--tag-scheme words"]),
    ),
    "brackets of CoNLL-2012": (
        "a.conll",
        lambda: conll_of(["(PERSON)", "(GPE*", "*)", "*", "*", "(GPE)"]),
        Refused(["bracket", "--tag-scheme words"]),
    ),
    "one tag": ("a.conll", lambda: conll_of(["O"] * 6), Refused(["a.conll", "tag 'O'"])),
    **{
        f"languages before words: {first}": (
            "a.conll",
            lambda first=first: re.sub(r"(?m)^(?=.)", first, conll_of(BIO)),
            Refused(["words: each begins with a language", f"'{first}He", "sed -E"]),
        )
        for first in ("en:", "zh-min-nan:")
    },
    "languages before listed words": (
        "a.jsonl",
        lambda: jsonl_of(
            tokens=lambda i: [f"de:Er{i}", "en:Rome"], ner_tags=lambda i: ["O", "B-LOC"]
        ),
        Refused(["words: each begins with a language"]),
    ),
    "languages and spans of words": (
        "a.jsonl",
        lambda: jsonl_of(
            tokens=lambda i: [f"He{i}", "Rome", "12:30"],
            ner_tags=lambda i: ["O", "B-LOC", "O"],
            langs=lambda i: ["en", "en", "en"],
            spans=lambda i: ["LOC: Rome"],
        ),
        Read("tagging", {"tags": "ner_tags"}, labels={"O", "B-LOC"}),
    ),
    # Rows
    "empty rows": (
        "a.csv",
        lambda: csv_of(text=text, label=side) + ",\n" * 30,
        CLASSIFIED,
    ),
    "a printed table": (
        "a.txt",
        lambda: csv_of("|", text=text, label=side).replace("\n", "\n---|---\n", 1),
        Refused(["a.txt line 2", "printed table"], {"format": "csv", "delimiter": "bar"}),
    ),
    "a table of psql": (
        "a.txt",
        lambda: csv_of("|", text=text, label=side).replace("\n", "\n-----+-----\n", 1),
        Refused(["a.txt line 2", "psql --csv"], {"format": "csv", "delimiter": "bar"}),
    ),
    "a title above": (
        "a.csv",
        lambda: "Survey of 2023,,\n" + csv_of(text=text, label=side, id=int),
        Refused(["'Survey of 2023'", "title"]),
    ),
    "the same cells in a first row": (
        "a.tsv",
        lambda: "".join(f"{text(i // 2 * 2)}\t{text(i)}\n" for i in range(NUM)),
        Refused(
            ["a.tsv line 1", "two columns have the name", "`columns: [...]`"], {"header": True}
        ),
    ),
    "names of rows": (
        "a.csv",
        lambda: "text,label\n" + "".join(f"{i + 1},{text(i)},{side(i)}\n" for i in range(NUM)),
        Refused(["a.csv line 2", "row.names = FALSE"]),
    ),
    "quoted columns of a tsv": (
        "a.tsv",
        lambda: '"text"\t"label"\n' + "".join(f'"{text(i)}"\t"{side(i)}"\n' for i in range(NUM)),
        Refused(["--format csv --delimiter tab", "--format tsv"]),
    ),
    "doubled quotes in a tsv": (
        "a.tsv",
        lambda: csv_of("\t", text=text, label=side) + '"a ""fine"" film"\tgood\n',
        Refused(["--format csv --delimiter tab"]),
    ),
    "quoted columns of a tsv, as csv": (
        "a.tsv",
        lambda: '"text"\t"label"\n' + "".join(f'"{text(i)}"\t"{side(i)}"\n' for i in range(NUM)),
        Read(
            "classification",
            labels={"good", "bad"},
            flags={"format": "csv", "delimiter": "tab"},
        ),
    ),
    "sentences in a tsv": (
        "a.tsv",
        lambda: "word\ttag\n" + conll_of(BIO, "\t"),
        Refused(["a.tsv", "blank lines", "--format conll"]),
    ),
    "comments of GermEval": (
        "a.conll",
        lambda: "#\thttp://example.org [2009]\n" + conll_of(BIO, "\tNN\t"),
        Read("tagging", labels=SPANS.labels, flags={"names": ["words", "pos", "tags"]}),
    ),
    "sep": ("a.csv", lambda: "sep=;\n" + csv_of(";", text=text, label=side), CLASSIFIED),
    "sep of tabs": (
        "a.csv",
        lambda: "\ufeffsep=\t\r\n" + csv_of("\t", text=text, label=side),
        CLASSIFIED,
    ),
    "header in another order": (
        "a.csv",
        lambda: csv_of(text=text, label=side) + "label,text\ngood,more of it\n",
        Refused(["a.csv line 62", "another order"]),
    ),
    "header again without a name": (
        "a.csv",
        lambda: (
            ",text,label\n"
            + "".join(f"{i},{text(i)},{side(i)}\n" for i in range(NUM))
            + ",text,label\n"
        ),
        CLASSIFIED,
    ),
    "blank lines before the header": (
        "a.csv",
        lambda: "\n\n" + csv_of(text=text, label=side),
        CLASSIFIED,
    ),
    "blanks before quotation marks": (
        "a.csv",
        lambda: "text, label\n" + "".join(f'"{text(i)}, so", "{side(i)}"\n' for i in range(NUM)),
        Refused(["a blank stands before quotation marks", "sed"]),
    ),
    "an open quotation mark": (
        "a.csv",
        lambda: csv_of(text=text, label=side) + '"one more,good\n',
        Refused(["a.csv line 62", "never closes"]),
    ),
    "header again": (
        "a.csv",
        lambda: csv_of(text=text, label=side) + "text,label\nmore of it,good\n",
        Read("classification", num=61, labels={"good", "bad"}, says="1 lines repeat the header"),
    ),
    "header again with a mark": (
        "a.tsv",
        lambda: csv_of("\t", text=text, label=side) + "\ufeffText\tLabel\nmore of it\tgood\n",
        Read("classification", num=61, labels={"good", "bad"}),
    ),
    "comments": ("a.conll", lambda: "# sent_id = 1\n# text = He went\n" + conll_of(BIO), SPANS),
    "comments with tabs": ("a.conll", lambda: "# id 1\tdomain=en\n" + conll_of(BIO, "\t"), SPANS),
    "a hash is a word": (
        "a.conll",
        lambda: "# O\nfun O\n\n" + conll_of(BIO),
        Read("tagging", num=61, labels=SPANS.labels),
    ),
    "columns of a sign": (
        "a.conll",
        lambda: "# id 7f\n" + conll_of(BIO, " _ _ "),
        Read("tagging", {"columns": ["words", "column2", "column3", "tags"]}, labels=SPANS.labels),
    ),
    # Messages
    "half a pair": (
        "a.jsonl",
        lambda: jsonl_of(text=lambda i: text(i) + "\ud83d" * (i == 4), label=side),
        Refused(["a.jsonl line 5", "surrogate"]),
    ),
    "half a pair in a list": (
        "a.json",
        lambda: json.dumps(
            [{"text": text(i) + "\udc00" * (i == 4), "label": side(i)} for i in range(NUM)]
        ),
        Refused(["a.json object 5", "surrogate"]),
    ),
    "half a pair in bytes": (
        "a.csv",
        lambda: csv_of(text=text, label=side).encode().replace(b"a dull", b"a \xed\xa0\xbd", 1),
        Refused(["a.csv line 2", "surrogate"]),
    ),
    **{
        f"objects {how}": (
            "a.json",
            partial(joined_objects, sign),
            Refused(["a.json line 1", "one list"]),
        )
        for how, sign in {"with commas": ",\n", "in one line": ""}.items()
    },
    "lines that end in CR": (
        "a.jsonl",
        lambda: jsonl_of(text=text, label=side).replace("\n", "\r"),
        Refused(["a.jsonl line 1", "carriage return", "tr "]),
    ),
    **{
        f"a list below {key}": (
            "a.json",
            lambda key=key: json.dumps({"version": 1, key: contexts()}),
            Refused(["a.json line 1", f"jq .{key} FILE"]),
        )
        for key in ("rows", "contexts", "paragraphs")
    },
    **{
        f"json called csv, {first}": (
            "a.csv",
            lambda first=first: first + jsonl_of(text=text, label=side),
            Refused(["a.csv", "--format jsonl"]),
        )
        for first in ("", "[")
    },
    "lines in json": ("a.json", lambda: jsonl_of(text=text, label=side), CLASSIFIED),
    "json in lines": (
        "a.jsonl",
        lambda: json.dumps([{"text": text(i), "label": side(i)} for i in range(NUM)], indent=1),
        Refused(["a.jsonl line 1", "format: json"]),
    ),
    "nameless columns": (
        "a.csv",
        lambda: csv_of(text=text, label=side).replace("\n", ",,,\n"),
        Read("classification", labels={"good", "bad"}, says="Unnamed: 2 (empty)"),
    ),
    "nameless and filled": (
        "a.csv",
        lambda: csv_of(text=text, label=side).replace("\n", ",,\n") + "more,good,no,\n",
        Refused(["not name column 3", "--header"]),
    ),
    "commas at the end": (
        "a.csv",
        lambda: (
            "text,label\n" + csv_of(text=text, label=side).partition("\n")[2].replace("\n", ",\n")
        ),
        CLASSIFIED,
    ),
    "backslashes": (
        "a.csv",
        lambda: 'text,label\n"a \\"fine\\" film",good\n',
        Refused(["a.csv line 2", 'has \\" for', "sed"]),
    ),
    "a lone CR": (
        "a.csv",
        lambda: csv_of(text=text, label=side) + "two\rlines,good\n",
        Refused(["a.csv line 62", "carriage return", "sed"]),
    ),
    "a lone CR in a tsv": (
        "a.tsv",
        lambda: csv_of("\t", text=text, label=side) + "two\rlines\tbad\n",
        Refused(["a.tsv line 62", "carriage return"]),
    ),
    "CR alone": (
        "a.csv",
        lambda: csv_of(text=text, label=side).replace("\n", "\r"),
        Refused(["a.csv line 1", "carriage return", "tr "]),
    ),
    "tabs at the end": ("a.conll", lambda: conll_of(BIO, "\t", "\t"), SPANS),
    "a tab after three columns": (
        "a.conll",
        lambda: conll_of(BIO, "\tNN\t", "\t"),
        Refused(["a.conll", "column 4 is empty", "--columns"]),
    ),
    "a blank in a word": (
        "a.conll",
        lambda: conll_of(BIO) + "Old\xa0Town B-LOC\n\n",
        Read("tagging", num=61, labels=SPANS.labels),
    ),
    "xlsx": ("a.csv", lambda: b"PK\x03\x04" + bytes(99), Refused(["a.csv", "xlsx"])),
    **{
        f"a file of {what}": ("a.csv", lambda first=first: first + bytes(99), Refused([what]))
        for what, first in {
            "RAR": b"Rar!\x1a",
            "Feather": b"FEA1",
            "HDF5": b"\x89HDF\r\n",
            "NumPy": b"\x93NUMPY",
            "RTF": b"{\\rtf1",
            "binary": b"a\0b",
        }.items()
    },
    "utf-16 without a mark": (
        "a.csv",
        lambda: csv_of(text=text, label=side).encode("utf-16-le"),
        Refused(["a.csv line 1", "iconv -f UTF-16LE"]),
    ),
    "html": ("a.csv", lambda: "<!DOCTYPE html>\n<p>\n", Refused(["HTML"])),
    "gzip": ("a.csv", lambda: gzip.compress(b"text,label\n"), Refused(["gzip", ".gz"])),
    "parquet as csv": (
        "a.csv",
        lambda: parquet({"text": TEXTS, "label": SIDES}),
        Refused(["parquet"]),
    ),
    "utf-16": (
        "a.csv",
        lambda: csv_of(text=text, label=side).encode("utf-16"),
        Refused(["UTF-16", "iconv"]),
    ),
    "windows": (
        "a.csv",
        lambda: csv_of(text=lambda i: f"{text(i)} – „schön“ für £{i}…", label=side).encode(
            "cp1252"
        ),
        Refused(["a.csv line 2", "iconv -f WINDOWS-1252"]),
    ),
    "cyrillic windows": (
        "a.csv",
        lambda: csv_of(text=lambda i: f"это хороший фильм {i}", label=side).encode("cp1251"),
        Refused(["iconv -f WINDOWS-1251"]),
    ),
    "rare classes": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: f"rare{i}" if i % 6 == 0 else side(i)),
        Refused(["'rare0' (1)", "'rare54' (1)", "--min-rows-per-class"]),
    ),
    "rare classes left out": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: f"rare{i}" if i % 6 == 0 else side(i)),
        Read("classification", num=50, labels={"good", "bad"}, flags={"min_rows": 2}),
    ),
    "rows below data": (
        "a.json",
        lambda: json.dumps({"data": [{"text": text(i), "label": side(i)} for i in range(NUM)]}),
        CLASSIFIED,
    ),
    "spans of Label Studio in a csv": (
        "a.csv",
        lambda: csv_of(text=text, label=lambda i: '[{"start": 0, "end": 4, "labels": ["PER"]}]'),
        Refused(["Label Studio", "CONLL2003"]),
    ),
    "a table of R": (
        "a.csv",
        lambda: '"text" "label"\n' + "".join(f'"{i}" "{text(i)}" "{side(i)}"\n' for i in range(9)),
        Refused(["a.csv", "write.csv"]),
    ),
    "sql": ("a.sql", lambda: "INSERT INTO a VALUES\n('x', 'good');\n", Refused(["SQL"])),
    "xml": ("a.xml", lambda: "<?xml version='1.0'?>\n<a/>\n", Refused(["XML"])),
    "features": ("a.txt", lambda: "-1 3:0.5 9:1\n1 2:1 4:0.25\n", Refused(["LIBSVM"])),
    "webanno": ("a.tsv", lambda: "#FORMAT=WebAnno TSV 3.3\n\n", Refused(["INCEpTION", "CoNLL"])),
    "brat": ("a.ann", lambda: "T1\tPER 0 4\tAda\n", Refused(["BRAT", "conll"])),
    "list of contexts": ("a.json", lambda: json.dumps(contexts()), Read("span_qa")),
    "list of articles": (
        "a.json",
        lambda: json.dumps([{"title": "x", "paragraphs": [one]} for one in contexts()]),
        Read("span_qa"),
    ),
    "contexts in lines": ("a.jsonl", lambda: objects(contexts()), Refused(["qas", "structures"])),
    "doccano": (
        "a.jsonl",
        lambda: jsonl_of(id=int, text=text, label=lambda i: [[0, 4, "PER"]]),
        Refused(["doccano", "to_conll2003"]),
    ),
    "doccano's objects": (
        "a.jsonl",
        lambda: jsonl_of(
            id=int,
            text=text,
            relations=lambda i: [],
            entities=lambda i: [{"id": i, "label": "PER", "start_offset": 0, "end_offset": 4}],
        ),
        Refused(["doccano"]),
    ),
    "label studio": (
        "a.json",
        lambda: json.dumps(
            [
                {"id": i, "data": {"text": text(i)}, "annotations": [{"result": []}]}
                for i in range(NUM)
            ]
        ),
        Refused(["Label Studio", "JSON-MIN"]),
    ),
    **{
        f"{key} of label studio": (
            "a.json",
            lambda key=key: json.dumps(
                [{"id": i, "data": {"text": text(i)}, key: []} for i in range(NUM)]
            ),
            Refused(["Label Studio", "JSON-MIN"]),
        )
        for key in ("completions", "predictions")
    },
    "no label at all": (
        "a.jsonl",
        lambda: jsonl_of(text=text, topics=lambda i: []),
        Refused(["no row of train has a label"], {"columns": {"labels": "topics"}}),
    ),
    "doccano's csv": (
        "a.csv",
        lambda: csv_of(id=int, data=text, label=lambda i: side(i) + ("#odd" if i % 5 == 0 else "")),
        Refused(["several labels separated by '#'"]),
    ),
    "prodigy's spans": (
        "a.jsonl",
        lambda: jsonl_of(text=text, spans=lambda i: [], answer=lambda i: "accept"),
        Refused(["Prodigy"]),
    ),
    "prodigy": (
        "a.jsonl",
        lambda: jsonl_of(
            text=text, label=side, answer=lambda i: "accept", _input_hash=int, _task_hash=int
        ),
        Refused(["Prodigy", "accept"]),
    ),
    "spacy": (
        "a.json",
        lambda: json.dumps([[text(i), {"entities": [[0, 4, "PER"]]}] for i in range(NUM)]),
        Refused(["spaCy", "conll"]),
    ),
    "spacy's documents": (
        "a.json",
        lambda: json.dumps(
            [{"id": i, "paragraphs": [{"raw": text(i), "sentences": []}]} for i in range(NUM)]
        ),
        Refused(["spaCy"]),
    ),
    "argilla": (
        "a.json",
        lambda: json.dumps(
            [
                {
                    "id": str(i),
                    "fields": {"text": text(i)},
                    "responses": {"label": [{"value": side(i)}]},
                    "suggestions": {},
                }
                for i in range(NUM)
            ]
        ),
        Refused(["Argilla", "to_list"]),
    ),
    "decimals in parquet": (
        "a.parquet",
        lambda: parquet({"text": TEXTS, "score": [Decimal(i) / 8 for i in range(NUM)]}),
        Read("regression"),
    ),
    "bytes in parquet": (
        "a.parquet",
        lambda: parquet({"text": [t.encode() for t in TEXTS], "label": SIDES}),
        CLASSIFIED,
    ),
}

TOWN = Read("tagging", labels={"O", "B-LOC", "I-LOC"})
# Lines that a command of the message turns into a file that is read.
CONVERTED = {
    "fastText": (lambda i: f"__label__{side(i)} {text(i)}", CLASSIFIED),
    "TREC": (
        lambda i: f"{('HUM:ind', 'LOC:city')[i % 2]} What is {short_text(i)} ?",
        Read("classification", labels={"HUM:ind", "LOC:city"}),
    ),
    "SST": (
        lambda i: f"({i % 2} (2 It) ({i % 2} (2 is) (3 number{i})))",
        Read("classification", labels={"0", "1"}),
    ),
    "word/tag": (lambda i: f"He{i}/O saw/O Old/B-LOC Town/I-LOC  ./O", TOWN),
    "word_tag": (lambda i: f"He{i}_O saw_O Old_B-LOC Town_I-LOC ._O ", TOWN),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").write_text("")


def put(name: str) -> tuple[str, Read | Refused]:
    path, make, expected = ODD[name]
    content = make()
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path, expected


@pytest.mark.parametrize("name", [name for name, odd in ODD.items() if isinstance(odd[2], Read)])
def test_propose_and_prepare_task_read_odd_inputs_alike(name: str) -> None:
    path, expected = put(name)
    assert isinstance(expected, Read)
    proposal = proposed(path, **expected.flags)
    assert proposal.study.kind == expected.kind
    assert expected.settings.items() <= proposal.study.source.items()
    assert expected.says in " ".join(proposal.notes)
    assert len(proposal.rows) == 3 and all(": " in row for row in proposal.rows)
    Path("params.yaml").write_text(proposal.text)
    prepare(load(Path("params.yaml")), "a")
    rows = [read_jsonl(paths.examples("a") / f"{split}.jsonl") for split in SPLITS]
    seed = proposal.study.design.finetuning_seeds[0]
    assert sum(len(of_draw(part, seed)) for part in rows) == expected.num
    record = json.loads((paths.examples("a") / "task.json").read_text())
    assert expected.labels is None or {*record["labels"]} == expected.labels


@pytest.mark.parametrize("name", [name for name, odd in ODD.items() if isinstance(odd[2], Refused)])
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
    Path("params.yaml").write_text(proposal.text)
    prepare(load(Path("params.yaml")), "new")
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
    Path("a/train.csv").write_text(csv_of(text=text, label=side))
    Path("a/test.csv").write_text(csv_of(id=int, text=lambda i: f"more {text(i)}"))
    with pytest.raises(ValueError, match=r"test.csv line 2: no column 'label'.*leave out a file"):
        proposed("a")
    for side_ in ("pos", "neg"):
        Path(f"b/{side_}").mkdir(parents=True)
        Path(f"b/{side_}/1.txt").write_text("a fine film\n")
    with pytest.raises(ValueError, match="a folder for each class must become one csv file"):
        proposed("b")
