"""Files of annotation tools and other programs that are not read as they are, and how to convert
them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages.core.text_files import text_lines
from stages.tasks._cells import structured

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
# The tool whose exports have objects with these keys. The first key holds a list or an object,
# except those of Prodigy.
OBJECTS: dict[tuple[str, ...], str] = {
    ("_task_hash",): PRODIGY,
    ("answer", "spans"): PRODIGY,
    **{(key, "data"): LABEL_STUDIO for key in ("annotations", "completions", "predictions")},
    ("fields", "responses"): ARGILLA,
    ("fields", "suggestions"): ARGILLA,
    ("prediction", "prediction_agent"): ARGILLA,
    **{(key,): SPACY for key in ("paragraphs", "ents", "spans")},
}
PLACES = {"start", "start_offset", "begin", "offset", "labels"}  # keys of a span


def refuse_lines(files: Sequence[Path]) -> None:
    """Raises ValueError for a text file whose first line shows a form that is not read."""
    for file in files:
        first = ""
        with suppress(ValueError, OSError):  # the source raises these errors later
            first = next((line for line in text_lines(file) if line.strip()), "")
        if what := next((what for form, what in LINES.items() if re.match(form, first)), None):
            raise ValueError(f"{file}: this is {what}")


def refuse_objects(rows: Sequence[Mapping[str, Any]], place: str) -> None:
    """Raises ValueError, which begins with ``place``, if the rows are an export of a tool."""
    export = next((tool for keys, tool in OBJECTS.items() if _has(rows[0], keys, tool)), None)
    labels = (structured(row.get(name)) for row in rows for name in ("label", "labels", "entities"))
    first = next((items[0] for items in labels if isinstance(items, list) and items), None)
    if export is None and isinstance(first, list):
        export = DOCCANO
    if export is None and isinstance(first, Mapping) and {*first} & PLACES:
        export = LABEL_STUDIO if "labels" in first else DOCCANO
    if export:
        raise ValueError(f"{place}: this is an export of {export}")


def _has(row: Mapping[str, Any], keys: tuple[str, ...], tool: str) -> bool:
    cell = row.get(keys[0])
    texts = isinstance(cell, list) and any(isinstance(item, str) for item in cell)
    return {*keys} <= row.keys() and (tool == PRODIGY or _is_structure(cell) and not texts)


def _is_structure(cell: object) -> bool:
    return isinstance(cell, Mapping | list)
