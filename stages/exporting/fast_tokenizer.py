"""A tokenizer of ``transformers`` with the same ids as one of ours."""

from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import SpmConverter, generate_merges

from stages.core.seeding import stream
from stages.text.tokenizer import (
    BOS_ID,
    EOS_ID,
    MASK_ID,
    NUM_SENTINELS,
    NUM_SPECIAL,
    PAD_ID,
    UNK_ID,
    Tokenizer,
)

NORMAL = 1  # sentencepiece's type of a piece of text
BPE = 2  # sentencepiece's type of a model


def save(
    path: Path,
    folder: Path,
    *,
    has_end: bool,
    specials_in_text: bool,
    has_segments: bool,
    max_tokens: int,
) -> None:
    """Writes the sentencepiece model in ``path`` as files that AutoTokenizer loads.

    A text becomes ``<s> text </s>``, or ``<s> text`` for a model that continues it (not
    ``has_end``). With ``specials_in_text`` the name of a special token in a text means that token,
    so that a user can write ``[MASK]`` or ``<extra_id_0>``; otherwise it is ordinary text, as in
    our tokenizer. With ``has_segments`` the texts of a pair have different segments. Raises
    ValueError if the ids differ from ours.
    """
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(path.read_bytes())
    special = [piece.piece for piece in model.pieces[:NUM_SPECIAL]]
    fast = _converted(model)
    _add_special(fast, special, has_end=has_end)
    text_ids = [i for i, piece in enumerate(model.pieces) if piece.type == NORMAL]
    _check(fast, Tokenizer(path), text_ids)
    named = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID, "mask": MASK_ID}
    segments = ["token_type_ids"] if has_segments else []
    PreTrainedTokenizerFast(
        tokenizer_object=fast,
        **{f"{name}_token": special[i] for name, i in named.items()},
        model_input_names=["input_ids", *segments, "attention_mask"],
        model_max_length=max_tokens,
        padding_side="right",
        split_special_tokens=not specials_in_text,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def _converted(model: Any) -> FastTokenizer:
    """Returns a fast tokenizer with the pieces, normalisation and decoding of ``model``, without
    special tokens."""
    spec = model.normalizer_spec
    assert spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces
    fast = SpmConverter.build_tokenizer_from_spm_proto(model, *_pieces(model))
    fast.normalizer = normalizers.Sequence(
        [
            # Precompiled reads one character with its marks at a time and loses marks that it does
            # not know, so NFKC composes them first. NFKC would also replace the full-width tilde,
            # which sentencepiece keeps. So a code point that is no character replaces the tilde
            # until NFKC is done.
            normalizers.Replace("\uff5e", "\ufdd0"),
            normalizers.NFKC(),
            normalizers.Replace("\ufdd0", "\uff5e"),
            normalizers.Precompiled(spec.precompiled_charsmap),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False, right=True),
        ]
    )
    # "first": a blank is put before the beginning of a text, but not after a special token.
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    fast.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return fast


def _pieces(model: Any) -> tuple[Any, list[tuple[str, str]] | None]:
    """Returns the pieces and the merges of ``model``. For BPE, the pieces come with their ids; for
    a unigram or char model they come with their log probabilities, and the merges are None.

    Sentencepiece never finds a special token or a byte token in a text. To prevent that here too,
    no BPE merge contains these tokens, or their log probabilities are too low for any text.
    """
    if model.trainer_spec.model_type == BPE:
        ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
        scores = [(piece.piece, piece.score) for piece in model.pieces]
        unread = {piece.piece for piece in model.pieces if piece.type != NORMAL}
        return ids, generate_merges(ids, scores, unread)
    least = min(piece.score for piece in model.pieces) - 1000
    return [(p.piece, p.score if p.type == NORMAL else least) for p in model.pieces], None


def _add_special(fast: FastTokenizer, special: list[str], *, has_end: bool) -> None:
    """Adds the special tokens and the sentinels (named as in T5), and puts ``<s>`` before texts
    and, with ``has_end``, ``</s>`` after them."""
    # A blank before a mask is read as part of the mask, since pieces begin with their blank.
    names = [*special, *(f"<extra_id_{k}>" for k in reversed(range(NUM_SENTINELS)))]
    fast.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False, lstrip=name == special[MASK_ID])
            for name in names
        ]
    )
    bos, eos = special[BOS_ID], special[EOS_ID]
    end = f" {eos}" if has_end else ""
    fast.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A{end}",
        pair=f"{bos} $A{end} $B:1{end}:1" if end else f"{bos} $A $B:1",
        special_tokens=[(bos, BOS_ID), (eos, EOS_ID)],
    )


def _check(fast: FastTokenizer, ours: Tokenizer, text_ids: list[int]) -> None:
    """Raises ValueError unless both tokenizers give the same ids for texts of random pieces.

    The order of the ids may differ, because some segmentations (of a repeated character, for
    example) are equally probable.
    """
    if fast.get_vocab_size() != ours.vocab_size:
        raise ValueError(
            f"the tokenizer cannot be exported: transformers counts {fast.get_vocab_size()} tokens "
            f"in a vocabulary of {ours.vocab_size}"
        )
    rng = stream(0, "export")
    texts = [ours.decode(rng.choice(np.array(text_ids), 8).tolist()) for _ in range(300)]
    encodings = fast.encode_batch(texts, add_special_tokens=False)
    for text, expected, encoding in zip(texts, ours.encode(texts), encodings, strict=True):
        is_same = sorted(expected) == sorted(encoding.ids)
        if not is_same or fast.decode(expected) != ours.decode(expected):
            raise ValueError(
                f"the tokenizer cannot be exported: transformers reads {text!r} differently"
            )
