"""With equal weights and options, encoder, decoder and encoder_decoder compute what BERT, GPT-2 and
T5 compute in transformers, forward and backward."""

from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor

from stages.exporting.counterparts import counterpart
from stages.text.batch import PADDING, Batch
from tests.small import VOCAB_SIZE, small_model

pytestmark = pytest.mark.slow

WIDTH, LAYERS, HEADS, FF = 32, 3, 4, 48


class Case(NamedTuple):
    architecture: str
    options: dict[str, Any]
    theirs: Any


def bert() -> Case:
    config = transformers.BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=FF,
        max_position_embeddings=40,
        type_vocab_size=2,
        layer_norm_eps=1e-5,
    )
    options = {"norm_position": "post", "positions": "learned", "embedding_norm": True}
    options |= {"num_segments": 2, "max_positions": 40}
    return Case("encoder", options, transformers.BertModel(config, add_pooling_layer=False))


def gpt2() -> Case:
    config = transformers.GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=FF,
        n_positions=40,
        activation_function="gelu",
    )
    options = {"positions": "learned", "max_positions": 40}
    return Case("decoder", options, transformers.GPT2LMHeadModel(config))


def t5() -> Case:
    config = transformers.T5Config(
        vocab_size=VOCAB_SIZE,
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=FF,
        num_layers=LAYERS,
        num_heads=HEADS,
        decoder_start_token_id=0,
    )
    # Untied, since ours has no counterpart of the division of tied logits within its states.
    options = {"norm": "rmsnorm", "bias": False, "positions": "relative", "activation": "relu"}
    return Case(
        "encoder_decoder",
        options | {"tied": False},
        transformers.T5ForConditionalGeneration(config),
    )


def their_states(model: Any, batch: Batch) -> Tensor:
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": (batch.document_ids != PADDING).long(),
    }
    if batch.segment_ids is not None:
        return model(**inputs, token_type_ids=batch.segment_ids).last_hidden_state
    if batch.decoder_input_ids is None:
        return model.transformer(**inputs).last_hidden_state
    assert batch.decoder_document_ids is not None
    found = model(
        **inputs,
        decoder_input_ids=batch.decoder_input_ids,
        decoder_attention_mask=(batch.decoder_document_ids != PADDING).long(),
        output_hidden_states=True,
    )
    return found.decoder_hidden_states[-1]


def our_states(model: Any, batch: Batch) -> Tensor:
    return model(batch) if batch.decoder_input_ids is None else model.decode(batch)


def rows_with_padding(architecture: str) -> tuple[Batch, Tensor]:
    """Two rows, of which one is padded, and which states of them count."""
    generator = torch.Generator().manual_seed(1)

    def padded(lengths: tuple[int, int]) -> tuple[Tensor, Tensor]:
        ids = torch.randint(5, VOCAB_SIZE, (2, max(lengths)), generator=generator)
        real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        return ids.masked_fill(~real, 0), real.long()

    ids, real = padded((33, 20))
    extra: dict[str, Any] = {}
    counted = real
    if architecture == "encoder":
        extra["segment_ids"] = torch.randint(0, 2, ids.shape, generator=generator)
    if architecture == "encoder_decoder":
        extra["decoder_input_ids"], counted = padded((9, 23))
        extra["decoder_document_ids"] = counted
    batch = Batch(input_ids=ids, document_ids=real, num_targets={}, **extra)
    return batch, counted.bool()


@pytest.mark.parametrize("make", [bert, gpt2, t5])
def test_states_and_gradients_are_those_of_transformers(make) -> None:
    torch.manual_seed(0)
    architecture, options, theirs = make()
    with torch.no_grad():
        for weight in theirs.parameters():  # biases are 0 and norms 1 else
            weight += 0.1 * torch.randn_like(weight)
    sizes = {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": FF}
    ours = small_model(architecture, **sizes, **options, output_bias=False)  # states have none
    table = counterpart(
        architecture, ours.dims, vocab_size=VOCAB_SIZE, max_tokens=40, goal="pretrained"
    )
    shapes = {name: weight.shape for name, weight in ours.state_dict().items()}
    ours.load_state_dict(table.to_ours(theirs.state_dict(), shapes), strict=True)

    batch, counted = rows_with_padding(architecture)
    got, expected = our_states(ours.eval(), batch), their_states(theirs.eval(), batch)
    assert expected[counted].std() > 0.1
    torch.testing.assert_close(got[counted], expected[counted], atol=1e-4, rtol=1e-4)

    directions = torch.randn(got[counted].shape)
    for states in (got, expected):
        (states[counted] * directions).sum().backward()
    gradients = {n: w.grad for n, w in theirs.named_parameters() if w.grad is not None}
    compared = 0
    for pair in table.pairs:
        if not set(pair.theirs) <= set(gradients):
            continue  # the output embedding
        for name, gradient in pair.to_ours(gradients, shapes).items():
            by_chain_rule = gradient * pair.factor**2  # theirs is factor times ours
            torch.testing.assert_close(
                ours.get_parameter(name).grad, by_chain_rule, atol=1e-3, rtol=1e-3
            )
            compared += 1
    assert compared >= len(shapes) - 1
