"""Recognises files of annotation tools and other programs that are not read as they are, and says
how to convert them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages.core.text_files import text_lines
from stages.kinds._cells import structured

CONLL = "spans by character offsets are not read; write a word and its tag on each line (conll)"
SPACY = f"spaCy; {CONLL}: spacy.training.offsets_to_biluo_tags"
LABEL_STUDIO = "Label Studio; export JSON-MIN or CSV there, or CONLL2003 where words are tagged"
ARGILLA = "Argilla; export rows: dataset.records.to_list(flatten=True)"
DOCCANO = f"doccano; {CONLL}: doccano-transformer's to_conll2003"
PRODIGY = (
    "Prodigy; keep the accepted rows: jq -c 'select(.answer == \"accept\") | {text, label}' FILE > "
    "NEW ({text, labels: .accept} of choices; `prodigy data-to-spacy` of spans)"
)
# Keys of an object that reveal the tool. The first key must hold a list or an object.
EXPORTS: dict[tuple[str, ...], str] = {
    **{(key, "data"): LABEL_STUDIO for key in ("annotations", "completions", "predictions")},
    ("fields", "responses"): ARGILLA,
    ("fields", "suggestions"): ARGILLA,
    ("prediction", "prediction_agent"): ARGILLA,
    **{(key,): SPACY for key in ("paragraphs", "ents", "spans")},
}

PLACES = {"start", "start_offset", "begin", "offset", "labels"}  # keys of a span in doccano
NAMED = "FILE > NEW.tsv, which --columns label,text reads"
WORD_AND_TAG = (
    "words written word{0}tag; "
    "sed -E 's/ *$/\\n/; s/ +/\\n/g' FILE | sed 's|\\(.*\\){0}|\\1\\t|' > NEW.conll"
)
# Descriptions of files whose format is not read, by a pattern of their first line.
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


def refuse_lines(files: Sequence[Path]) -> None:
    """Raises ValueError for a text file whose first line shows a format that is not read."""
    for file in files:
        first = ""
        with suppress(ValueError, OSError):  # the source raises these errors later
            first = next((line for line in text_lines(file) if line.strip()), "")
        if what := next((what for form, what in LINES.items() if re.match(form, first)), None):
            raise ValueError(f"{file}: this is {what}")


def refuse_exports(rows: Sequence[Mapping[str, Any]], place: str) -> None:
    """Raises ValueError, which begins with ``place``, if the rows are an export of a tool."""
    labels = (structured(row.get(name)) for row in rows for name in ("label", "labels", "entities"))
    first = next((items[0] for items in labels if isinstance(items, list) and items), None)
    keys = rows[0].keys()
    structures = {key for key, cell in rows[0].items() if isinstance(cell, Mapping)}
    lists = {key: cell for key, cell in rows[0].items() if isinstance(cell, list)}
    structures |= {key for key, cell in lists.items() if not any(isinstance(i, str) for i in cell)}
    known = (e for own, e in EXPORTS.items() if {*own} <= keys and own[0] in structures)
    is_of_prodigy = "_task_hash" in keys or {"answer", "spans"} <= keys
    export = PRODIGY if is_of_prodigy else next(known, None)
    has_place = isinstance(first, list) or (isinstance(first, Mapping) and {*first} & PLACES)
    if export is None and has_place:
        export = LABEL_STUDIO if "labels" in first else DOCCANO
    if export:
        raise ValueError(f"{place}: this is an export of {export}")
