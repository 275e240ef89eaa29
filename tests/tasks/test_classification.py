"""Classification: what a model sees of a text or a pair."""

from dataclasses import replace

import torch

from stages.models._heads import ModelWithHead, initialise_head
from stages.tasks.classification import Classification
from stages.text.batch import IGNORE_INDEX
from stages.text.tokenizer import BOS_ID, EOS_ID
from tests.small import ARCHITECTURES, small_model, small_tokenizer, without_output_layers

LABELS = ["bad", "fine", "good"]


def task(max_tokens: int = 16, **settings) -> Classification:
    return Classification(LABELS, small_tokenizer(), max_tokens, **settings)


def adapted(architecture: str, of: Classification) -> ModelWithHead:
    backbone = without_output_layers(small_model(architecture))
    head = of.head(backbone)
    initialise_head(head, generator=torch.Generator().manual_seed(1))
    return ModelWithHead(backbone, head).eval()


def test_a_text_stands_between_its_marks() -> None:
    (example,) = task().encode([{"id": "1", "text": "a class", "label": "good"}])
    assert (example.tokens[0], example.tokens[-1]) == (BOS_ID, EOS_ID)
    assert small_tokenizer().decode(example.tokens) == "a class"
    assert example.labels.tolist() == [2]


def test_of_a_pair_the_first_text_is_cut() -> None:
    row = {"id": "1", "text": "a function " * 20, "text_pair": "a class", "label": "bad"}
    (example,) = task().encode([row])
    assert len(example.tokens) == 16
    assert (example.tokens == EOS_ID).sum() == 2
    assert small_tokenizer().decode(example.tokens).endswith("a class")


def test_the_texts_of_a_pair_are_told_apart_where_a_model_has_segments() -> None:
    rows = [
        {"id": "1", "text": "a class", "text_pair": "a function", "label": "bad"},
        {"id": "2", "text": "a class of its own", "label": "bad"},
    ]
    batch = task().collate(task().encode(rows), rngs=[])
    assert batch.segment_ids is not None
    first = batch.input_ids[0].tolist().index(EOS_ID) + 1
    length = int(batch.document_ids[0].sum())
    expected = [0] * first + [1] * (length - first)
    assert batch.segment_ids[0, :length].tolist() == expected
    assert batch.segment_ids[1].tolist() == [0] * batch.segment_ids.shape[1]
    assert task().collate(task().encode(rows[1:]), rngs=[]).segment_ids is None
    for num_segments in (0, 1, 2):
        model = small_model("encoder", num_segments=num_segments).eval()
        alike = torch.equal(model(batch), model(replace(batch, segment_ids=None)))
        assert alike == (num_segments < 2)


def test_a_test_row_has_no_label_and_counts_in_no_loss() -> None:
    examples = task().encode([{"id": "1", "text": "x"}, {"id": "2", "text": "y", "label": "bad"}])
    batch = task().collate(examples, rngs=[])
    assert batch.labels is not None
    assert batch.labels.tolist() == [IGNORE_INDEX, 0]
    assert batch.num_targets == {"classification": 1}
    assert batch.example_ids == [example.key for example in examples]


def test_an_empty_text_and_a_long_one_are_predicted() -> None:
    for architecture in ARCHITECTURES:
        of = task()
        examples = of.encode([{"id": "1", "text": ""}, {"id": "2", "text": "a class " * 50}])
        batch = of.collate(examples, rngs=[])
        predicted = of.predict(adapted(architecture, of), batch, examples)
        assert len(predicted) == 2 and set(predicted) <= set(LABELS)


def test_prediction_does_not_depend_on_the_batch() -> None:
    """Padding beside a longer text changes no loss."""
    for architecture in ARCHITECTURES:
        of = task()
        model = adapted(architecture, of)
        rows = [
            {"id": "1", "text": "a class", "label": "bad"},
            {"id": "2", "text": "a function of other functions", "label": "good"},
        ]
        examples = of.encode(rows)
        together = of.loss(model, of.collate(examples, rngs=[]))["classification"][1]
        alone = [of.loss(model, of.collate([e], rngs=[]))["classification"][1] for e in examples]
        torch.testing.assert_close(together, alone[0] + alone[1])


def test_a_prefix_is_seen_in_both_directions() -> None:
    """To a decoder that was pretrained so; else a later word changes no earlier state."""
    for has_prefix in (False, True):
        of = task()
        of.has_prefix = has_prefix
        rows = [{"id": "1", "text": "a class of it"}, {"id": "2", "text": "a class"}]
        long, short = (of.collate([example], rngs=[]) for example in of.encode(rows))
        decoder = small_model("decoder").eval()
        alike = torch.allclose(decoder(long)[:, :2], decoder(short)[:, :2], atol=1e-5)
        assert alike != has_prefix


def test_pooling_is_the_architectures_or_what_is_asked_for() -> None:
    assert task().head(small_model("encoder")).pooling == "mean"
    assert task().head(small_model("decoder")).pooling == "last"
    assert task(pooling="first").head(small_model("decoder")).pooling == "first"
