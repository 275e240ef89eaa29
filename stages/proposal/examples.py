"""The labelled rows as the pipeline will read them, and what there is to know of them."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from stages.core.artifacts import Json
from stages.kinds._kind import KINDS, SPLITS, Kind, Split, settings_of
from stages.kinds._tags import OUTSIDE, Scheme
from stages.prepare_task import check_kind, count_labels, without_duplicates
from stages.proposal.asked import Notes
from stages.proposal.layout import PARALLEL, SAMPLED, Layout
from stages.proposal.roles import Guess
from stages.sources._source import SOURCES, Labelled, Source, drawn_from_train

TOKENS_PER_WORD = 1.5  # of a vocabulary of some thousand pieces
SPACELESS = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"}  # scripts
LETTERS = 20_000  # looked at
LENGTHS = (32, 64, 128, 256)  # of which one is max_tokens: longer texts cost minutes
MOST_CUT = 0.05  # of the texts
HIDDEN = "-1"  # the label of test rows whose labels are not published (GLUE)


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The rows of each split, without inputs of a later split."""

    kind: Kind
    source: Json  # settings
    by_split: dict[Split, list[Labelled]]
    removed: dict[str, int]  # inputs that a later split has
    repeated: int  # rows of train whose input train has already
    contradicting: int  # of them with another answer
    tokens: np.ndarray  # of train's inputs, about
    words: int  # of train's inputs, in all
    scripts: Counter[str]

    @property
    def num(self) -> dict[Split, int]:
        return {split: len(self.by_split[split]) for split in SPLITS}

    @property
    def labels(self) -> dict[str, int]:
        return count_labels(self.by_split["train"], self.kind)

    @property
    def script(self) -> str:
        return self.scripts.most_common(1)[0][0] if self.scripts else "LATIN"

    def share_cut(self, max_tokens: int) -> float:
        return float((self.tokens > max_tokens).mean())

    def fitting_tokens(self) -> int:
        """The least length that cuts few texts; the largest there is if all cut more."""
        fitting = [n for n in LENGTHS if self.share_cut(n) <= MOST_CUT]
        return fitting[0] if fitting else LENGTHS[-1]


def source_of(layout: Layout, guessed: Guess) -> Json:
    """The settings of the source, with the columns that are named otherwise than by default."""
    defaults = {"words": "FORM", "tags": "UPOS"} if layout.form == "conllu" else {}
    columns = {
        role: name
        for role, name in guessed.columns.items()
        if name != defaults.get(role, role) or role in KINDS[guessed.kind].optional
    }
    plain = {key: p.default for key, p in settings_of(type(KINDS[guessed.kind])).items()}
    others = {key: value for key, value in guessed.settings.items() if value != plain.get(key)}
    return layout.settings() | columns | others


def read_examples(layout: Layout, guessed: Guess, notes: Notes) -> tuple[Layout, Examples]:
    """The examples, and the layout without files whose labels are missing.

    Raises ValueError for rows that the pipeline would refuse, with their file and line.
    """
    kind = KINDS[guessed.kind]
    layout = _with_answers(layout, guessed, notes)
    settings = source_of(layout, guessed)
    found = list(_read(layout, settings, kind))
    check_kind(found, kind, where="data")
    found = [each._replace(row=kind.prepared(each.row)) for each in found]
    by_split, removed = without_duplicates(found, kind)
    repeated, contradicting = _repeated(by_split["train"], kind)
    texts = [" ".join(kind.texts(each.row)) for each in by_split["train"]]
    scripts = _scripts(texts)
    num_words = [_num_words(text, scripts) for text in texts]
    return layout, Examples(
        kind=kind,
        source=settings,
        by_split=by_split,
        removed=removed,
        repeated=repeated,
        contradicting=contradicting,
        tokens=np.array([round(TOKENS_PER_WORD * n) + 2 for n in num_words] or [0]),
        words=sum(num_words),
        scripts=scripts,
    )


def _read(layout: Layout, settings: Json, kind: Kind) -> Iterator[Labelled]:
    if layout.format == PARALLEL or not layout.is_sampled:
        source: Source = SOURCES.build(settings, where="data")
        yield from source.examples(kind)
        return
    given: set[Split] = {split for split in layout.files.values() if split is not None}
    others = {key: value for key, value in settings.items() if key not in SPLITS}
    for file, split in layout.files.items():  # of each its first rows, test rows as well
        source = SOURCES.build(others | {"path": str(file)}, where="data")
        most = SAMPLED if layout.is_large(file) else None
        for each in islice(source.examples(kind), most):
            drawn = drawn_from_train(split or "train", kind.group_key(each.row), given)
            yield each._replace(id=f"{file.name}:{each.id}", split=drawn)


def _with_answers(layout: Layout, guessed: Guess, notes: Notes) -> Layout:
    """Without test files whose answers are missing, as competitions publish them."""
    kind = KINDS[guessed.kind]
    left: list[Path] = []
    for file, split in layout.files.items():
        if split != "test" or layout.format == PARALLEL:
            continue
        settings = source_of(replace(layout, path=file, files={file: None}), guessed)
        source: Source = SOURCES.build(settings, where="data")
        try:
            first = list(islice(source.examples(kind), 20))
        except ValueError as error:
            target = guessed.columns[kind.target]
            if f"no column {target!r}" not in str(error) and f"{target} is empty" not in str(error):
                raise
            left.append(file)
        else:
            if {kind.answer(each.row) for each in first} <= {HIDDEN}:  # or rows without any
                left.append(file)
    if not left:
        return layout
    names = ", ".join(file.name for file in left)
    notes.seen.append(f"{names} has no answers: test rows are drawn from train instead.")
    return replace(layout, files={f: s for f, s in layout.files.items() if f not in left})


def _repeated(train: list[Labelled], kind: Kind) -> tuple[int, int]:
    """How many rows have the input of an earlier row, and how many of them another answer."""
    answers: dict[str, set[str]] = defaultdict(set)
    repeated = contradicting = 0
    for each in train:
        known, answer = answers[kind.same_input(each.row)], kind.answer(each.row)
        repeated += bool(known)
        contradicting += bool(known) and answer not in known
        known.add(answer)
    return repeated, contradicting


def tag_scheme(sentences: list[list[str]]) -> tuple[Scheme | None, str]:
    """The scheme of the tags of spans and why; None for single tags (parts of speech)."""
    spans = {tag for tags in sentences for tag in tags if tag != OUTSIDE}
    letters = {tag[:1] for tag in spans}
    if not spans or any(len(tag) < 3 or tag[1] != "-" for tag in spans) or not letters <= {*"BIES"}:
        return None, "tags are single ones, not O, B-TYPE and I-TYPE: scored word by word"
    if letters & {"E", "S"}:
        return "bioes", "tags E-TYPE and S-TYPE: BIOES, which becomes BIO"
    opened = continued = begun = 0  # spans by I-; B- behind its own type; all B-
    for tags in sentences:
        for before, tag in zip([OUTSIDE, *tags], tags, strict=False):
            same = before[2:] == tag[2:] and before != OUTSIDE
            opened += tag[0] == "I" and not same
            begun += tag[0] == "B"
            continued += tag[0] == "B" and same
    if opened and begun == continued:
        return "iob1", f"{opened:,} spans begin with I-TYPE: IOB1, which becomes BIO"
    if opened:
        return "bio", f"BIO, although {opened:,} I-TYPE tags continue nothing (--tag-scheme)"
    return "bio", "every I-TYPE tag continues a span: BIO"


def _scripts(texts: list[str]) -> Counter[str]:
    """How many letters are of each script."""
    letters = islice((c for text in texts for c in text if c.isalpha()), LETTERS)
    return Counter(unicodedata.name(c, "OTHER").replace("-", " ").split()[0] for c in letters)


def _num_words(text: str, scripts: Counter[str]) -> int:
    """Letters, in a script that writes no blanks between words."""
    top = scripts.most_common(1)
    if top and top[0][0] in SPACELESS:
        return len(text.replace(" ", ""))
    return len(text.split())
