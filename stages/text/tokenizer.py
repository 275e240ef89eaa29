"""Subword tokenizers by sentencepiece (Kudo and Richardson 2018)."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
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
MOST_BYTES = 4192  # of a sentence; sentencepiece leaves out longer sentences silently
MOST_LETTERS = MOST_BYTES // 4  # a letter has at most four bytes


class Vocabulary:
    """The meaning of token ids. The defaults describe the project's own tokenizers: 5 special
    tokens, sentencepiece's pieces, and the sentinels at the end.

    A text is surrounded by ``before`` and ``after``; ``between`` separates the texts of a pair. A
    target text begins with ``before_target`` and ends with ``eos_id``. The decoder of an
    encoder-decoder reads ``start_id`` first.
    """

    pad_id: int = PAD_ID
    unk_id: int = UNK_ID
    mask_id: int | None = MASK_ID
    start_id: int = BOS_ID  # read first by decoders of encoder-decoders
    eos_id: int = EOS_ID
    before: tuple[int, ...] = (BOS_ID,)
    between: tuple[int, ...] = (EOS_ID,)
    after: tuple[int, ...] = (EOS_ID,)
    before_target: tuple[int, ...] = ()
    starts_word: Any  # bool [V]: whether an id begins a word; only tokenizers set it

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        # sentinel_ids[k] marks the k-th span; ids count down from the end (T5).
        self.sentinel_ids = np.arange(vocab_size - 1, vocab_size - 1 - NUM_SENTINELS, -1)
        # Ids of text: neither special tokens nor sentinels.
        self.regular_ids = np.arange(NUM_SPECIAL, vocab_size - NUM_SENTINELS)

    @cached_property
    def is_regular(self) -> np.ndarray:
        """Bool [V]: whether an id is one of ``regular_ids``."""
        mask = np.zeros(self.vocab_size, dtype=bool)
        mask[self.regular_ids] = True
        return mask

    def text_of(self, document: np.ndarray) -> slice:
        """Returns the slice of a document that leaves out special tokens at its ends; a row may
        have cut these off already."""
        begin, end = 0, len(document)
        while begin < end and document[begin] in self.before:
            begin += 1
        while begin < end and document[end - 1] in self.after:
            end -= 1
        return slice(begin, end)


class TaskTokenizer(Vocabulary, ABC):
    """The interface of tokenizers, the project's own and those of public checkpoints."""

    files: list[Path]  # all files that the tokenizer is read from

    @abstractmethod
    def encode(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text, without special tokens."""

    def encode_running(self, sentences: list[str]) -> list[list[int]]:
        """Returns the ids of each sentence of one text; all sentences but the first follow a
        blank."""
        return self.encode(sentences)

    @abstractmethod
    def encode_with_offsets(
        self, texts: list[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Returns the ids of each text with the (begin, end) of each id's characters, without
        blanks at the ends.

        Positions refer to the given text, even if the tokenizer normalises it. Ids that are parts
        of one character all have that character's span; an id of blanks has an empty span.
        """

    @abstractmethod
    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """Returns the ids of each word of each row; a word may have no ids."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids, without special tokens."""

    def shown(self, ids: Iterable[int] | np.ndarray) -> str:
        """Returns the text of ids for display, with special tokens as marks: ``<mask>``, ``<s0>``,
        ..."""
        runs = [(mark, [*run]) for mark, run in groupby(map(int, ids), self._mark)]
        parts = [[self.decode(run)] if mark is None else [mark] * len(run) for mark, run in runs]
        return " ".join(filter(None, chain.from_iterable(parts)))

    def _mark(self, i: int) -> str | None:
        # A model may have more ids than its tokenizer.
        is_text = i < self.vocab_size and self.is_regular[i]
        return None if is_text else self._marks_of_ids.get(i, "")

    @cached_property
    def _marks_of_ids(self) -> dict[int | None, str]:
        sentinels = {int(i): f"<s{k}>" for k, i in enumerate(self.sentinel_ids)}
        return {self.mask_id: "<mask>"} | sentinels

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> list[int]:
        """Returns the ids of a text, or of a pair of texts, with their special tokens."""
        second = [] if pair is None else [*self.between, *pair]
        return [*self.before, *text, *second, *self.after]

    def wrap_within(
        self, max_tokens: int, text: Sequence[int], pair: Sequence[int] | None = None
    ) -> "Wrapped":
        """Returns a text or a pair with its special tokens, in at most ``max_tokens`` ids. The
        longer text is cut first; special tokens are never cut.

        Raises ValueError if there is no room for a token of each text.
        """
        texts = [text] if pair is None else [text, pair]
        room = max_tokens - len(self.wrap([], None if pair is None else []))
        lengths = longest_first([len(each) for each in texts], room)
        cut = [each[:length] for each, length in zip(texts, lengths, strict=True)]
        second = len(self.before) + lengths[0] + len(self.between)
        return Wrapped(
            self.wrap(*cut),
            None if pair is None else second,
            sum(map(len, texts)) - sum(lengths),
        )

    def target(self, text: Sequence[int]) -> list[int]:
        """Returns the ids of a target text with its special tokens."""
        return [*self.before_target, *text, self.eos_id]


class Wrapped(NamedTuple):
    """A text or a pair of texts with their special tokens."""

    ids: list[int]
    pair_start: int | None  # where the second text begins
    num_cut: int  # number of tokens that were cut off


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """Returns the number of tokens to keep of each text, at most ``room`` in all.

    The longest text is cut until another text is as long, then both are cut alike, and so on
    (``longest_first`` of the tokenizers library, which supports two texts).

    Raises ValueError if there is no room for a token of each text.
    """
    if room < len(lengths):
        raise ValueError(f"has room for {max(room, 0)} tokens of {len(lengths)} texts")
    num_kept = [0] * len(lengths)
    by_length = sorted(range(len(lengths)), key=lambda text: lengths[text])
    for shorter, text in enumerate(by_length):
        num_kept[text] = min(lengths[text], room // (len(lengths) - shorter))
        room -= num_kept[text]
    return num_kept


class Tokenizer(TaskTokenizer):
    """The project's own tokenizer, a model of sentencepiece."""

    def __init__(self, path: Path) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.files = [path]
        super().__init__(self._processor.get_piece_size() + NUM_SENTINELS)

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode(texts, num_threads=1)

    def encode_with_offsets(
        self, texts: list[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        encodings = self._processor.encode(texts, return_type="offset_mapping", num_threads=1)
        return [
            (one["ids"], without_blanks(text, _whole_characters(one["offsets"])))
            for text, one in zip(texts, encodings, strict=True)
        ]

    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        words = iter(self.encode([word for row in rows for word in row]))
        return [list(islice(words, len(row))) for row in rows]

    def decode(self, ids: Iterable[int] | np.ndarray) -> str:
        """Returns the text of ids, without special tokens and sentinels."""
        return self._processor.decode([int(i) for i in ids if self.is_regular[i]])

    @cached_property
    def starts_word(self) -> np.ndarray:  # type: ignore[override]
        """Bool [V]: whether the piece begins a word (carries sentencepiece's blank)."""
        pieces = [self._processor.id_to_piece(i) for i in range(self._processor.get_piece_size())]
        return np.array([p.startswith("▁") for p in pieces] + [True] * NUM_SENTINELS)


def without_blanks(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Removes blanks from the ends of spans; a span of blanks alone becomes empty."""
    parts = []
    for begin, end in offsets:
        begin += len(text[begin:end]) - len(text[begin:end].lstrip())
        parts.append((begin, begin + len(text[begin:end].rstrip())))
    return parts


def _whole_characters(offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Gives all pieces of one character (its bytes, the letters of a ligature) the span of the
    whole character. sentencepiece gives the span to the last piece and an empty span to the
    others."""
    widened: list[tuple[int, int]] = []
    following = -1, -1
    for begin, end in reversed(offsets):
        following = (begin, following[1] if begin == end == following[0] else end)
        widened.append(following)
    return widened[::-1]


def _within_limit(sentence: str) -> Iterator[str]:
    """Yields a sentence in pieces short enough for sentencepiece, cut at blanks if possible. The
    limit is not raised, because a model's file contains it: all models would change."""
    begin = 0
    while len(sentence) - begin > MOST_LETTERS and len(sentence[begin:].encode()) > MOST_BYTES:
        end = begin + MOST_LETTERS
        blank = sentence.rfind(" ", begin + 1, end)
        end = end if blank < 0 else blank
        yield sentence[begin:end]
        begin = end
    yield sentence[begin:]


def train(
    sentences: Iterable[str], path: Path, *, algorithm: str, vocab_size: int, threads: int
) -> None:
    """Trains a tokenizer on sentences of any length and writes the model to ``path``.

    Raises ValueError if the text cannot fill ``vocab_size`` or is too varied for it.
    """
    model = io.BytesIO()  # a path of a file would become part of the model
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(map(_within_limit, sentences)),
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
            shuffle_input_sentence=False,  # the sentences are already in a seeded order
            num_threads=threads,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(f"vocab_size {vocab_size} does not suit the text: {error}") from None
    path.write_bytes(model.getvalue())
