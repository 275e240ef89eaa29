"""Several tasks at once, all in text-to-text form (T5; Raffel et al. 2020, section 3.5.2)."""

from dataclasses import replace

import numpy as np

from stages.objectives._seq2seq import Pair, PairObjective, joined, numbered
from stages.text.batch import IGNORE_INDEX, Batch, label_places
from stages.text.packing import Row


class MultiTask(PairObjective):
    """Each document is an example of a task from the source ``tasks``: its first sentence is the
    input and its second the target. Only the target is predicted, in the format of fine-tuning:

        encoder-decoder   <bos> text <eos>    <bos> target          -> target <eos>
        decoder           <bos> text <eos> target                   -> target <eos>

    If the end of a row cuts the target of an example, only the part in that row is predicted, not
    the part in the next row.
    """

    architectures = ("decoder", "encoder_decoder")
    term = "multi_task"

    def pair(self, document: Row, *, rng: np.random.Generator) -> Pair:
        """Returns (inputs, targets) of a document; the targets are empty if the document's
        beginning or second sentence is in another row."""
        assert document.starts_sentence is not None
        tokens, starts = document.tokens, np.flatnonzero(document.starts_sentence)
        if len(starts) < 2:
            return tokens, tokens[:0]
        split = int(starts[1])
        return np.append(tokens[:split], self.vocabulary.after), self.written(tokens[split:])

    def collate(self, examples: list[Row], *, rngs: list[np.random.Generator]) -> Batch:
        if self.architecture == "encoder_decoder":
            batch = super().collate(examples, rngs=rngs)
        else:
            rows = self.pairs(examples, rngs)
            # The last token of a source predicts the first of its target.
            ids = [
                [np.concatenate([source, target[:-1]]) for source, target in row] for row in rows
            ]
            labels = [
                [
                    np.append(np.full(len(tokens) - len(target), IGNORE_INDEX), target)
                    for tokens, (_, target) in zip(whole, row, strict=True)
                ]
                for whole, row in zip(ids, rows, strict=True)
            ]
            batch = Batch(
                input_ids=joined(ids, self.vocabulary.pad_id),
                document_ids=numbered(ids),
                **self.targets(joined(labels, IGNORE_INDEX)),
            )
        assert batch.labels is not None
        return replace(batch, label_places=label_places(batch.labels))

    def prompt(self, passage: Row, *, rng: np.random.Generator) -> np.ndarray:
        inputs, targets = self.pair(passage, rng=rng)
        # Long inputs are cut, as in fine-tuning.
        room = self.max_tokens - 1
        return inputs if len(targets) else np.append(inputs[:room], self.vocabulary.after)
