"""With equal weights and options, encoder, decoder and encoder_decoder compute what BERT, GPT-2 and
T5 compute in transformers, forward and backward."""

from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor
from torch.func import functional_call

from stages.exporting.families import family_of
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
    # Untied, because T5 scales tied logits and ours does not.
    options = {"norm": "rmsnorm", "bias": False, "positions": "relative", "activation": "relu"}
    return Case(
        "encoder_decoder",
        options | {"tied": False},
        transformers.T5ForConditionalGeneration(config),
    )


def their_states(model: Any, weights: dict[str, Tensor], batch: Batch) -> Tensor:
    """The last states of their model with these weights."""
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": (batch.document_ids != PADDING).long(),
        "output_hidden_states": True,
    }
    if batch.segment_ids is not None:
        inputs["token_type_ids"] = batch.segment_ids
    if batch.decoder_input_ids is not None:
        assert batch.decoder_document_ids is not None
        inputs["decoder_input_ids"] = batch.decoder_input_ids
        inputs["decoder_attention_mask"] = (batch.decoder_document_ids != PADDING).long()
    output = functional_call(model, weights, kwargs=inputs, tie_weights=False)
    decodes = batch.decoder_input_ids is not None
    return (output.decoder_hidden_states if decodes else output.hidden_states)[-1]


def our_states(model: Any, batch: Batch) -> Tensor:
    return model(batch) if batch.decoder_input_ids is None else model.decode(batch)


def rows_with_padding(architecture: str) -> tuple[Batch, Tensor]:
    """Returns two rows, one of them padded, and a mask of the states to compare."""
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
    """Gradients with respect to our weights agree, through our model and through theirs."""
    torch.manual_seed(0)
    architecture, options, theirs = make()
    sizes = {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": FF}
    ours = small_model(architecture, **sizes, **options, output_bias=False)  # states do not use it
    with torch.no_grad():
        for weight in ours.parameters():  # otherwise biases are 0 and norms 1
            weight += 0.2 * torch.randn_like(weight)
    parameters = dict(ours.named_parameters())
    family = family_of(architecture, ours.dims, with_head=False)
    weights = family.weights(parameters, theirs, ours.dims)
    assert {name for name, _ in theirs.named_parameters()} <= weights.keys()

    batch, counted = rows_with_padding(architecture)
    got, expected = our_states(ours.eval(), batch), their_states(theirs.eval(), weights, batch)
    assert expected[counted].std() > 0.1
    torch.testing.assert_close(got[counted], expected[counted], atol=1e-4, rtol=1e-4)

    directions = torch.randn(got[counted].shape)
    used = {name: weight for name, weight in parameters.items() if name != "output.weight"}
    gradients, their_gradients = (
        torch.autograd.grad((states[counted] * directions).sum(), [*used.values()])
        for states in (got, expected)
    )
    for name, ours_of, theirs_of in zip(used, gradients, their_gradients, strict=True):
        torch.testing.assert_close(ours_of, theirs_of, atol=1e-3, rtol=1e-3, msg=name)
