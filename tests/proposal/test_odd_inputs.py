"""Files of real users: what each is read as, or what its refusal says and which flags it names.

`make new` proposes a study, and ``prepare_task`` reads the same rows.
"""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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


class Read(NamedTuple):
    """The expected proposal: its kind, labels of train (none: any), settings of its source, and
    words of its notes."""

    kind: str
    labels: set[str]
    settings: Json
    num: int  # rows of all splits
    flags: Json
    said: tuple[str, ...]


class Refused(NamedTuple):
    """Words of the error, in any order."""

    words: tuple[str, ...]
    flags: Json


Odd = tuple[str, str | bytes, Read | Refused]  # path, content and what is expected


def read(
    kind: str,
    *labels: str,
    num: int = NUM,
    flags: Json | None = None,
    said: tuple[str, ...] = (),
    **settings: Any,
) -> Read:
    return Read(kind, {*labels}, settings, num, flags or {}, said)


classes, sets, spans = (partial(read, k) for k in ("classification", "multi_label", "tagging"))


def refused(*words: str, **flags: Any) -> Refused:
    return Refused(words, flags)


def cell(make: Any, i: int) -> Any:
    """Returns the cell of a row: a column is a function of the number, or cells taken in turn."""
    return make(i) if callable(make) else make if isinstance(make, str) else make[i % len(make)]


def csv_of(sign: str = ",", **columns: Any) -> str:
    def quoted(text: str) -> str:
        is_plain = not {sign, *'"\n\t'} & {*text}
        return text if is_plain else '"' + text.replace('"', '""') + '"'

    rows = [[quoted(str(cell(make, i))) for make in columns.values()] for i in range(NUM)]
    return table([[*columns], *rows], sign)


def csv(expected: Read | Refused, sign: str = ",", **columns: Any) -> Odd:
    return "a.csv", csv_of(sign, **columns), expected


def beside_texts(expected: Read | Refused, sign: str = ",", **columns: Any) -> Odd:
    """Describes a csv file of texts and these columns."""
    return csv(expected, sign, text=TEXTS, **columns)


def jsonl(expected: Read | Refused, **columns: Any) -> Odd:
    rows = [{name: cell(make, i) for name, make in columns.items()} for i in range(NUM)]
    return "a.jsonl", objects(rows), expected


def conll(expected: Read | Refused, tags: str) -> Odd:
    pairs = [*zip(("Ada", "Old", "Town", "went", "home", "Rome"), tags.split(), strict=True)]
    lines = "\n".join(f"{word} {tag}" for word, tag in pairs)
    content = "".join(f"He{i} {pairs[3][1]}\n{lines}\n\n" for i in range(NUM))
    return "a.conll", content, expected


def hot(i: int) -> list[int]:
    return [i % 2, int(i % 3 == 0), int(i % 5 == 0)]


LONG = "a class whose name describes in many words what belongs into it, number {}"
BIO = "B-PER B-LOC I-LOC O O B-LOC"
SPAN_TAGS = ("O", "B-PER", "B-LOC", "I-LOC")
QUESTION = {"text": "film", "answer_start": 0}
CONTEXTS = [f"film number {i} was made in the year {1900 + i}" for i in range(NUM)]
USUAL, LONGER = csv_of(text=TEXTS, label=SIDES), [*enumerate(texts(3000))]
SENTENCES = str(conll(spans(), BIO)[1])

ODD: dict[str, Odd] = {
    # Which column is what
    **{
        f"{name} of ids is no text": csv(
            classes(text="title"),
            ",",
            **{name: ids, "title": lambda i: f"{'ab'[i % 2]} boots {i}", "label": SIDES},
        )
        for name, ids in {
            "": str,  # as pandas writes an index
            "Unnamed: 0": lambda i: i + i // 9,  # after rows were left out
            "place": str,
            "made": lambda i: f"https://example.org/{i % 4}",
            "day": lambda i: f"2016-09-{i % 4 + 10} 10:22:34",
            "on": lambda i: f"{i % 4 + 1}/12/2016",
            "AssignmentId": lambda i: hashlib.md5(b"%d" % i).hexdigest().upper(),
            "file": lambda i: f"/data/My Files/{i}.txt",
            "sender": lambda i: f"person{i % 9}@example.org",
        }.items()
    },
    "several columns may be predicted": csv(
        refused(
            "(stars, author)", "--label NAME", "author: 3 different in 60 of 60", "such as 'a'"
        ),
        **{"review": TEXTS, "stars": SIDES, "author": tuple("abc")},
    ),
    "one of several columns is named": csv(
        classes("a", "b", "c", flags={"columns": {"label": "author"}}, said=("Not read: stars",)),
        **{"review": TEXTS, "stars": SIDES, "author": tuple("abc")},
    ),
    "a class for each fifth": beside_texts(classes(*"01234"), grade=lambda i: i % 5),
    "numbers with decimals": beside_texts(read("regression"), grade=lambda i: i / 7),
    "many whole numbers": beside_texts(
        refused("--task classification", "--task regression"), grade=lambda i: i % 25
    ),
    "which text is written": jsonl(
        refused("--text NAME --set target=NAME"), one=TEXTS, other=[f"it is {t}" for t in TEXTS]
    ),
    "a text is written": jsonl(
        read("seq2seq", text="other", flags={"columns": {"text": "other", "target": "one"}}),
        one=TEXTS,
        other=[f"it is {t}" for t in TEXTS],
    ),
    **{
        f"{name} beside words": jsonl(
            expected, tokens=lambda i: [f"a{i}", "b"][: 1 + i % 2], tags=make
        )
        for name, expected, make in (
            ("as many tags", spans("O", "B-X"), lambda i: ["O", "B-X"][: 1 + i % 2]),
            ("3 tags", refused("--text NAME"), lambda i: ["O"] * 3),
            (
                "a tag too many",
                refused("line 7", "tags"),
                lambda i: ["O", "B-X"][: 1 + (i % 2 or i == 6)],
            ),
        )
    },
    "spans as text": beside_texts(
        refused("entities", "structures"), label=SIDES, entities="[(0, 4, 'PER')]"
    ),
    "answers in two columns": csv(
        read("span_qa", answers=["answer", "answer_start"]),
        context=CONTEXTS,
        question=lambda i: f"What is the number {i}?",
        answer="film",
        answer_start="0",
    ),
    "no answer as text": csv(
        read("span_qa"),
        context=CONTEXTS,
        question=lambda i: f"What is the number {i}?",
        answers=lambda i: [QUESTION] if i % 5 else [],
    ),
    "split": beside_texts(
        classes(split="split"),
        label=SIDES,
        split=lambda i: ("train", "train", "dev", "test")[i % 4],
    ),
    "folds": beside_texts(
        refused("--split fold", "--split none"), label=SIDES, fold=lambda i: i % 5
    ),
    "long names": beside_texts(classes(label="area"), area=lambda i: LONG.format(i % 3)),
    "texts of choices": jsonl(
        read("multiple_choice", choices="choices.text", first_choice="A"),
        question=lambda i: f"what is the number {i} ?",
        choices=lambda i: {"text": [f"a {i}", f"b {i}"], "label": ["A", "B"]},
        answerKey=("A", "B"),
    ),
    "a word in each row": csv(
        refused("Word has one word in each row", "conll"),
        Word=("He", "saw", "Rome", "."),
        Tag=("O", "O", "B-LOC", "O"),
    ),
    **{
        f"{name} of truth values": csv(
            expected,
            ",",
            **{"text": TEXTS, "label": SIDES, name: tuple(map(str, is_true))},
        )
        for name, expected, is_true in (
            ("is_test", classes(split="is_test"), (True, False, False, False)),
            ("is_valid", classes(split="is_valid"), (1, 0, 0, 0)),
            ("is_train", classes(split="is_train"), (False, True, True, True)),
            ("is_dev", refused("--split is_dev", "--split none"), (False, True, True, True)),
        )
    },
    "spans in columns": csv(
        refused("begin and end are places in text", "--text text"),
        **{"text": TEXTS, "begin": "2", "end": lambda i: 4 + i % 3, "label": ("THING", "OBJECT")},
    ),
    "questions as names": (
        "a.csv",
        csv_of(**{"What was good: or bad?": TEXTS, "So?": SIDES}),
        classes("good", "bad", label="So?", flags={"header": True}),
    ),
    # Labels
    "a label with gaps": beside_texts(
        classes("good", "bad", num=45, label=None),
        label=lambda i: SIDES[i] if i % 4 else "",
        topic=lambda i: "abc"[i % 3],
    ),
    "truth values and numbers": jsonl(
        refused("truth values and numbers", "'True' (15)"), text=TEXTS, label=(1, "0", 0.0, True)
    ),
    "amounts alone": beside_texts(refused("'$1,000.00' of price is no number"), price="$1,000.00"),
    "half a character": (
        "a.jsonl",
        '{"text": "so \\ud83d", "label": 1}\n',
        refused("a.jsonl line 1: '\\ud83d' is half a character"),
    ),
    "absent keys": (
        "a.jsonl",
        objects(
            [{"text": t} | ({"label": SIDES[i]} if i % 20 else {}) for i, t in enumerate(TEXTS)]
        ),
        classes("good", "bad", num=57, empty_cells="skip"),
    ),
    **{
        f"joined by {sign!r}": beside_texts(
            refused("--task classification", "--task multi_label --set label_separator"),
            mood=("joy", "fear", "anger", f"joy{sign}fear", f"fear{sign}anger"),
        )
        for sign in (" ", "/", "+", "&", "#", " and ", "_", "-", ":")
    },
    "joined, and none alone": beside_texts(
        refused("--task classification", "--task multi_label --set label_separator"),
        mood=("joy/fear", "fear/anger", "anger/joy"),
    ),
    **{
        f"a path with {sign!r}": beside_texts(
            refused("--task classification", "label_separator"),
            shelf=("Music", f"Music{sign}Pop, Rock", f"News{sign}Local"),
        )
        for sign in (" > ", ">>", "->", "\n", "\t")
    },
    **{
        name: beside_texts(classes(*names, label="kind"), kind=names)
        for name, names in {
            "signs in names": ("Sci/Tech", "Home & Garden", "C++"),
            "words in common": ("very good", "very bad", "good"),
            "amounts": (">50K", "<=50K"),
        }.items()
    },
    "tags of Stack Overflow": csv(
        sets(
            *("c++", "python"),
            flags={"task": "multi_label", "label_separator": "><"},
            label_separator="><",
        ),
        Body=TEXTS,
        Tags=("<c++>", "<c++><python>", "<python>"),
    ),
    "labels between an unknown sign": csv(
        refused("--set label_separator=SIGN", task="multi_label"),
        Body=TEXTS,
        Tags=("<c++>", "<c++><python>", "<python>"),
    ),
    "choices of Label Studio": beside_texts(
        refused("structures"), mood=("joy", '{"choices": ["joy", "fear"]}')
    ),
    **{
        f"lists as {shown(MOODS[0])}": beside_texts(
            sets("joy", "fear", "anger", labels="moods"), moods=tuple(map(shown, MOODS))
        )
        for shown in (str, json.dumps, lambda moods: f"[{', '.join(moods)}]")
    },
    "0 and 1 without signs": beside_texts(refused("0,1,1"), y=lambda i: "".join(map(str, hot(i)))),
    "0 and 1 by position": jsonl(sets("0", "1", "2", multi_hot=True), text=TEXTS, labels=hot),
    "columns of 0 and 1": csv(
        sets("joy", "fear", "odd", labels=["joy", "fear", "rare", "odd"]),
        text=TEXTS,
        joy=lambda i: i % 2,
        fear=lambda i: int(i % 3 == 0),
        rare="0",
        odd=lambda i: int(i % 5 == 0),
    ),
    "probabilities of classes": jsonl(
        refused("0.25", "the likeliest class"),
        text=TEXTS,
        label=lambda i: [i % 4 / 4, 1 - i % 4 / 4],
    ),
    "-1 of hidden labels": beside_texts(
        classes("0", "1", "2", num=54, no_label=["-1"]), label=lambda i: i % 3 if i % 10 else -1
    ),
    "-1 beside 0 and 1": beside_texts(
        refused("no_label", "'-1' (6 rows)"), label=lambda i: i % 2 if i % 10 else -1
    ),
    "case": beside_texts(
        refused("'GOOD'", "label_case: fold"),
        label=lambda i: SIDES[i] if i % 3 else SIDES[i].upper(),
    ),
    "invisible signs": beside_texts(
        classes("good", "bad"), label=lambda i: SIDES[i] + ("", "\u200b", "\xa0", "\u00ad")[i % 4]
    ),
    "decimal commas": beside_texts(
        read("regression", decimal="comma", delimiter="semicolon"),
        ";",
        score=lambda i: f"{i % 7},{i % 10}5",
    ),
    **{
        f"{spelt(1)} is no number": beside_texts(
            refused("is no number", columns={"target": "score"}), ";", score=spelt
        )
        for spelt in (
            lambda i: f"{i + 1}.5 %",
            lambda i: f"€{i + 1}.50",
            lambda i: f"{i + 1} 234,5",
            lambda i: f"{i + 1},234.5",
        )
    },
    # Tags
    "tags in BIO": conll(spans(*SPAN_TAGS, columns=["words", "tags"]), BIO),
    "tags in BIOES": conll(spans(*SPAN_TAGS, tag_scheme="bioes"), "S-PER B-LOC E-LOC O O S-LOC"),
    **{
        f"tags as {tags}": conll(refused("a.conll line 1", "tag_scheme=words"), tags)
        for tags in (
            *("B_PER B_LOC I_LOC O O B_LOC", "PER-B LOC-B LOC-I O O LOC-B", "B I I O O B"),
            *("Begin-PER Begin-LOC Inside-LOC O O O", "(PERSON) (GPE* *) * * (GPE)"),
            *("PER LOC LOC O O O", "B-PER B-LOC|B-PER I-LOC O O B-LOC"),
        )
    },
    "tags of single words": conll(spans(tag_scheme=None), "NNP JJ NN VBD RB NNP"),
    "an odd tag": (
        "a.conll",
        SENTENCES + "x PER-\ny B-PER\n\n",
        refused("a.conll line 481", "'PER-' (1)"),
    ),
    "one tag": conll(refused("a.conll", "tag 'O'"), "O O O O O O"),
    "words and tags in cells": csv(
        spans("O", "B-LOC", flags={"columns": {"words": "sentence", "tags": "y"}}),
        sentence=lambda i: f"He{i} left Rome",
        y="O O B-LOC",
    ),
    "a sentence without blank lines": (
        "a.conll",
        SENTENCES.replace("\n\n", "\n"),
        refused("1 rows", "a blank line ends each sentence"),
    ),
    # Rows
    "a title above": (
        "a.csv",
        "Survey of 2023,,\n" + csv_of(text=TEXTS, label=SIDES, id=int),
        refused("'Survey of 2023'", "--columns"),
    ),
    "blanks before quotation marks": (
        "a.csv",
        "text, label\n" + "".join(f'"{text}, so", "good"\n' for text in TEXTS),
        refused("quotation marks"),
    ),
    "quotation marks in a tsv file": (
        "a.tsv",
        "".join(f'"{text}"\t"{label}"\n' for text, label in texts(NUM)),
        refused("--format csv --set delimiter=tab"),
    ),
    "an open quotation mark": ("a.csv", USUAL + '"one more,good\n', refused("a.csv line 62")),
    "nameless and filled": (
        "a.csv",
        USUAL.replace("\n", ",,\n") + "more,good,no,\n",
        refused("not name column 3", "header=yes"),
    ),
    "words between blank lines": (
        "a.tsv",
        SENTENCES.replace(" ", "\t"),
        refused("--format conll"),
    ),
    "windows": (
        "a.csv",
        csv_of(text=[f"{text} – „schön“ für £5…" for text in TEXTS], label=SIDES).encode("cp1252"),
        refused("a.csv line 2", "iconv -f WINDOWS-1252"),
    ),
    # What leads to a wrong study
    "a sign for no number": beside_texts(
        refused("-999 (10 rows)", "empty_signs=-999"), price=lambda i: i + 0.5 if i % 6 else -999
    ),
    "a sign for no number is left out": beside_texts(
        read("regression", num=50, flags={"empty_signs": ["-999"]}, said=("median 30.5",)),
        price=lambda i: i + 0.5 if i % 6 else -999.0,
    ),
    "a number far from all others": beside_texts(
        read("regression", said=("1e+09", "a.csv:9")), price=lambda i: 1e9 if i == 7 else i + 0.5
    ),
    "codes with a zero": beside_texts(classes("005.1", "005.10"), shelf=("005.1", "005.10")),
    "signs for no text": csv(
        refused("'[deleted]' (15)", "empty_signs=[deleted]"),
        text=lambda i: TEXTS[i] if i % 4 else "[deleted]",
        label=SIDES,
    ),
    "a line below the table": (
        "a.csv",
        USUAL + "made by,tool 1.2\n",
        refused("'tool 1.2' (1)", "min_rows_per_class=3"),
    ),
    "a column tells inputs apart": csv(
        refused("60 of 60", "--set text_pair=aspect", "--text text"),
        text=lambda i: TEXTS[i // 2],
        aspect=("price", "quality"),
        sentiment=("good", "bad"),
    ),
    "inputs with several answers": csv(
        classes(flags={"columns": {"text": "text"}}, said=("30 of 60", "60 rows have")),
        text=lambda i: TEXTS[i // 2],
        aspect=("price", "quality"),
        sentiment=("good", "bad"),
    ),
    "equal inputs": csv(refused("60 rows with 1 different"), text="one more text", label=SIDES),
    "words that are the label": csv(
        classes(said=("'[GOOD]' of good", "'[BAD]' of bad")),
        text=lambda i: f"[{SIDES[i].upper()}] {TEXTS[i]}",
        label=SIDES,
    ),
    "documents of one label": csv(
        classes(said=("doc_id has 15 values", "--group doc_id")),
        doc_id=lambda i: f"D{i // 4}",
        sentence=TEXTS,
        label=lambda i: SIDES[i // 4],
    ),
    "two languages": csv(
        classes(said=("German", "English")),
        text=lambda i: TEXTS[i] if i % 2 else f"Wir haben die Rechnung {i} noch nicht bekommen",
        label=lambda i: SIDES[i // 2],
    ),
    "empty cells": csv(
        classes(num=57, empty_cells="skip", said=("3 of 60 rows", "(a.csv line 7")),
        text=lambda i: TEXTS[i] if i != 12 else "",
        label=lambda i: SIDES[i] if i not in (5, 9) else "",
    ),
    "a heading beside a text": csv(
        classes(text="body", said=("make new DATA=a.csv FLAGS='--text Betreff,body'",)),
        body=TEXTS,
        Betreff=lambda i: f"order {i} of a lamp",
        label=SIDES,
    ),
    "two columns are one text": csv(
        classes(num=59, flags={"columns": {"text": "subject,body"}}, said=("1 of 60 rows",)),
        subject=lambda i: "" if i < 2 else "Order",
        body=lambda i: TEXTS[i] if i else "",
        label=SIDES,
    ),
    "choices called by letters": csv(
        read("multiple_choice", choices=[*"abcd"], first_choice="A"),
        question=lambda i: f"What is {i} and {i}?",
        a=str,
        b=str,
        c=str,
        d=str,
        answer=tuple("ABCD"),
    ),
    "a question beside the text of choices": jsonl(
        read("multiple_choice", question="question", flags={"columns": {"text": "article"}}),
        article=TEXTS,
        question=lambda i: f"What is the item {i}?",
        options=lambda i: [f"a kettle {i}", "a lamp"],
        answer=("A", "B"),
    ),
    "too many classes": (
        "a.csv",
        table([("text", "sku"), *((f"item {i} is here", f"kind{i % 400}") for i in range(1200))]),
        refused("sku has 400", "300"),
    ),
    # Files and flags that make no study
    **{
        name: (path, content, refused(*words))
        for name, (path, content, *words) in {
            "empty": ("a.csv", "", "a.csv: the file is empty"),
            "header only": ("a.csv", "text,label\n", "no rows"),
            "one column": ("a.csv", table([("text",), *((t,) for t in TEXTS)]), "one column"),
            "many labels": (
                "a.csv",
                table([("text", "label"), *((f"{t} so", f"k {i // 3}") for i, (t, _) in LONGER)]),
                "1,000 different",
            ),
            "one label": ("a.csv", csv_of(text=TEXTS, label="same"), "label: 1 different"),
            "no texts": ("a.csv", csv_of(x=lambda i: i / 7, label=SIDES), "--text NAME"),
            "no header": ("a.tsv", table(texts(NUM), "\t"), "--columns", "header=yes"),
            "a nameless column": ("a.csv", "text,\nx,1\n", "not name column 2"),
            "columns of words": ("a.conll", "a X O\nb Y O\n\n", "--columns"),
            "uneven rows": ("a.csv", "text,label\nodd, too,x\n", "a.csv line 2"),
            "no labels": ("a.txt", "Only text.\nAnd more of it.\n", "--format", "--corpus"),
        }.items()
    },
    **{
        f"flags {flags}": csv(refused(*words, **flags), review=TEXTS, stars=SIDES)
        for flags, *words in (
            ({"columns": {"label": "grade"}}, "grade", "review, stars"),
            ({"columns": {"label": "review", "text": "stars"}}, "free text"),
            ({"columns": {"label": "stars", "words": "stars"}}, "words: classification has"),
            ({"label_budgets": [1000]}, "label_budgets"),
        )
    },
    # Exports of tools
    "prodigy": jsonl(
        refused("Prodigy"), text=TEXTS, label=SIDES, answer=("accept", "reject"), _task_hash=int
    ),
    "LIBSVM": ("a.svm", "+1 1:0.5 7:1\n" * NUM, refused("LIBSVM")),
}


def put(name: str) -> tuple[str, Any]:
    path, content, expected = ODD[name]
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path, expected


# Files of a folder, with the classes 0 and 1 or with those of `texts`; what is read or noted.
NUMBERED = csv_of(text=TEXTS, label=lambda i: str(i % 2))
LATER = csv_of(text=[f"later {text}" for text in TEXTS], label=SIDES)
OTHERS = csv_of(text=[f"other {text}" for text in TEXTS], label=SIDES)
CARD = """---
dataset_info:
  features:
  - name: label
    dtype:
      class_label:
        names:
          '0': good
          '1': bad
---
"""
FOLDERS: dict[str, tuple[dict[str, str], Json, tuple[str, ...]]] = {
    "a file without a split": (
        {"a_train_v2.csv": USUAL, "a_holdout.csv": LATER},
        {"train": "a_train_v2.csv"},
        ("Not read: a_holdout.csv.",),
    ),
    "a lock file": ({"train.csv": USUAL, "~$train.csv": "x"}, {}, ()),
    "eval beside test": (
        {"train.csv": USUAL, "eval.csv": LATER, "testing.csv": OTHERS},
        {"validation": "eval.csv", "test": "testing.csv"},
        (),
    ),
    "eval alone": ({"train.csv": USUAL, "eval.csv": LATER}, {"test": "eval.csv"}, ()),
    "names of classes": (
        {"train.csv": NUMBERED, "classes.txt": "good\nbad\n"},
        {"label_names": ["good", "bad"]},
        ("classes.txt",),
    ),
    "names from 1": (
        {"train.csv": NUMBERED.replace(",1\n", ",2\n").replace(",0\n", ",1\n")}
        | {"labels.txt": "good\nbad\n"},
        {"label_names": ["0", "good", "bad"]},
        ("labels.txt",),
    ),
    "numbers of classes": (
        {"rows.csv": NUMBERED, "label2id.json": '{"bad": 1, "good": 0}'},
        {"label_names": ["good", "bad"]},
        ("label2id.json",),
    ),
    "more names than classes": (
        {"train.csv": NUMBERED.replace(",1\n", ",7\n"), "labels.txt": "good\nbad\n"},
        {"label_names": None},
        (),
    ),
    "a card": (
        {"train.csv": NUMBERED, "README.md": CARD},
        {"label_names": ["good", "bad"]},
        ("README.md",),
    ),
    "the only parallel files": (
        {f"Corpus.en-de.{side}": "\n".join(TEXTS) for side in ("en", "de", "ids")},
        {"train": "Corpus.en-de", "format": "parallel"},
        (),
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_propose_reads_folders_and_names_what_it_does_not_read(name: str) -> None:
    files, settings, words = FOLDERS[name]
    Path("a").mkdir()
    for file, content in files.items():
        (Path("a") / file).write_text(content)
    proposal = proposed("a", columns={"text": "en", "target": "de"} if "parallel" in name else {})
    source = proposal.entry.source
    assert {key: source.get(key) for key in settings} == settings
    notes = " ".join(proposal.notes)
    assert all(word in notes for word in words) and "~$" not in f"{source} {notes}"


@pytest.mark.parametrize("name", [name for name, odd in ODD.items() if isinstance(odd[2], Read)])
def test_propose_and_prepare_task_read_odd_inputs_alike(name: str) -> None:
    path, expected = put(name)
    proposal = proposed(path, **expected.flags)
    assert proposal.kind == expected.kind
    source = proposal.entry.source
    assert {key: source.get(key) for key in expected.settings} == expected.settings
    for words in expected.said:
        assert words in "\n".join(proposal.notes)
    assert len(proposal.rows) == 3 and all(": " in row for row in proposal.rows)
    prepare(study_of(proposal), "a")
    rows = [read_jsonl(paths.examples("a") / f"{split}.jsonl") for split in SPLITS]
    seed = proposal.design.finetuning_seeds[0]
    assert sum(len(of_draw(part, seed)) for part in rows) == expected.num
    record = json.loads((paths.examples("a") / "task.json").read_text())
    assert {*record["labels"]} == (expected.labels or {*record["labels"]})


@pytest.mark.parametrize("name", [name for name, odd in ODD.items() if isinstance(odd[2], Refused)])
def test_propose_refuses_odd_inputs_and_says_what_helps(name: str) -> None:
    path, expected = put(name)
    with pytest.raises(ValueError) as error:
        proposed(path, **expected.flags)
    for words in expected.words:
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ([*texts(60)[50:], ("one more of them", "rare")], "rare"),
        ([(f"a text of number {i}", "") for i in range(20)], "no row of test has a label"),
        ([(f"a text of number {i}", i % 2) for i in range(20)], "bad, good, but test has 0, 1"),
        (texts(40), "all 40 rows of train are also in test"),
    ],
)
def test_propose_refuses_test_labels_that_train_lacks(test: list, message: str) -> None:
    Path("data").mkdir()
    for name, rows in {"train": texts(40), "dev": texts(50)[40:], "test": test}.items():
        Path(f"data/{name}.csv").write_text(table([("text", "label"), *rows]))
    with pytest.raises(ValueError, match=message):
        proposed("data")


def test_propose_refuses_a_missing_file_and_a_folder_without_data() -> None:
    with pytest.raises(ValueError, match="no such file"):
        proposed("b.csv")
    Path("empty").mkdir()
    with pytest.raises(ValueError, match="--format.*--corpus"):
        proposed("empty")
    for name in ("one", "other"):
        Path(f"empty/{name}.csv").write_text(USUAL)
    with pytest.raises(ValueError, match="train=FILE"):
        proposed("empty")
    Path("empty/train.csv").write_text(USUAL)
    Path("empty/train.jsonl").write_text('{"text": "the same", "label": "good"}')
    with pytest.raises(ValueError, match="train=FILE"):
        proposed("empty")
    with pytest.raises(ValueError, match="no such file.*third.csv"):
        proposed("empty", splits={"train": ["third.csv"]})


def test_propose_finds_a_column_whose_name_has_a_comma() -> None:
    rows = [('"Review, cleaned"', "title", "label"), *((t, "x", s) for t, s in texts(40))]
    Path("a.csv").write_text(table(rows))
    source = proposed("a.csv", columns={"text": "Review, cleaned"}).entry.source
    assert source["text"] == "Review, cleaned"


def test_propose_says_below_make_how_make_takes_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.odd").write_text("some words")
    for level in (None, "1"):
        if level:
            monkeypatch.setenv("MAKELEVEL", level)
        with pytest.raises(ValueError, match="--format NAME") as error:
            proposed("a.odd")
        assert ("With make: FLAGS=" in str(error.value)) == bool(level)


def test_propose_says_which_file_has_no_labels_or_perhaps_placeholders() -> None:
    Path("a").mkdir()
    Path("a/train.csv").write_text(csv_of(text=TEXTS, label=lambda i: i % 3))
    Path("a/test.csv").write_text(csv_of(text=[f"more {text}" for text in TEXTS], label="0"))
    assert any("Every row of test has the label 0" in note for note in proposed("a").notes)
    Path("a/test.csv").write_text(csv_of(id=int, text=[f"more {text}" for text in TEXTS]))
    with pytest.raises(ValueError, match=r"test.csv line 2: no column 'label'.*leave out a file"):
        proposed("a")
