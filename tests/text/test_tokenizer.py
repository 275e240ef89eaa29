"""Conversion of text to ids and back, by tokenizers that are trained here and published ones."""

import io
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import sentencepiece
from transformers import AutoTokenizer

from stages.core.artifacts import read_json, write_json
from stages.text.tokenizer import (
    BOS_ID,
    EOS_ID,
    MASK_ID,
    NUM_SENTINELS,
    Tokenizer,
    Vocabulary,
    train,
)
from tests.small import VOCAB_SIZE, documents, new_folder, small_tokenizer
from tests.small_hub import FAMILIES, checkpoint

LINES = [line for document in documents() for line in document]
ODD = [
    "",
    "   ",
    " two  blanks\u00a0and\ta tab ",
    "Ωmega 漢字 caf\u00e9 cafe\u0301 Ⅷ ﬁne \uff5e",
    "🙂 👨\u200d👩\u200d👧 <0xE2>",
    "<s> </s> <pad> <unk> [MASK] <extra_id_0> <0x41>",
]


def trained(algorithm: str, lines: list[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    folder = new_folder()
    train(lines, folder, algorithm=algorithm, vocab_size=vocab_size, threads=1)
    return Tokenizer(folder)


@pytest.mark.parametrize("algorithm", ["unigram", "bpe", "char"])
def test_train_gives_the_ids_of_sentencepiece(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converted tokenizer reads as the model that was trained, also characters and names of
    special tokens that it did not learn from."""
    models: list[io.BytesIO] = []
    learn = sentencepiece.SentencePieceTrainer.train

    def remember(**options) -> None:
        models.append(options["model_writer"])
        learn(**options)

    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", remember)
    known = [line for line in LINES if not {*line} & {"<", "["}]
    ours, again = trained(algorithm, known), trained(algorithm, known)
    assert [f.read_bytes() for f in ours.files] == [f.read_bytes() for f in again.files]
    theirs = sentencepiece.SentencePieceProcessor(model_proto=models[0].getvalue())
    assert ours.vocab_size == theirs.get_piece_size() + NUM_SENTINELS
    texts = [*LINES, *ODD]
    for text, expected, ids in zip(texts, theirs.encode(texts), ours.encode(texts), strict=True):
        # A repeated character has several equally probable splits.
        assert ids == expected or sorted(ids) == sorted(expected), text
        known_ids = [i for i in expected if ours.is_regular[i]]
        assert ours.decode(ids) == theirs.decode(known_ids).strip()
    starts = [theirs.id_to_piece(int(i)).startswith("▁") for i in ours.regular_ids]
    is_byte = [theirs.is_byte(int(i)) for i in ours.regular_ids]
    ours_starts = ours.starts_word[ours.regular_ids]
    assert all(a == b for a, b, byte in zip(starts, ours_starts, is_byte, strict=True) if not byte)


def test_trained_tokenizer_has_the_defaults_of_a_vocabulary() -> None:
    expected, ours = Vocabulary(VOCAB_SIZE), small_tokenizer()
    names = ("pad_id", "unk_id", "mask_id", "start_id", "eos_id", "before", "between", "after")
    for name in (*names, "before_target", "vocab_size"):
        assert getattr(ours, name) == getattr(expected, name)
    for name in ("sentinel_ids", "regular_ids"):
        assert getattr(ours, name).tolist() == getattr(expected, name).tolist()
    assert ours.sentinel_ids[0] == VOCAB_SIZE - 1


def test_train_reads_long_sentences_and_refuses_too_few_words() -> None:
    long = " ".join(f"elephant{i % 7}" for i in range(2000))
    (ids,) = trained("unigram", [*["a short one"] * 9, long], 379).encode(["elephant"])
    assert len(ids) < 4  # not one for each letter
    with pytest.raises(ValueError, match="vocab_size 50000 does not suit the text"):
        trained("unigram", ["few words"], 50_000)


def test_decode_and_shown_give_back_what_was_encoded() -> None:
    """Characters that are not in the training text are kept as bytes. <bos> and <eos> have no mark;
    the text between marks is unchanged."""
    tokenizer, texts = small_tokenizer(), ["Ωmega 漢字", *LINES[:200]]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(texts)] == texts
    one, two = tokenizer.encode(["one thing", "and two"])
    first, second = tokenizer.sentinel_ids[:2].tolist()
    ids = [BOS_ID, *one, first, *two, MASK_ID, MASK_ID, second, EOS_ID]
    assert tokenizer.shown(ids) == "one thing <s0> and two <mask> <mask> <s1>"


@pytest.mark.parametrize("family", [None, *FAMILIES])
def test_encode_with_offsets_covers_every_letter_in_order(family: str | None) -> None:
    tokenizer = Tokenizer(checkpoint(family)) if family else small_tokenizer()
    texts = [*LINES[:100], "", " \t ", "  The caf\u00e9, ﬁne "]
    texts += [] if family else ["Ⅷ a\u00a0class ", "漢 a"]  # several letters in NFKC, several bytes
    encodings = tokenizer.encode_with_offsets(texts)
    assert [ids for ids, _ in encodings] == tokenizer.encode(texts)
    for text, (ids, offsets) in zip(texts, encodings, strict=True):
        assert len(ids) == len(offsets)
        assert all(a <= b for a, b in pairwise(begin for begin, _ in offsets))
        covered = {place for begin, end in offsets for place in range(begin, end)}
        assert covered == {i for i, letter in enumerate(text) if not letter.isspace()}


# Published tokenizers


@pytest.mark.parametrize("family", FAMILIES)
def test_wrap_adds_the_special_tokens_as_published(family: str) -> None:
    """GPT-2's adds none, and its texts end with its end-of-text token."""
    ours, theirs = Tokenizer(checkpoint(family)), AutoTokenizer.from_pretrained(checkpoint(family))
    end = [theirs.eos_token_id] if family == "gpt2" else []
    texts = LINES[:9]
    for (one, other), (a, b) in zip(pairwise(texts), pairwise(ours.encode(texts)), strict=True):
        assert ours.wrap(a) == theirs(one)["input_ids"] + end
        if not end:
            assert ours.wrap(a, b) == theirs(one, other)["input_ids"]


def test_target_begins_as_the_decoder_was_pretrained(tmp_path: Path) -> None:
    """T5 reads padding first, BART the end of a text and then its beginning."""
    t5, folder = Tokenizer(checkpoint("t5")), tmp_path / "bart"
    assert (t5.start_id, t5.target([7])) == (t5.pad_id, [7, t5.eos_id])
    shutil.copytree(checkpoint("bart"), folder)
    end = Tokenizer(folder).eos_id
    config = read_json(folder / "config.json") | {"decoder_start_token_id": end}
    write_json(folder / "config.json", config)
    bart = Tokenizer(folder)
    assert (bart.start_id, bart.target([7])) == (end, [*bart.before, 7, end])


@pytest.mark.parametrize("family", FAMILIES)
def test_words_and_following_sentences_are_encoded_as_in_a_running_text(family: str) -> None:
    """Tokens may include the blank before a word, follow a token for it, or ignore it."""
    tokenizer = Tokenizer(checkpoint(family))
    rows = [line.split() for line in LINES[:50]]
    running = tokenizer.encode([" ".join(["a", *words]) for words in rows])
    (before,) = tokenizer.encode(["a"])
    for words, ids, expected in zip(rows, tokenizer.encode_words(rows), running, strict=True):
        assert len(ids) == len(words) and all(ids)
        assert before + [i for of_word in ids for i in of_word] == expected
    sentences = tokenizer.encode([LINES[0], *(tokenizer.blank + line for line in LINES[1:4])])
    assert [i for ids in sentences for i in ids] == tokenizer.encode([" ".join(LINES[:4])])[0]
    (text,) = tokenizer.encode(["one two three"])
    if family not in ("bert", "distilbert"):  # WordPiece marks what continues a word
        assert tokenizer.starts_word[text].sum() >= 2


def test_a_special_token_in_a_text_is_text() -> None:
    tokenizer = Tokenizer(checkpoint("bert"))
    (ids,) = tokenizer.encode(["a [SEP] b"])
    assert not {*ids} & {*tokenizer.before, *tokenizer.after}


def test_tokenizer_refuses_a_folder_without_words_or_a_fast_form(tmp_path: Path) -> None:
    """transformers reads a DeBERTa without its spm.model, and each word as unknown."""
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    with pytest.raises(ValueError, match="^path: .* knows no word"):
        Tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "ctrl"}')
    (tmp_path / "vocab.json").write_text('{"a</w>": 0, "<unk>": 1}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(ValueError, match="^path: .* no fast form"):
        Tokenizer(tmp_path)
