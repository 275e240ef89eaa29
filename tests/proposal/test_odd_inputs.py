"""Odd files of real users: what each is read as, or what its refusal says.

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
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow
import pyarrow.parquet
import pytest

from stages.core import paths
from stages.core.artifacts import Json, read_jsonl
from stages.tasks._kind import SPLITS
from stages.tasks._labelled_rows import of_draw
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
    says: str  # words of the notes
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
    kind: str,
    *labels: str,
    num: int = NUM,
    says: str = "",
    flags: Json | None = None,
    **settings: Any,
) -> Read:
    return Read(kind, {*labels}, settings, num, says, flags or {})


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
SPANS = spans(*SPAN_TAGS)
SEVERAL: Json = {"task": "multi_label"}
COMMA: Json = {"decimal": "comma"}
ONE_LABEL: Json = {"task": "classification"}
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


def joined_objects(sign: str) -> str:
    return sign.join(USUAL_JSONL.splitlines())


def scores_of(expected: Read | Refused, spelt: Make) -> Odd:
    return beside_texts(expected, ";", score=spelt)


def variants(i: int) -> str:
    return (side(i), side(i).upper(), side(i))[i % 3]


# Tags of the same spans, and the settings with which they are read.
FORMS: dict[str, Json] = {
    "B.PER B.LOC I.LOC O O B.LOC": {"tag_form": "prefix"},
    "B/PER B/LOC I/LOC O O B/LOC": {"tag_form": "prefix"},
    "B:PER B:LOC I:LOC O O B:LOC": {"tag_form": "prefix"},
    "B–PER B–LOC I–LOC O O B–LOC": {"tag_form": "prefix"},
    "B_PER B_LOC I_LOC O O B_LOC": {"tag_form": "prefix"},
    "b-PER b-LOC i-LOC o o b-LOC": {"tag_form": "prefix"},
    "B-PER B-LOC I-LOC * * B-LOC": {"tag_form": "prefix"},
    "B-PER B-LOC I-LOC 0 0 B-LOC": {"tag_form": "prefix"},
    "PER.B LOC.B LOC.I O O LOC.B": {"tag_form": "suffix"},
    "PER-B LOC-B LOC-I O O LOC-B": {"tag_form": "suffix"},
    "PER_S LOC_B LOC_E O O LOC_S": {"tag_form": "suffix", "tag_scheme": "bioes"},
    "U-PER B-LOC L-LOC O O U-LOC": {"tag_scheme": "bilou"},
    "S-PER B-LOC E-LOC O O S-LOC": {"tag_scheme": "bioes"},
}

USUAL, USUAL_TSV = csv_of(text=text, label=side), csv_of("\t", text=text, label=side)
USUAL_JSONL, SENTENCES = jsonl_of(text=text, label=side), conll_of(BIO)
QUOTED = '"text"\t"label"\n' + "".join(f'"{text(i)}"\t"{side(i)}"\n' for i in range(NUM))

ODD = {
    # Which column is what
    "object id": jsonl(
        classes(text="title"), _id=lambda i: {"$oid": digest(i, 24)}, title=short_text, label=side
    ),
    **{
        f"{name} of ids is no text": csv(
            classes(text="title"), ",", **{name: make}, title=short_text, label=side
        )
        for name, make in {
            "key": lambda i: UUID(digest(i, 32)),
            "AssignmentId": assignment,
            "file": lambda i: f"/data/My Files/{i}.txt",
            "f": lambda i: f"scans/{i % 7}/page_{i}.png",
            "sender": lambda i: f"person{i % 9}@example.org",
        }.items()
    },
    "ids alone": csv(refused("--text NAME"), sha1=digest, label=side),
    "spans as text": labelled(refused("entities", "structures"), side, entities="[(0, 4, 'PER')]"),
    "an object as text": labelled(
        classes(says="meta (structures)"), side, meta=lambda i: f"{{'source': 'web', 'n': {i}}}"
    ),
    **{
        f"answers in the columns {answer} and {start}": questions(answer, start)
        for answer, start in (
            ("answer", "answer_start"),
            ("answer_text", "start"),
            ("text", "answerStart"),
            ("answers.text", "answers.answer_start"),
        )
    },
    "no answer as text": asked(
        read("span_qa", says="12 of 60 questions have no answer"),
        answers=lambda i: [QUESTION] if i % 5 else [],
    ),
    "answers without a place": jsonl(
        refused("answers has no place in context", "answer_start", "--task seq2seq"),
        context=context,
        question=lambda i: f"What is {i} ?",
        answers=lambda i: ["film"],
    ),
    "words as text": csv(
        spans("O", "B-LOC"),
        tokens=lambda i: repr([f"He{i}", "left", "Rome"]),
        tags="['O', 'O', 'B-LOC']",
    ),
    "split": labelled(
        classes(split="split"), side, split=lambda i: ("train", "train", "dev", "test")[i // 2 % 4]
    ),
    "folds": labelled(refused("--split fold", "--split none"), side, fold=lambda i: i % 5),
    "folds left": labelled(classes(flags={"split": "none"}), side, fold=lambda i: i % 5),
    "long names": beside_texts(classes(label="area"), area=lambda i: LONG.format(i % 3)),
    "rarer long names": beside_texts(
        refused("--label NAME", "target=NAME"), area=lambda i: LONG.format(i % 12)
    ),
    "a pair by number": tsv(
        classes(text="#1 String", text_pair="#2 String"),
        Quality=lambda i: i % 2,
        **{"#1 String": text, "#2 String": short_text},
    ),
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
        f"joined by {sign!r}, as several": joined_labels(
            sets("joy", "fear", "anger", flags=SEVERAL, label_separator=sign), sign
        )
        for sign in (" ", "/", " and ")
    },
    **{
        f"a path with {sign!r}": paths_of(
            refused(f"several labels separated by {sign.strip()!r}", "--task classification"), sign
        )
        for sign in (" > ", ">", " >> ", "->")
    },
    "a path as a class": paths_of(
        classes("Music", "Music > Pop, Rock", "News > Local", flags=ONE_LABEL), " > "
    ),
    "tags of Stack Overflow": csv(
        sets("c++", "python", flags=SEVERAL, label_separator="><"),
        Body=text,
        Tags=("<c++>", "<c++><python>", "<python>"),
    ),
    "names of several words": beside_texts(
        classes("very good", "good", "bad", "very bad", "so so"),
        mood=("very good", "good", "bad", "very bad", "so so"),
    ),
    "a hierarchy": beside_texts(
        classes(), shelf=("Home", "Home/Kitchen", "Garden/Home office", "I/O")
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
            lambda moods: f"frozenset({{{str(moods)[1:-1]}}})" if moods else "frozenset()",
            lambda moods: f"{{{str(moods)[1:-1]}}}" if moods else "set()",
            lambda moods: f"Index({moods}, dtype='object')",
            lambda moods: f"c({json.dumps(moods)[1:-1]})",
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
    **{
        f"numbers of labels with {sign!r} between": beside_texts(
            refused("several labels", "--task multi_label"),
            labels=tuple(f"{i % 3}{sign}{3 + i % 2}" for i in range(6)),
        )
        for sign in (" ", ",")
    },
    "0 and 1 without signs": beside_texts(
        refused("0 and 1 by position", "0,1,1"), y=lambda i: "".join(map(str, hot(i)))
    ),
    "one label in each row": beside_texts(
        sets(says="Each row has exactly one label"),
        bad=lambda i: int(i % 3 == 0),
        fair=lambda i: int(i % 3 == 1),
        good=lambda i: int(i % 3 == 2),
    ),
    "a label and its score": labelled(
        refused("label holds structures"), lambda i: {"label": side(i), "score": 0.9}
    ),
    "a list of words as a text": csv(
        refused("text has lists", columns={"text": "text"}),
        text=lambda i: text(i).split(),
        label=side,
    ),
    "sets": beside_texts(
        sets("joy", "fear", "anger"), moods=lambda i: "{'joy', 'fear'}" if i % 2 else "{'anger'}"
    ),
    "lists of one": jsonl(CLASSIFIED, text=text, label=lambda i: [side(i)]),
    "lists of one or none": jsonl(
        refused("--task classification"), text=text, label=lambda i: [side(i)] if i % 9 else []
    ),
    "0 and 1 by position": jsonl(sets("0", "1", "2", multi_hot=True), text=text, labels=hot),
    "numpy's 0 and 1": beside_texts(
        sets("0", "1", "2", multi_hot=True), y=lambda i: f"[{' '.join(map(str, hot(i)))}]"
    ),
    "columns of 0 and 1": csv(
        sets("joy", "fear", "odd", labels=["joy", "fear", "rare", "odd"]),
        id=digest,
        text=text,
        joy=lambda i: i % 2,
        fear=lambda i: int(i % 3 == 0),
        rare="0",
        odd=lambda i: int(i % 5 == 0),
    ),
    "a column y of y and n": csv(
        classes("y", "n", label="y"), review=text, y=lambda i: "ny"[i % 2]
    ),
    "probabilities of classes": jsonl(
        refused("lists with decimals such as 0.25", "the likeliest class"),
        text=text,
        label=lambda i: [i % 4 / 4, 1 - i % 4 / 4],
    ),
    "numbers of sections": labelled(
        read("regression", says="as classes: --task classification"),
        lambda i: ("1.1", "1.10", "2.3")[i % 3],
    ),
    "letters of two scripts": labelled(
        refused("label_case", "with CYRILLIC SMALL LETTER ER"),
        lambda i: "s\u0440am" if i % 20 == 1 else ("spam", "no")[i % 2],
    ),
    "two columns of 0 and 1, named": beside_texts(
        sets("joy", "fear", flags={"columns": {"labels": ["joy", "fear"]}}),
        joy=lambda i: i % 2,
        fear=lambda i: int(i % 3 == 0),
    ),
    "-1 of hidden labels": labelled(
        classes("0", "1", "2", num=54, says="'-1' (6 rows)", no_label=["-1"]),
        mostly((0, 1, 2), -1),
    ),
    "-1 beside 0 and 1": labelled(refused("no_label", "'-1' (6 rows)"), mostly((0, 1), -1)),
    "-1 as a class": labelled(classes("-1", "0", "1", flags={"no_label": []}), mostly((0, 1), -1)),
    **{
        f"{sign} for no label": labelled(
            classes("good", "bad", num=54, no_label=[sign]), mostly(side, sign)
        )
        for sign in ("nan", "NULL")
    },
    "NA is a class": labelled(classes("NA", "EU"), ("NA", "EU")),
    "1 and 1.0": jsonl(classes("0", "1"), text=text, label=(1, "1", 1.0, 0)),
    "case": labelled(
        refused("'GOOD' (10 rows) and 'good' (20 rows)", "label_case: fold"), variants
    ),
    "case, folded": labelled(
        classes("good", "bad", flags={"label_case": "fold"}, label_case="fold"), variants
    ),
    **{
        f"{first} and {second}": labelled(
            refused("labels that look alike", repr(first), repr(second)), (first, second, "bad")
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
    "unlike labels": labelled(
        classes("C", "C++", "C#", "-1 C", "A+", "A-"), ("C", "C++", "C#", "-1 C", "A+", "A-")
    ),
    "invisible signs": labelled(
        CLASSIFIED, lambda i: side(i) + ("", "\u200b", "\xa0", "\u00ad")[i % 4]
    ),
    "decimal commas": beside_texts(
        read("regression", decimal="comma", delimiter="semicolon"),
        ";",
        score=lambda i: f"{i % 7},{i % 10}5",
    ),
    "decimal commas and points": tsv(
        read("regression", decimal="comma"), text=text, price=lambda i: f"{i + 1}.000,{i + 10}"
    ),
    "no numbers among numbers": beside_texts(
        read("regression", num=54, says="6 of 60 rows", empty_cells="skip"),
        score=lambda i: ("nan", "-", "inf")[i % 3] if i % 10 == 0 else i / 7,
    ),
    **{
        f"the number {spelt(1)}": scores_of(
            read("regression", **(COMMA if "," in spelt(1)[-3:] else {})), spelt
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
        f"{spelt(1)} is no number": scores_of(refused("is no number"), spelt)
        for spelt in (
            lambda i: f"{i + 1}.5 %",
            lambda i: f"€{i + 1}.50",
            lambda i: f"{i + 1},50 EUR",
            lambda i: f"{i + 1}.5k",
            lambda i: f"{i / 8:.1f}/10",
        )
    },
    **{
        f"{sign} is no number": scores_of(
            read("regression", num=57, says="3 of 60 rows", empty_cells="skip"),
            lambda i, sign=sign: i / 7 if i % 20 else sign,
        )
        for sign in ("NA", "N/A", "n.a.", "-nan(ind)")
    },
    # Tags
    **{
        f"tags as {tags}": conll(spans(*SPAN_TAGS, **settings), tags)
        for tags, settings in FORMS.items()
    },
    **{
        f"tags written out: {tags}": conll(refused("written out", repr(tags.split()[0])), tags)
        for tags in (
            "Begin-PER Begin-LOC Inside-LOC Outside Outside Begin-LOC",
            "begin_per begin_loc inside_loc O O begin_loc",
        )
    },
    **{
        f"numbers of tags, {odd}": conll(
            refused("the tags are the numbers", "tag_names"), f"1 3 4 0 {odd} 3"
        )
        for odd in ("-100", "2.0", "0")
    },
    **{
        f"{sign} outside of spans without letters": conll(
            spans(*SPAN_TAGS, flags={"tag_scheme": "io"}), f"PER LOC LOC {sign} {sign} LOC"
        )
        for sign in ("*", "_", "-")
    },
    "tags before words": Odd(
        "a.conll",
        "".join(f"O\tHe{i}\nO\tsaw\nB-LOC\tRome\n\n" for i in range(NUM)),
        spans("O", "B-LOC", columns=["tags", "words"]),
    ),
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
    "no types": conll(spans("O", "B-SPAN", "I-SPAN", tag_form="prefix"), "B B I O O B"),
    "no letters": conll(refused("tag_scheme=io", "tag_scheme=words"), "PER LOC LOC O O LOC"),
    "no letters, as spans": conll(
        spans(*SPAN_TAGS, flags={"tag_scheme": "io"}, tag_scheme="io"), "PER LOC LOC O O LOC"
    ),
    "named numbers of tags": jsonl(
        spans("O", "B-LOC", flags={"tag_names": ["O", "B-LOC"]}, tag_names=["O", "B-LOC"]),
        tokens=lambda i: [f"He{i}", "saw", "Rome"],
        ner_tags=lambda i: [0, 0, 1],
    ),
    "an odd tag": Odd(
        "a.conll",
        SENTENCES + "x PER-\ny B-PER\n\n",
        refused("a.conll line 481", "'PER-' (1)", "bio"),
    ),
    "an empty tag": Odd(
        "a.conll",
        conll_of(BIO, "\t") + "x\t\ny\tB-PER\n\n",
        spans(*SPAN_TAGS, num=NUM, says="1 of 61 rows", empty_cells="skip"),
    ),
    "parts of speech": conll(
        spans("PROPN", "ADJ", "NOUN", "VERB", "ADV"), "PROPN ADJ NOUN VERB ADV PROPN"
    ),
    "nested tags": conll(
        refused("'B-LOC|B-ORG'", "tag_scheme=words"), "B-PER B-LOC|B-ORG I-LOC|O O O B-LOC"
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
    "languages and spans of words": jsonl(
        spans("O", "B-LOC", tags="ner_tags"),
        tokens=lambda i: [f"He{i}", "Rome", "12:30"],
        ner_tags=lambda i: ["O", "B-LOC", "O"],
        langs=lambda i: ["en", "en", "en"],
        spans=lambda i: ["LOC: Rome"],
    ),
    # Rows
    "empty rows": Odd("a.csv", USUAL + ",\n" * 30, CLASSIFIED),
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
    "names of rows": Odd(
        "a.csv",
        "text,label\n" + "".join(f"{i + 1},{text(i)},{side(i)}\n" for i in range(NUM)),
        refused("a.csv line 2", "row.names = FALSE"),
    ),
    "quoted columns of a tsv, as csv": Odd(
        "a.tsv", QUOTED, classes("good", "bad", flags={"format": "csv", "delimiter": "tab"})
    ),
    "sentences in a tsv": Odd(
        "a.tsv",
        "word\ttag\n" + conll_of(BIO, "\t"),
        refused("a.tsv", "blank lines", "--format conll"),
    ),
    "comments of GermEval": Odd(
        "a.conll",
        "#\thttp://example.org [2009]\n" + conll_of(BIO, "\tNN\t"),
        spans(*SPAN_TAGS, flags={"names": ["words", "pos", "tags"]}),
    ),
    "sep of tabs": Odd("a.csv", "\ufeffsep=\t\r\n" + USUAL_TSV, CLASSIFIED),
    "header in another order": Odd(
        "a.csv", USUAL + "label,text\ngood,more of it\n", refused("a.csv line 62", "another order")
    ),
    "blank lines before the header": Odd("a.csv", "\n\n" + USUAL, CLASSIFIED),
    "blanks before quotation marks": Odd(
        "a.csv",
        "text, label\n" + "".join(f'"{text(i)}, so", "{side(i)}"\n' for i in range(NUM)),
        refused("a blank stands before quotation marks", "sed"),
    ),
    "an open quotation mark": Odd(
        "a.csv", USUAL + '"one more,good\n', refused("a.csv line 62", "never closes")
    ),
    "header again": Odd(
        "a.csv",
        USUAL + "text,label\nmore of it,good\n",
        classes("good", "bad", num=61, says="1 lines repeat the header"),
    ),
    "comments": Odd("a.conll", "# sent_id = 1\n# text = He went\n" + SENTENCES, SPANS),
    "a hash is a word": Odd("a.conll", "# O\nfun O\n\n" + SENTENCES, spans(*SPAN_TAGS, num=61)),
    # Messages
    **{
        f"objects {how}": Odd("a.json", joined_objects(sign), refused("a.json line 1", "one list"))
        for how, sign in {"with commas": ",\n", "in one line": ""}.items()
    },
    **{
        f"a list below {key}": Odd(
            "a.json",
            json.dumps({"version": 1, key: contexts()}),
            refused("a.json line 1", f"jq .{key} FILE"),
        )
        for key in ("rows", "contexts", "paragraphs")
    },
    **{
        f"json called csv, {first}": Odd(
            "a.csv", first + USUAL_JSONL, refused("a.csv", "--format jsonl")
        )
        for first in ("", "[")
    },
    "nameless columns": Odd(
        "a.csv", USUAL.replace("\n", ",,,\n"), classes("good", "bad", says="Unnamed: 2 (empty)")
    ),
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
    "a lone CR": Odd(
        "a.csv", USUAL + "two\rlines,good\n", refused("a.csv line 62", "carriage return", "sed")
    ),
    "CR alone": Odd(
        "a.csv", USUAL.replace("\n", "\r"), refused("a.csv line 1", "carriage return", "tr ")
    ),
    "tabs at the end": conll(SPANS, BIO, "\t", "\t"),
    "a blank in a word": Odd(
        "a.conll", SENTENCES + "Old\xa0Town B-LOC\n\n", spans(*SPAN_TAGS, num=61)
    ),
    "xlsx": Odd("a.csv", b"PK\x03\x04" + bytes(99), refused("a.csv", "xlsx")),
    **{
        f"a file of {what}": Odd("a.csv", first + bytes(99), refused(what))
        for what, first in {
            "RAR": b"Rar!\x1a",
            "Feather": b"FEA1",
            "HDF5": b"\x89HDF\r\n",
            "NumPy": b"\x93NUMPY",
            "RTF": b"{\\rtf1",
            "binary": b"a\0b",
        }.items()
    },
    "utf-16 without a mark": Odd(
        "a.csv", USUAL.encode("utf-16-le"), refused("a.csv line 1", "iconv -f UTF-16LE")
    ),
    "html": Odd("a.csv", "<!DOCTYPE html>\n<p>\n", refused("HTML")),
    "gzip": Odd("a.csv", gzip.compress(b"text,label\n"), refused("gzip", ".gz")),
    "parquet as csv": Odd("a.csv", parquet({"text": TEXTS, "label": SIDES}), refused("parquet")),
    "windows": Odd(
        "a.csv",
        csv_of(text=lambda i: f"{text(i)} – „schön“ für £{i}…", label=side).encode("cp1252"),
        refused("a.csv line 2", "iconv -f WINDOWS-1252"),
    ),
    "rare classes": labelled(
        refused("'rare0' (1)", "'rare54' (1)", "min_rows_per_class"),
        lambda i: f"rare{i}" if i % 6 == 0 else side(i),
    ),
    "rare classes left out": labelled(
        classes("good", "bad", num=50, flags={"min_rows_per_class": 2}),
        lambda i: f"rare{i}" if i % 6 == 0 else side(i),
    ),
    "rows below data": Odd(
        "a.json",
        json.dumps({"data": [{"text": text(i), "label": side(i)} for i in range(NUM)]}),
        CLASSIFIED,
    ),
    "spans of Label Studio in a csv": labelled(
        refused("Label Studio", "CONLL2003"), '[{"start": 0, "end": 4, "labels": ["PER"]}]'
    ),
    "a table of R": Odd(
        "a.csv",
        '"text" "label"\n' + "".join(f'"{i}" "{text(i)}" "{side(i)}"\n' for i in range(9)),
        refused("a.csv", "write.csv"),
    ),
    "features": Odd("a.txt", "-1 3:0.5 9:1\n1 2:1 4:0.25\n", refused("LIBSVM")),
    "list of contexts": Odd("a.json", json.dumps(contexts()), read("span_qa")),
    "contexts in lines": Odd("a.jsonl", objects(contexts()), refused("qas", "structures")),
    "doccano": jsonl(
        refused("doccano", "to_conll2003"), id=int, text=text, label=lambda i: [[0, 4, "PER"]]
    ),
    **{
        f"{key} of label studio": listed(
            refused("Label Studio", "JSON-MIN"),
            lambda i, key=key, value=value: {"id": i, "data": {"text": text(i)}, key: value},
        )
        for key, value in (
            ("annotations", [{"result": []}]),
            ("completions", []),
            ("predictions", []),
        )
    },
    "no label at all": jsonl(
        refused("no row of train has a label", columns={"labels": "topics"}),
        text=text,
        topics=lambda i: [],
    ),
    "prodigy": jsonl(
        refused("Prodigy", "accept"),
        text=text,
        label=side,
        answer="accept",
        _input_hash=int,
        _task_hash=int,
    ),
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
    "bytes in parquet": Odd(
        "a.parquet", parquet({"text": [t.encode() for t in TEXTS], "label": SIDES}), CLASSIFIED
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
    assert expected.settings.items() <= proposal.study.source.items()
    assert expected.says in " ".join(proposal.notes)
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
