"""A tokenizer of transformers with the same ids as one of ours."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import Tokenizer as FastTokenizer

from stages.core.artifacts import write_json
from stages.core.seeding import stream
from stages.text.tokenizer import (
    BOS_ID,
    EOS_ID,
    MASK_ID,
    NUM_SENTINELS,
    PAD_ID,
    UNK_ID,
    Tokenizer,
)

NORMAL = 1  # sentencepiece's type of a piece that stands for text
BPE = 2  # its type of a model
Ends = Literal["begin", "both"]


def save(
    path: Path,
    folder: Path,
    *,
    ends: Ends,
    specials_in_text: bool,
    num_segments: int,
    max_tokens: int,
) -> None:
    """Write the sentencepiece model of ``path`` as files that AutoTokenizer loads.

    ``<s> text </s>`` if ``ends`` is both, ``<s> text`` for a text that a model continues. With
    ``specials_in_text`` the name of a special token in a text means that token, so that a user can
    write ``[MASK]`` or ``<extra_id_0>``; otherwise it is ordinary text, as in our tokenizer. Raises
    ValueError if the ids differ from ours.
    """
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(path.read_bytes())
    fast = _convert(model)
    special = [piece.piece for piece in model.pieces[: MASK_ID + 1]]
    _add_special(fast, special, ends)
    segments = ["token_type_ids"] if num_segments > 1 else []  # they tell texts of a pair apart
    text_ids = [i for i, piece in enumerate(model.pieces) if piece.type == NORMAL]
    _check(fast, Tokenizer(path), text_ids)
    fast.save(str(folder / "tokenizer.json"))
    named = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID, "mask": MASK_ID}
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{name}_token": special[i] for name, i in named.items()},
            "model_input_names": ["input_ids", *segments, "attention_mask"],
            "model_max_length": max_tokens,
            "padding_side": "right",
            "split_special_tokens": not specials_in_text,
            "clean_up_tokenization_spaces": False,
        },
    )


def _convert(model: Any) -> FastTokenizer:
    """The same pieces, normalisation and decoding; without special tokens."""
    spec = model.normalizer_spec
    assert spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces
    fast = FastTokenizer(_bpe(model) if model.trainer_spec.model_type == BPE else _unigram(model))
    fast.normalizer = normalizers.Sequence(
        [
            # Precompiled looks at one character with its marks at a time and loses marks that it
            # does not know; NFKC leaves it nothing to compose. Sentencepiece keeps the full-width
            # tilde, so a code point that is no character stands in for it meanwhile.
            normalizers.Replace("\uff5e", "\ufdd0"),
            normalizers.NFKC(),
            normalizers.Replace("\ufdd0", "\uff5e"),
            normalizers.Precompiled(spec.precompiled_charsmap),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False, right=True),
        ]
    )
    # "first": text behind a special token goes on without a blank of its own.
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


def _unigram(model: Any) -> models.Unigram:
    """Also for ``char``, which is a unigram model of single characters."""
    # Sentencepiece never reads special tokens and bytes from text; here they are just improbable.
    least = min(piece.score for piece in model.pieces) - 1000
    pieces = [(p.piece, p.score if p.type == NORMAL else least) for p in model.pieces]
    return models.Unigram(pieces, unk_id=UNK_ID, byte_fallback=model.trainer_spec.byte_fallback)


def _bpe(model: Any) -> models.BPE:
    ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
    normal = {p.piece: (-p.score, ids[p.piece]) for p in model.pieces if p.type == NORMAL}
    merges = [
        (piece[:at], piece[at:])
        for piece in sorted(normal, key=normal.__getitem__)
        for at in range(1, len(piece))
        if piece[:at] in normal and piece[at:] in normal
    ]
    return models.BPE(
        vocab=ids,
        merges=merges,
        unk_token=model.pieces[UNK_ID].piece,
        fuse_unk=True,
        byte_fallback=model.trainer_spec.byte_fallback,
    )


def _add_special(fast: FastTokenizer, special: list[str], ends: Ends) -> None:
    """Special tokens, the sentinels by T5's names, and <bos> and <eos> around a text."""
    # A blank before a mask belongs to the word behind the mask.
    names = [*special, *(f"<extra_id_{k}>" for k in reversed(range(NUM_SENTINELS)))]
    fast.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False, lstrip=name == special[MASK_ID])
            for name in names
        ]
    )
    bos, eos = special[BOS_ID], special[EOS_ID]
    end = f" {eos}" if ends == "both" else ""
    fast.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A{end}",
        pair=f"{bos} $A{end} $B:1{end}:1" if end else f"{bos} $A $B:1",
        special_tokens=[(bos, BOS_ID), (eos, EOS_ID)],
    )


def _check(fast: FastTokenizer, ours: Tokenizer, text_ids: list[int]) -> None:
    """Raises ValueError unless both give the same ids for texts made of random pieces.

    Of two segmentations that are equally probable (of a run of one character, say) either will do.
    """
    if fast.get_vocab_size() != ours.vocab_size:
        raise ValueError(
            f"the tokenizer cannot be exported: transformers counts {fast.get_vocab_size()} tokens "
            f"in a vocabulary of {ours.vocab_size}"
        )
    rng = stream(0, "export")
    texts = [ours.decode(rng.choice(np.array(text_ids), 8).tolist()) for _ in range(300)]
    found = fast.encode_batch(texts, add_special_tokens=False)
    for text, expected, got in zip(texts, ours.encode(texts), found, strict=True):
        if sorted(expected) != sorted(got.ids) or fast.decode(expected) != ours.decode(expected):
            raise ValueError(
                f"the tokenizer cannot be exported: transformers reads {text!r} differently"
            )
