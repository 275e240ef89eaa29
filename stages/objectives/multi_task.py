"""Several tasks at once, all in text-to-text form (T5; Raffel et al. 2020, section 3.5.2)."""

from dataclasses import replace

import numpy as np

from stages.models._heads import ModelWithHead, labelled
from stages.objectives._cross_entropy import cross_entropy
from stages.objectives._objective import Objective, Terms
from stages.objectives._seq2seq import Pair, batch_of, documents_of, joined, numbered, written
from stages.text.batch import IGNORE_INDEX, Batch, label_places
from stages.text.packing import Row
from stages.text.tokenizer import Vocabulary

TERM = "multi_task"


class MultiTask(Objective):
    """Each document is an example of a task from the source ``tasks``: its first sentence is the
    input and its second the target. Only the target is predicted, in the format of fine-tuning:

        encoder-decoder   <bos> text <eos>    <bos> target          -> target <eos>
        decoder           <bos> text <eos> target                   -> target <eos>

    If the end of a row cuts the target of an example, only the part in that row is predicted, not
    the part in the next row.
    """

    architectures = ("decoder", "encoder_decoder")

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        rows = [
            [pair_of(document, self.vocabulary) for document in documents_of(row)]
            for row in examples
        ]
        if self.architecture == "encoder_decoder":
            batch = batch_of(rows, term=TERM, vocabulary=self.vocabulary)
        else:
            both = [[_joined(source, target) for source, target in pairs] for pairs in rows]
            ids = [[tokens for tokens, _ in pairs] for pairs in both]
            labels = joined([[label for _, label in pairs] for pairs in both], IGNORE_INDEX)
            batch = Batch(
                input_ids=joined(ids, self.vocabulary.pad_id),
                document_ids=numbered(ids),
                labels=labels,
                num_targets={TERM: int((labels != IGNORE_INDEX).sum())},
            )
        assert batch.labels is not None
        return replace(batch, label_places=label_places(batch.labels))

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        inputs, targets = pair_of(passage, self.vocabulary)
        # Long inputs are cut, as in fine-tuning.
        room = self.max_tokens - 1
        return inputs if len(targets) else np.append(inputs[:room], self.vocabulary.after)

    def loss(self, model: ModelWithHead, batch: Batch) -> Terms:
        assert batch.labels is not None and batch.label_places is not None
        writes = batch.decoder_input_ids is not None
        states = model.backbone.decode(batch) if writes else model.backbone(batch)
        states, labels = labelled(states, batch.labels, batch.label_places)
        return {TERM: (1.0, cross_entropy(model.backbone.unembed(states), labels))}


def pair_of(document: Row, vocabulary: Vocabulary) -> Pair:
    """Returns (inputs, targets) of a document; the targets are empty if the document's beginning or
    second sentence is in another row."""
    assert document.starts_sentence is not None
    tokens, starts = document.tokens, np.flatnonzero(document.starts_sentence)
    if len(starts) < 2:
        return tokens, tokens[:0]
    split = int(starts[1])
    return np.append(tokens[:split], vocabulary.after), written(tokens[split:], vocabulary)


def _joined(source: np.ndarray, target: np.ndarray) -> Pair:
    """Returns (tokens, labels) of an example in a decoder's row: the last token of the source
    predicts the first of the target."""
    ignored = np.full(max(len(source) - 1, 0), IGNORE_INDEX)
    if not len(target):
        return source, np.full(len(source), IGNORE_INDEX)
    return np.concatenate([source, target[:-1]]), np.concatenate([ignored, target])
