"""Recognises files of annotation tools that hold more than rows, and says how to convert them."""

from collections.abc import Mapping, Sequence
from typing import Any

CONLL = "spans by character offsets are not read; write a word and its tag on each line (conll)"
SPACY = f"spaCy; {CONLL}: spacy.training.offsets_to_biluo_tags"
LABEL_STUDIO = "Label Studio; export JSON-MIN or CSV there, or CONLL2003 where words are tagged"
ARGILLA = "Argilla; export rows: dataset.records.to_list(flatten=True)"
DOCCANO = f"doccano; {CONLL}: doccano-transformer's to_conll2003"
PRODIGY = (
    "Prodigy; keep the accepted rows: jq -c 'select(.answer == \"accept\") | {text, label}' FILE > "
    "NEW ({text, labels: .accept} of choices; `prodigy data-to-spacy` of spans)"
)
# Keys of an object that show the tool. The first key must hold a list or an object.
EXPORTS: dict[tuple[str, ...], str] = {
    ("annotations", "data"): LABEL_STUDIO,
    ("fields", "responses"): ARGILLA,
    ("fields", "suggestions"): ARGILLA,
    ("prediction", "prediction_agent"): ARGILLA,
    **{(key,): SPACY for key in ("paragraphs", "ents", "spans")},
}


def refuse_exports(rows: Sequence[Mapping[str, Any]], place: str) -> None:
    """Raises ValueError, which begins with ``place``, if the rows have a tool's own form."""
    labels = (row.get(name) for row in rows for name in ("label", "labels", "entities"))
    first = next((items[0] for items in labels if isinstance(items, list) and items), None)
    keys = rows[0].keys()
    structures = {key for key, cell in rows[0].items() if isinstance(cell, list | Mapping)}
    known = (e for own, e in EXPORTS.items() if {*own} <= keys and own[0] in structures)
    export = PRODIGY if "_task_hash" in keys else next(known, None)
    if export is None and isinstance(first, list | Mapping):
        export = LABEL_STUDIO if "labels" in first else DOCCANO
    if export:
        raise ValueError(f"{place}: this is an export of {export}")
