"""Tokenizers: the ids of texts, and what the ids mean.

A tokenizer is trained with sentencepiece (Kudo and Richardson 2018) and then converted into the
form of published tokenizers (``tokenizer.json``), so that one class reads both.
"""

import io
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stages.text.checkpoints import CONFIG, LOCAL, VOCABULARY, config_of, files_in, line_of

PAD_ID, UNK_ID, BOS_ID, EOS_ID, MASK_ID = range(5)
NUM_SPECIAL = 5
NUM_SENTINELS = 100  # T5's number: the last ids of the vocabulary, counted down
SENTINEL = re.compile(r"<extra_id_(\d+)>").fullmatch  # as T5 and its successors name them
DECODER_START = "decoder_start"  # names the token in the settings of what is trained here
MOST_BYTES = 2**30  # of a sentence; sentencepiece leaves out longer sentences silently
NORMAL, BPE = 1, 2  # sentencepiece's type of a piece of text, and of a model

# Threads gain little on few texts, and do not survive in the forked processes of trials.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Vocabulary:
    """The meaning of token ids. The defaults describe the project's own tokenizers: 5 special
    tokens, sentencepiece's pieces, and the sentinels at the end.

    A text is surrounded by ``before`` and ``after``; ``between`` separates the texts of a pair. A
    target text begins with ``before_target`` and ends with ``eos_id``.
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
        """Returns the slice of a document without special tokens at its ends."""
        begin, end = 0, len(document)
        while begin < end and document[begin] in self.before:
            begin += 1
        while begin < end and document[end - 1] in self.after:
            end -= 1
        return slice(begin, end)

    def wrap(self, text: Sequence[int], pair: Sequence[int] | None = None) -> list[int]:
        """Returns the ids of a text, or of a pair of texts, with their special tokens."""
        second = [] if pair is None else [*self.between, *pair]
        return [*self.before, *text, *second, *self.after]

    def wrap_within(
        self,
        max_tokens: int,
        text: Sequence[int],
        pair: Sequence[int] | None = None,
        *,
        ends: bool = False,
    ) -> "Wrapped":
        """Returns a text or a pair with its special tokens, in at most ``max_tokens`` ids. The
        longer text is cut first, at its end or (``ends``) in its middle.

        Raises ValueError if there is no room for a token of each text.
        """
        texts = [text] if pair is None else [text, pair]
        room = max_tokens - len(self.wrap([], None if pair is None else []))
        lengths = longest_first([len(each) for each in texts], room)

        def shortened(ids: Sequence[int], length: int) -> list[int]:
            tail = length // 2 if ends else 0
            return [*ids[: length - tail], *ids[len(ids) - tail :]]

        ids = self.wrap(*map(shortened, texts, lengths))
        second = None if pair is None else len(self.before) + lengths[0] + len(self.between)
        return Wrapped(ids, second, sum(map(len, texts)) - sum(lengths))

    def target(self, text: Sequence[int]) -> list[int]:
        """Returns the ids of a target text with its special tokens."""
        return [*self.before_target, *text, self.eos_id]


class Wrapped(NamedTuple):
    """A text or a pair of texts with their special tokens."""

    ids: list[int]
    pair_start: int | None  # where the second text begins
    num_cut: int  # number of tokens that were cut off


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """Returns the number of tokens to keep of each text, at most ``room`` in all: the longest text
    is cut until another is as long, then both are cut alike (as the tokenizers library does).

    Raises ValueError if there is no room for a token of each text.
    """
    if room < len(lengths):
        raise ValueError(
            f"finetune.max_tokens: leaves room for {max(room, 0)} tokens of {len(lengths)} texts"
        )
    num_kept = [0] * len(lengths)
    by_length = sorted(range(len(lengths)), key=lambda text: lengths[text])
    for shorter, text in enumerate(by_length):
        num_kept[text] = min(lengths[text], room // (len(lengths) - shorter))
        room -= num_kept[text]
    return num_kept


class Tokenizer(Vocabulary):
    """A tokenizer in the files of a folder, trained here or published; ``transformers`` reads it.

    Its special tokens are those that it puts around texts. If it adds none, a text ends with its
    end-of-text token (GPT-2). The name of a special token in a text ("[SEP]") is ordinary text.
    """

    blank: str  # before a word or a sentence that continues a text

    def __init__(self, folder: Path) -> None:
        """Raises ValueError for a folder without a tokenizer that can be used."""
        from transformers import AutoTokenizer  # the import takes seconds

        self._folder = folder
        self.files = [file for file in files_in(folder, VOCABULARY) if file.name != CONFIG]
        try:
            texts: Any = AutoTokenizer.from_pretrained(folder, **LOCAL)
        except Exception as error:  # readers of vocabularies raise many kinds
            raise ValueError(f"path: the tokenizer of {folder}: {line_of(error)}") from None
        if not texts.is_fast:
            raise ValueError(
                f"path: the tokenizer of {folder} has no fast form (tokenizer.json), which is "
                "needed to find where words begin"
            )
        self._texts, self._fast = texts, texts.backend_tokenizer
        self._fast.no_truncation()
        self._fast.no_padding()
        self._fast.encode_special_tokens = True
        ids = texts.get_vocab()
        self.vocab_size = max(ids.values(), default=-1) + 1
        sentinels = sorted((int(m[1]), i) for token, i in ids.items() if (m := SENTINEL(token)))
        special = {*texts.all_special_ids, *(i for _, i in sentinels)}
        if not any(i not in special and any(map(str.isalnum, token)) for token, i in ids.items()):
            raise ValueError(
                f"path: the tokenizer of {folder} knows no word: its vocabulary is missing"
            )
        self.sentinel_ids = np.array([i for _, i in sentinels], dtype=np.int64)
        self.regular_ids = np.array(sorted({*ids.values()} - special), dtype=np.int64)
        self._read_special_tokens()
        if DECODER_START not in texts.init_kwargs and (folder / CONFIG).is_file():
            config = config_of(folder)
            start_id = getattr(config, "decoder_start_token_id", None)
            self.start_id = self.pad_id if start_id is None else start_id  # T5 begins with padding
            if config.is_encoder_decoder:
                self.before_target = self.before  # BART's targets begin with <s>, too
        self.blank = self._blank_before()

    def _read_special_tokens(self) -> None:
        """Sets the special tokens and those around texts."""
        parts: tuple[list[int], ...] = ([], [], [])  # before, between and after two texts
        pair, num_texts = self._fast.encode("a", "a"), 0
        for token, text in zip(pair.ids, pair.sequence_ids, strict=True):
            if text is None:
                parts[num_texts].append(token)
            else:
                num_texts = text + 1
        eos_id, pad_id = self._texts.eos_token_id, self._texts.pad_token_id
        self.before = tuple(parts[0])
        self.after = tuple(parts[2]) or (() if eos_id is None else (eos_id,))
        if not self.after:
            raise ValueError(f"path: the tokenizer of {self._folder} has no token that ends a text")
        self.between = tuple(parts[1]) or self.after
        self.eos_id = self.after[-1] if eos_id is None else eos_id
        self.pad_id = 0 if pad_id is None else pad_id  # any id: nothing attends to padding
        self.mask_id, unk_id = self._texts.mask_token_id, self._texts.unk_token_id
        self.unk_id = self.after[-1] if unk_id is None else unk_id

    def _blank_before(self) -> str:
        """Returns the text to put before a word so that it is encoded as in mid-sentence.

        It is a blank where the token of a word includes the blank before it (byte-level), and ""
        where no token does (WordPiece) or the tokenizer adds the blank itself (sentencepiece).
        ModernBERT's, Llama 3's and Gemma's ignore ``add_prefix_space``.
        """
        alone, spaced, both = self.encode(["a", " a", "a a"])
        return " " if alone + alone != both == alone + spaced else ""

    def save_to(self, folder: Path) -> None:
        """Copies the files of the tokenizer, without the model's configuration."""
        for file in self.files:
            target = folder / file.relative_to(self._folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)

    @cached_property
    def starts_word(self) -> np.ndarray:  # type: ignore[override]
        """Bool [V]: whether the decoded text of an id begins with a blank."""
        (*_, anchor) = self.encode(["a"])[0]
        alone = len(self._texts.decode([anchor]))
        texts = self._texts.batch_decode([[anchor, i] for i in range(self.vocab_size)])
        return np.array([text[alone:][:1].isspace() for text in texts])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special tokens."""
        encodings = self._fast.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Returns the ids of each text with the (begin, end) of each id's characters in the given
        text, without blanks at the ends. Ids that are parts of one character all have its span."""

        def without_blanks(text: str, begin: int, end: int) -> tuple[int, int]:
            begin += len(text[begin:end]) - len(text[begin:end].lstrip())
            return begin, begin + len(text[begin:end].rstrip())

        encodings = self._fast.encode_batch(texts, add_special_tokens=False)
        return [
            (encoding.ids, [without_blanks(text, *span) for span in encoding.offsets])
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def encode_words(self, rows: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """Returns the ids of each word of each row; a word may have no ids."""
        words = iter(self.encode([word and self.blank + word for row in rows for word in row]))
        return [list(islice(words, len(row))) for row in rows]

    def decode(self, ids: Iterable[int] | np.ndarray) -> str:
        """Returns the text of ids, without special tokens, sentinels, and blanks at the ends."""
        return self._texts.decode([i for i in map(int, ids) if self._is_text(i)]).strip()

    def _is_text(self, i: int) -> bool:
        return i < self.vocab_size and bool(self.is_regular[i])  # a model may have more ids

    def shown(self, ids: Iterable[int] | np.ndarray) -> str:
        """Returns the text of ids for display, with special tokens as marks (``<mask>``)."""
        marks = {self.mask_id: "<mask>"}
        marks |= {int(i): f"<s{k}>" for k, i in enumerate(self.sentinel_ids)}
        runs = groupby(map(int, ids), lambda i: None if self._is_text(i) else marks.get(i, ""))
        parts = [[self.decode(run)] if mark is None else [mark for _ in run] for mark, run in runs]
        return " ".join(filter(None, chain.from_iterable(parts)))


def train(
    sentences: Iterable[str], folder: Path, *, algorithm: str, vocab_size: int, threads: int
) -> None:
    """Trains a tokenizer on sentences and writes its files into ``folder``. Raises ValueError if
    the text cannot fill ``vocab_size`` or is too varied for it."""
    import sentencepiece

    model = io.BytesIO()
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
            max_sentence_length=MOST_BYTES,
            shuffle_input_sentence=False,  # the sentences are already in a seeded order
            num_threads=threads,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ValueError(f"vocab_size {vocab_size} does not suit the text: {error}") from None
    _save_converted(model.getvalue(), folder)


def _save_converted(sentencepieces: bytes, folder: Path) -> None:
    """Writes a model of sentencepiece as a fast tokenizer, which gives texts the same ids."""
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import SpmConverter

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(sentencepieces)
    fast = SpmConverter.build_tokenizer_from_spm_proto(model, *_pieces(model))
    fast.normalizer = normalizers.Sequence(
        [
            # Precompiled loses marks of characters that it does not know, so NFKC composes them
            # first, all but the full-width tilde, which sentencepiece keeps.
            normalizers.Replace("\uff5e", "\ufdd0"),
            normalizers.NFKC(),
            normalizers.Replace("\ufdd0", "\uff5e"),
            normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False, right=True),
        ]
    )
    # "first": a blank is put before the beginning of a text, but not after a special token.
    words = pre_tokenizers.Metaspace(prepend_scheme="first")
    # In a word with unknown characters the names of special tokens would be found, since unknown
    # characters are less probable than these names (see ``_pieces``).
    letters = {ord(letter) for each in model.pieces if each.type == NORMAL for letter in each.piece}
    known = "".join(f"\\x{{{letter:x}}}" for letter in sorted(letters))
    unknown = pre_tokenizers.Split(Regex(f"[^{known}]+"), "isolated")
    fast.pre_tokenizer = pre_tokenizers.Sequence([words, unknown])
    blank = decoders.Replace("▁", " ")
    fast.decoder = decoders.Sequence(
        [blank, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    names = ("pad", "unk", "bos", "eos", "mask")
    special = {name: each.piece for name, each in zip(names, model.pieces, strict=False)}
    bos, eos = special["bos"], special["eos"]
    sentinels = [f"<extra_id_{k}>" for k in reversed(range(NUM_SENTINELS))]
    # A blank before a mask is read as part of the mask, since pieces begin with their blank.
    fast.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False, lstrip=name == special["mask"])
            for name in (*special.values(), *sentinels)
        ]
    )
    fast.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} $B:1 {eos}:1",
        special_tokens=[(bos, BOS_ID), (eos, EOS_ID)],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=fast,
        **{f"{name}_token": token for name, token in special.items()},
        model_input_names=["input_ids", "attention_mask"],
        padding_side="right",
        clean_up_tokenization_spaces=False,
        **{DECODER_START: bos},
    ).save_pretrained(folder)


def _pieces(model: Any) -> tuple[Any, list[tuple[str, str]] | None]:
    """Returns the pieces with their ids and the merges of a BPE, or the pieces with their log
    probabilities and None.

    Sentencepiece never finds a special token or a byte token in a text. So no merge contains these,
    or their log probabilities are too low for any text of known characters.
    """
    from transformers.convert_slow_tokenizer import generate_merges

    if model.trainer_spec.model_type == BPE:
        ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
        scores = [(piece.piece, piece.score) for piece in model.pieces]
        unread = {piece.piece for piece in model.pieces if piece.type != NORMAL}
        return ids, generate_merges(ids, scores, unread)
    # sentencepiece's score of an unknown character is 10 below the least; here it is 10 below this.
    least = 8 * min(piece.score for piece in model.pieces) - 1
    return [(p.piece, p.score if p.type == NORMAL else least) for p in model.pieces], None
