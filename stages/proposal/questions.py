"""What is asked and refused about data: one table of questions, and tables of files of other tools
that are not read, with commands that convert them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages.core.text_files import text_lines
from stages.tasks._cells import structured

AS_WORDS = "or --set tag_scheme=words scores word by word"
QUESTIONS = {
    # Files
    "folder": "{0}: no {1} file is in this folder, but {2}; --format NAME says what they are; a "
    "file or a folder for each class must become one csv file of text and label; text without "
    "labels is --corpus FOLDER",
    "train": "{0}: the names of files do not say which to train on; --set train=FILE --set "
    "validation=FILE --set test=FILE name them. The folder has {1}",
    "parallel": "{0}: files line by line; --text ENDING --set target=ENDING say which is written "
    "from which, such as --text en --set target=de",
    "format": "{0}: the name does not say the format; --format NAME says which of {1} it is (text "
    "without labels is --corpus FOLDER)",
    "other format": "{0}: {1}; --format {2} reads the file as it is",
    "header": "{0}: {1}; if it is a row, --columns NAME,... names its {2} columns ({3}), such as "
    "text,label; if it names them, --set header=yes says so",
    "words and tags": "{0}: which column has the words and which the tags? --columns NAME,... "
    "names those of {1!r} (also an empty one), such as words,pos,tags",
    # Columns
    "one column": "one column; a task needs a text column and a label column",
    "split": "does the column {0} give the splits (--split {0}; its cells must be such as train, "
    "validation and test), or not (--split none)",
    "one word": "{0} has one word in each row; write lines `word tag` with a blank line after each "
    "sentence (conll); --task classification reads each row by itself",
    "structures": "{0} has lists or structures, which are not read here; write plain columns (for "
    "spans: words and tags in a conll file), or name another column: {1}",
    "role": "{0} needs {1}, which no column clearly is; name it: {2}",
    "place": "{0} has no place in {1}: add answer_start, the number of its first character from 0, "
    "or --task seq2seq to have it written",
    "target": "{0}; name the column: --label NAME (one of few classes), --set labels=NAME,... (any "
    "number of them), --set target=NAME (a number, or a text to write), --set words=NAME --set "
    "tags=NAME",
    "amount": "{0!r} of {1} is no number; write numbers without units, such as 1234.5 (or 1234,5 "
    "with --set decimal=comma)",
    "odd labels": "{0} has cells such as {1}; write the likeliest class of probabilities, "
    "0,1,1 for positions",
    "classes": "is each of the {0:,} values of {1} a class (--task classification), or {2}?",
    "no classes": "{0}: {1:,} different values in {2:,} rows; classes are 2 to {3} that recur, no "
    "ids or free text (--label NAME)",
    "decimal": "{0}: has {1} decimals (--set decimal={2}), or thousands? Commas of thousands must "
    "be removed, points of thousands are read with --set decimal=comma",
    # Tags
    "one tag": "{0}: every word has the tag {1}",
    "numbers": "{0}: the tags are the numbers {1}; --set tag_names=O,B-PER,... names them from 0 "
    f"on, {AS_WORDS}; words without a tag (-100) must be left out",
    "two tags": "{0}: {1} has two tags, or is a bracket of spans; write one tag in BIO for each "
    f"word, {AS_WORDS}",
    "odd tags": f"{{0}}: among tags in {{2}} are {{1}}; correct them, {AS_WORDS}",
    "no scheme": "{0}: tags in no scheme of O, B-TYPE and I-TYPE ({1}); correct them, --set "
    f"tag_scheme=io reads runs of one tag as spans, {AS_WORDS}",
    # Rows
    "no label": "no row of {0} has a label: leave its file out (--set train=FILE)",
    "few rows": "{0}: {1:,} rows are too few: none is in {2}{3}",
    "budget": "label_budgets: {0} labels, but train has {1:,} rows",
    "no column": "--{0}: words by line and parallel files have no such column",
    "no role": "{0}: {1} has {2}",
}


class Unclear(ValueError):
    """What the data do not show, and the flag that says it: a question, filled in."""

    def __init__(self, question: str, *values: object) -> None:
        super().__init__(QUESTIONS[question].format(*values))


# Files of other tools ----------------------------------------------------------------------------

CONLL = "spans by character offsets are not read; write a word and its tag on each line (conll)"
SPACY = f"spaCy; {CONLL}: spacy.training.offsets_to_biluo_tags"
LABEL_STUDIO = "Label Studio; export JSON-MIN or CSV there, or CONLL2003 where words are tagged"
ARGILLA = "Argilla; export rows: dataset.records.to_list(flatten=True)"
DOCCANO = f"doccano; {CONLL}: doccano-transformer's to_conll2003"
PRODIGY = (
    "Prodigy; keep the accepted rows: jq -c 'select(.answer == \"accept\") | {text, label}' FILE > "
    "NEW ({text, labels: .accept} of choices; `prodigy data-to-spacy` of spans)"
)
NAMED = "FILE > NEW.tsv, which --columns label,text reads"
WORD_AND_TAG = (
    "words written word{0}tag; "
    "sed -E 's/ *$/\\n/; s/ +/\\n/g' FILE | sed 's|\\(.*\\){0}|\\1\\t|' > NEW.conll"
)
# What a text file is whose first line matches a pattern, and the command that converts it.
LINES = {
    r"__label__[^\s,]+ +[^\s,]": "a file of fastText, which this command converts: "
    rf"sed -E ':a; s/^(__label__[^ ]+) +__label__/\1,/; ta; s/^__label__([^ ]+) +/\1\t/' {NAMED}",
    r"[A-Z]{3,5}:[a-z]+ \S": rf"a file of TREC, which this command converts: sed 's/ /\t/' {NAMED}",
    r"\(\d \S.*\)\s*$": "a file of SST's trees; this command keeps whole sentences: "
    rf"sed -E 's/^\(([0-4]) */\1\t/; s/\([0-4] //g; s/\)//g' {NAMED}",
    r"(\S+/\S+ +){2,}\S+/\S+\s*$": WORD_AND_TAG.format("/"),
    r"(\S+_\S+ +){2,}\S+_\S+\s*$": WORD_AND_TAG.format("_"),
    r"[-+]?\d+ (\d+:\S+\s*)+$": "a file of LIBSVM, which has numbers of features and no texts",
    r'"[^"]*"( "[^"]*")+\s*$': "a table of R; write.csv(x, FILE, row.names = FALSE) writes csv",
    r"(?i)(insert into|create table|-- (mysql|postgresql))": "SQL; export the table as csv",
    r"(?i)<(\?xml|!doctype|html)": "XML or HTML; write the texts and labels to a csv file",
    r"#FORMAT=WebAnno": "an export of WebAnno or INCEpTION; export CoNLL 2002 there",
    r"T\d+\t\S+ \d+ \d+": f"annotations of BRAT; {CONLL}",
}
# The tool whose objects have all of these keys; the first one holds a list or an object.
OBJECTS: dict[str, str] = {
    **{f"{key} data": LABEL_STUDIO for key in ("annotations", "completions", "predictions")},
    **{f"fields {key}": ARGILLA for key in ("responses", "suggestions")},
    "prediction prediction_agent": ARGILLA,
    **dict.fromkeys(("paragraphs", "ents", "spans"), SPACY),
}
PLACES = {"start", "start_offset", "begin", "offset", "labels"}  # keys of a span


def refuse_lines(files: Sequence[Path]) -> None:
    """Raises ValueError for a text file whose first line shows a form that is not read."""
    for file in files:
        first = ""
        with suppress(ValueError, OSError):  # the source raises these errors later
            first = next((line for line in text_lines(file) if line.strip()), "")
        for form, what in LINES.items():
            if re.match(form, first):
                raise ValueError(f"{file}: this is {what}")


def refuse_objects(rows: Sequence[Mapping[str, Any]], place: str) -> None:
    """Raises ValueError, which begins with ``place``, if the rows are an export of a tool."""
    row, tools = rows[0], list[str]()
    if "_task_hash" in row or {"answer", "spans"} <= row.keys():
        tools.append(PRODIGY)
    for keys, tool in OBJECTS.items():
        cell = row.get(keys.split()[0])
        has_texts = isinstance(cell, list) and any(isinstance(item, str) for item in cell)
        if {*keys.split()} <= row.keys() and isinstance(cell, Mapping | list) and not has_texts:
            tools.append(tool)
    labels = (structured(row.get(name)) for row in rows for name in ("label", "labels", "entities"))
    first = next((items[0] for items in labels if isinstance(items, list) and items), None)
    if isinstance(first, list) or (isinstance(first, Mapping) and {*first} & PLACES):
        tools.append(LABEL_STUDIO if "labels" in first else DOCCANO)
    if tools:
        raise ValueError(f"{place}: this is an export of {tools[0]}")
