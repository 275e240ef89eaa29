"""The labelled rows as the pipeline will read them, and what there is to know of them."""

import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from stages.core.artifacts import Json
from stages.kinds._kind import KINDS, SPLITS, Kind, Split, settings_of
from stages.kinds._tags import OUTSIDE, Scheme
from stages.prepare_task import check_kind, count_labels, without_duplicates
from stages.proposal.columns import Guess
from stages.proposal.files import files_of
from stages.sources._source import Labelled

TOKENS_PER_WORD = 1.5  # of a vocabulary of some thousand pieces
SPACELESS = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"}  # scripts
LETTERS = 20_000  # looked at
LENGTHS = (32, 64, 128, 256)  # of which one is max_tokens: longer texts cost minutes
MOST_CUT = 0.05  # of the texts


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The rows of each split, without inputs of a later split."""

    kind: Kind
    source: Json  # settings
    by_split: dict[Split, list[Labelled]]
    num_read: int  # rows of all splits, with those that are removed
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


def with_columns(source: Json, guess: Guess) -> Json:
    """The settings of the source, with the columns that are named otherwise than by default."""
    form = source.get("format") or files_of(source)[0].format
    defaults = {"words": "FORM", "tags": "UPOS"} if form == "conllu" else {}
    kind = KINDS[guess.kind]
    columns = {
        role: name
        for role, name in guess.columns.items()
        if name != defaults.get(role, role) or role in kind.optional
    }
    plain = {key: p.default for key, p in settings_of(type(kind)).items()}
    others = {key: value for key, value in guess.settings.items() if value != plain.get(key)}
    return source | columns | others


def read_examples(source: Json, kind: Kind) -> Examples:
    """Raises ValueError for rows that the pipeline would refuse, with their file and line."""
    labelled = [example for file in files_of(source) for example in file.examples(kind)]
    check_kind(labelled, kind, where="data")
    labelled = [example._replace(row=kind.prepared(example.row)) for example in labelled]
    by_split, removed = without_duplicates(labelled, kind)
    repeated, contradicting = _repeated(by_split["train"], kind)
    texts = [" ".join(kind.texts(example.row)) for example in by_split["train"]]
    scripts = _scripts(texts)
    num_words = [_num_words(text, scripts) for text in texts]
    return Examples(
        kind=kind,
        source=source,
        by_split=by_split,
        num_read=len(labelled),
        removed=removed,
        repeated=repeated,
        contradicting=contradicting,
        tokens=np.array([round(TOKENS_PER_WORD * n) + 2 for n in num_words] or [0]),
        words=sum(num_words),
        scripts=scripts,
    )


def _repeated(train: list[Labelled], kind: Kind) -> tuple[int, int]:
    """How many rows have the input of an earlier row, and how many of them another answer."""
    answers: dict[str, set[str]] = defaultdict(set)
    repeated = contradicting = 0
    for example in train:
        known, answer = answers[kind.same_input(example.row)], kind.answer(example.row)
        repeated += bool(known)
        contradicting += bool(known) and answer not in known
        known.add(answer)
    return repeated, contradicting


def tag_scheme(sentences: list[list[str]]) -> tuple[Scheme | None, str]:
    """The scheme of the tags of spans and why; None for single tags (parts of speech)."""
    spans = {tag for tags in sentences for tag in tags if tag != OUTSIDE}
    letters = {letter for letter, dash, type in (tag.partition("-") for tag in spans) if type}
    if not spans or not all(tag[1:2] == "-" for tag in spans) or not letters <= {*"BIES"}:
        return None, "tags are single ones, not O, B-TYPE and I-TYPE: scored word by word"
    if letters & {"E", "S"}:
        return "bioes", "tags E-TYPE and S-TYPE: BIOES, which becomes BIO"
    pairs = [pair for tags in sentences for pair in pairwise([OUTSIDE, *tags])]
    opened = sum(tag[0] == "I" and tag[2:] != before[2:] for before, tag in pairs)
    if not opened:
        return "bio", "every I-TYPE tag continues a span: BIO"
    # In IOB1 a span begins with B only where it follows one of its type.
    if all(tag[2:] == before[2:] for before, tag in pairs if tag[0] == "B"):
        return "iob1", f"{opened:,} spans begin with I-TYPE: IOB1, which becomes BIO"
    return "bio", f"BIO, although {opened:,} I-TYPE tags continue nothing (--tag-scheme)"


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
