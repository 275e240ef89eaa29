"""Subword tokenizers by sentencepiece (Kudo and Richardson 2018)."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece

PAD_ID, UNK_ID, BOS_ID, EOS_ID, MASK_ID = range(5)
NUM_SPECIAL = 5
NUM_SENTINELS = 100  # T5's number: the last ids of the vocabulary, counted down
FILE = "tokenizer.model"


class Vocabulary:
    """What the ids mean; by its size that of ours: 5 special tokens, sentencepiece's pieces, and at
    the end the sentinels.

    A text stands between ``before`` and ``after``; ``between`` parts it from the text it is paired
    with. A text that is written begins with ``before_target`` and ends with ``eos_id``; an
    encoder-decoder's decoder reads ``start_id`` first.
    """

    pad_id: int = PAD_ID
    unk_id: int = UNK_ID
    mask_id: int | None = MASK_ID
    start_id: int = BOS_ID  # as the objectives of encoder-decoders have it
    eos_id: int = EOS_ID
    before: tuple[int, ...] = (BOS_ID,)
    between: tuple[int, ...] = (EOS_ID,)
    after: tuple[int, ...] = (EOS_ID,)
    before_target: tuple[int, ...] = ()
    starts_word: Any  # bool [V]: whether an id begins a word; a tokenizer alone can tell

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        # sentinel_ids[k] marks the k-th span; ids count down from the end (T5).
        self.sentinel_ids = np.arange(vocab_size - 1, vocab_size - 1 - NUM_SENTINELS, -1)
        # Those that stand for text: no special token, no sentinel.
        self.regular_ids = np.arange(NUM_SPECIAL, vocab_size - NUM_SENTINELS)

    @cached_property
    def is_regular(self) -> np.ndarray:
        """Bool [V]: whether an id stands for text."""
        found = np.zeros(self.vocab_size, dtype=bool)
        found[self.regular_ids] = True
        return found

    def text_of(self, document: np.ndarray) -> slice:
        """Where a document's text lies between the marks at its ends, if a row has not cut them
        off."""
        begin, end = 0, len(document)
        while begin < end and document[begin] in self.before:
            begin += 1
        while begin < end and document[end - 1] in self.after:
            end -= 1
        return slice(begin, end)


class TaskTokenizer(Vocabulary, ABC):
    """What tasks need from a tokenizer: ours, or that of a public checkpoint."""

    files: list[Path]  # all that it is read from

    @abstractmethod
    def encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""

    def encode_running(self, sentences: list[str]) -> list[list[int]]:
        """The ids of each sentence of one text, all but the first after a blank."""
        return self.encode(sentences)

    @abstractmethod
    def encode_with_offsets(
        self, texts: list[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of each text, and which of its characters each id stands for: from the first
        number to before the second, blanks around them left out.

        They count in the text as it was given, whatever the tokenizer makes of it. Ids that are
        parts of one character all stand for it; an id of blanks stands for none.
        """

    @abstractmethod
    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of each word of each row, which may be none."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens are left out."""

    def shown(self, ids: Iterable[int] | np.ndarray) -> str:
        """The text of ids for display, with special tokens as marks: ``<mask>``, ``<s0>``, ..."""
        runs = [(mark, [*run]) for mark, run in groupby(map(int, ids), self._mark)]
        parts = [[self.decode(run)] if mark is None else [mark] * len(run) for mark, run in runs]
        return " ".join(filter(None, chain.from_iterable(parts)))

    def _mark(self, i: int) -> str | None:
        # A model may know more ids than its tokenizer.
        is_text = i < self.vocab_size and self.is_regular[i]
        return None if is_text else self._marks_of_ids.get(i, "")

    @cached_property
    def _marks_of_ids(self) -> dict[int | None, str]:
        sentinels = {int(i): f"<s{k}>" for k, i in enumerate(self.sentinel_ids)}
        return {self.mask_id: "<mask>"} | sentinels

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> list[int]:
        """The ids of a text, or of a pair of texts, between their special tokens."""
        second = [] if pair is None else [*self.between, *pair]
        return [*self.before, *text, *second, *self.after]

    def wrap_within(
        self, max_tokens: int, text: Sequence[int], pair: Sequence[int] | None = None
    ) -> "Wrapped":
        """The same, of at most ``max_tokens``: the longer text is cut first, no special token is.

        Raises ValueError if there is no room for a token of each text.
        """
        texts = [text] if pair is None else [text, pair]
        room = max_tokens - len(self.wrap([], None if pair is None else []))
        kept = longest_first([len(each) for each in texts], room)
        cut = [each[:length] for each, length in zip(texts, kept, strict=True)]
        second = len(self.before) + kept[0] + len(self.between)
        return Wrapped(
            self.wrap(*cut),
            None if pair is None else second,
            sum(map(len, texts)) - sum(kept),
        )

    def target(self, text: Sequence[int]) -> list[int]:
        """The ids of a text that is to be written."""
        return [*self.before_target, *text, self.eos_id]


class Wrapped(NamedTuple):
    """A text or a pair of texts between special tokens."""

    ids: list[int]
    pair_start: int | None  # where the second text begins
    num_cut: int  # tokens of the texts that were cut


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of each text to keep, at most ``room`` in all: the longest is cut until
    another is as long (``longest_first`` of the library tokenizers, which knows two texts).

    Raises ValueError if there is no room for a token of each.
    """
    if room < len(lengths):
        raise ValueError(f"has room for {max(room, 0)} tokens of {len(lengths)} texts")
    kept = [0] * len(lengths)
    by_length = sorted(range(len(lengths)), key=lambda text: lengths[text])
    for shorter, text in enumerate(by_length):
        kept[text] = min(lengths[text], room // (len(lengths) - shorter))
        room -= kept[text]
    return kept


class Tokenizer(TaskTokenizer):
    """Text to ids and back."""

    def __init__(self, path: Path) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.files = [path]
        super().__init__(self._processor.get_piece_size() + NUM_SENTINELS)

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode(texts, num_threads=1)

    def encode_with_offsets(
        self, texts: list[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        found = self._processor.encode(texts, return_type="offset_mapping", num_threads=1)
        return [
            (one["ids"], without_blanks(text, _whole_characters(one["offsets"])))
            for text, one in zip(texts, found, strict=True)
        ]

    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        words = iter(self.encode([word for row in rows for word in row]))
        return [list(islice(words, len(row))) for row in rows]

    def decode(self, ids: Iterable[int] | np.ndarray) -> str:
        """The text of ids; special tokens and sentinels are left out."""
        return self._processor.decode([int(i) for i in ids if self.is_regular[i]])

    @cached_property
    def starts_word(self) -> np.ndarray:  # type: ignore[override]
        """Bool [V]: whether the piece begins a word (carries sentencepiece's blank)."""
        pieces = [self._processor.id_to_piece(i) for i in range(self._processor.get_piece_size())]
        return np.array([p.startswith("▁") for p in pieces] + [True] * NUM_SENTINELS)


def without_blanks(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same spans without blanks at their ends; a span of blanks alone becomes empty."""
    parts = []
    for begin, end in offsets:
        begin += len(text[begin:end]) - len(text[begin:end].lstrip())
        parts.append((begin, begin + len(text[begin:end].rstrip())))
    return parts


def _whole_characters(offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pieces of one character (its bytes, the letters of a ligature) stand for it;
    sentencepiece gives it to the last of them and nothing to the others."""
    widened: list[tuple[int, int]] = []
    following = -1, -1
    for begin, end in reversed(offsets):
        following = (begin, following[1] if begin == end == following[0] else end)
        widened.append(following)
    return widened[::-1]


def train(
    sentences: Iterable[str], path: Path, *, algorithm: str, vocab_size: int, threads: int
) -> None:
    """Train on sentences and write the model to ``path``.

    Raises ValueError if the text cannot fill ``vocab_size`` or is too varied for it.
    """
    model = io.BytesIO()  # not a prefix of files, which the model would contain
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=algorithm,
            vocab_size=vocab_size - NUM_SENTINELS,
            byte_fallback=algorithm != "char",  # no text is unknown
            character_coverage=0.9995 if algorithm != "char" else 1.0,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            control_symbols=["[MASK]"],
            hard_vocab_limit=algorithm != "char",
            normalization_rule_name="nmt_nfkc",
            shuffle_input_sentence=False,  # the order is ours, drawn from a named stream
            num_threads=threads,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(f"vocab_size {vocab_size} does not suit the text: {error}") from None
    path.write_bytes(model.getvalue())
