"""Tasks that write their answers: any task as text to text (T5; Raffel et al. 2020, section 2.4 and
appendix D), and sequence to sequence.

    classification    reviews text: a fine film                     -> positive
    tagging           names words: Ada met Bob                      -> B-person O B-person
    span_qa           facts question: Who wrote? context: Ada did.  -> Ada
    seq2seq           the task's prefix and the row's text          -> its target
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from stages.core.artifacts import Json
from stages.core.components import Settings
from stages.tasks._cells import Row, plain_text
from stages.tasks._task import Batch, Example, Losses, ModelWithHead, Task, cross_entropy
from stages.text.ignored import IGNORE_INDEX

NO_LABEL = "<no label>"  # prediction for a text that is not exactly one label; always wrong


def verbalised(pairs: Iterable[str]) -> dict[str, str]:
    """Parses ``label=words`` pairs into {label: words}; raises ValueError for any other form."""
    words_by_label: dict[str, str] = {}
    for pair in pairs:
        label, _, words = pair.partition("=")
        if not label or not words.strip():
            raise ValueError(f"verbalisers: {pair!r} is not of the form label=words")
        if label in words_by_label:
            raise ValueError(f"verbalisers: the label {label!r} has two")
        words_by_label[label] = words.strip()
    return words_by_label


def label_words(labels: Sequence[str], verbalisers: Iterable[str]) -> dict[str, str]:
    """Returns the text of each label: its verbaliser, or the label with blanks for underscores.

    Raises ValueError for the verbaliser of an unknown label, and for labels with the same text.
    """
    given = verbalised(verbalisers)
    if unknown := [label for label in given if label not in labels]:
        raise ValueError(f"verbalisers: {unknown[0]!r} is not a label; labels: {', '.join(labels)}")
    if NO_LABEL in labels:
        raise ValueError(f"the label {NO_LABEL!r} is reserved for wrong predictions; rename it")
    words = {label: given.get(label, label.replace("_", " ").strip()) for label in labels}
    for word, number in Counter(map(plain_text, words.values())).items():
        if number > 1:
            same = " and ".join(label for label in words if plain_text(words[label]) == word)
            raise ValueError(f"verbalisers: labels {same} share the verbaliser {word!r}")
    return words


class TextForm:
    """The rows of a task as text. The input begins with the task's key in params.yaml, so that one
    model can learn several tasks; before the text of each column is the column's name."""

    def __init__(self, kind: Task, key: str, record: Settings) -> None:
        """Takes the task's key and its ``task.json``."""
        self.kind, self.key, self.record, self.settings = kind, key, record, record["task"]
        self.words = kind.words_of(record["labels"], self.settings)  # the text of each class
        self.label_of = {plain_text(words): label for label, words in self.words.items()}

    def parts(self, row: Row) -> list[tuple[str, str]]:
        """Returns what ``input`` consists of: ``("facts context:", "Ada did.")``."""
        parts = [(f"{name}:", text) for name, text in self.kind.named_texts(row).items()]
        return [(f"{self.key} {parts[0][0]}", parts[0][1]), *parts[1:]]

    def input(self, row: Row) -> str:
        """Returns the text that a model reads."""
        return " ".join(chain.from_iterable(self.parts(row)))

    def answer(self, row: Row) -> str | None:
        """Returns the text to write, or None if the answer is unknown."""
        return self.kind.written(row, self) if self.kind.target in row else None

    def prediction(self, row: Row, text: str) -> str:
        return self.kind.meaning(row, text, self)


class Writing(Task):
    """Predicts the target token by token, from the text and the target's earlier tokens.

        encoder-decoder   <bos> text <eos>    <bos> target          -> target <eos>
        decoder           <bos> text <eos> target                   -> target <eos>

    The tokenizer defines the tokens that begin and end a text. There is no head: the logits of the
    vocabulary are those of pretraining.

    Up to ``max_target_tokens`` of a target are learnt and written, <eos> included. A longer target
    is cut and has no <eos>, since it does not end there. A text that is too long is cut at its end.
    """

    generates = labels_tokens = True
    term = "target"
    read_at = "written as text"
    text_form: TextForm  # what is read and written
    num_beams: int = 1
    length_penalty: float = 1.0

    def shortened(self, row: Row, text: list[int], room: int) -> list[int]:
        """Returns ``room`` tokens of a text that has more."""
        return text[:room]

    def most_written(self, row: Row) -> int:
        """Returns the most tokens that are written for a row, <eos> included."""
        return self.max_target_tokens

    def encode(self, rows: Sequence[Row]) -> list[Example]:
        targets = [self.text_form.answer(row) for row in rows]
        texts = self.tokenizer.encode([self.text_form.input(row) for row in rows])
        answers = self.tokenizer.encode([target or "" for target in targets])
        examples = []
        for row, text, target, ids in zip(rows, texts, targets, answers, strict=True):
            wrapped = self.wrap(text)
            if wrapped.num_cut:
                wrapped = self.wrap(self.shortened(row, text, len(text) - wrapped.num_cut))
            num_cut = len(self.tokenizer.wrap(text)) - len(wrapped.ids)
            answer = [IGNORE_INDEX] if target is None else self.tokenizer.target(ids)
            learnt = answer[: self.max_target_tokens]
            num_cut += len(answer) - len(learnt)
            example = Example(
                row["id"],
                np.array(wrapped.ids),
                np.array(learnt),
                num_cut=num_cut,
                most_written=self.most_written(row),
            )
            examples.append(example)
        return examples

    def targets(self, examples: list[Example]) -> Json:
        from stages.text.batch import PADDING, pad

        start = self.tokenizer.start_id
        before = [np.concatenate([[start], example.labels[:-1]]) for example in examples]
        return super().targets(examples) | {
            "decoder_input_ids": pad(before, self.tokenizer.pad_id),
            "decoder_document_ids": pad([np.ones(len(ids)) for ids in before], PADDING),
        }

    def loss(self, model: ModelWithHead, batch: Batch) -> Losses:
        logits = model.backbone.unembed(model.backbone.decode(batch))
        return {"target": (1.0, cross_entropy(logits, batch.labels))}

    def predict(self, model: ModelWithHead, batch: Batch, examples: list[Example]) -> list[str]:
        texts = model.backbone.generate(
            batch,
            max_new_tokens=max(example.most_written for example in examples),
            num_beams=self.num_beams,
            length_penalty=self.length_penalty,
            start_id=self.tokenizer.start_id,
            eos_id=self.tokenizer.eos_id,
        )
        return [self.tokenizer.decode(ids) for ids in texts]

    def combine(self, row: Row, predictions: list[str]) -> str:
        (text,) = predictions
        return self.text_form.prediction(row, text)


class TextToText(Writing):
    """A task's rows in their text form (``Task.as_text``), with answers decoded greedily.

    ``max_target_tokens`` is ``Task.longest_as_text`` plus the end token. Inputs are cut to
    ``max_tokens``: the longest of their texts is cut first, and the names of texts are never cut.
    There are no windows.

    Raises ValueError for a class that the tokenizer cannot write.
    """

    def __init__(self, key: str, record: Settings, task: Task) -> None:
        super().__init__(task.labels, task.tokenizer, task.max_tokens)
        self.kind, self.text_form = task, task.as_text(key, record)
        written_words = [*self.text_form.words.values()]
        encoded = self.tokenizer.encode(written_words)
        for words, ids in zip(written_words, encoded, strict=True):
            if (written := self.tokenizer.decode(ids)) != plain_text(words):
                raise ValueError(
                    f"the tokenizer cannot write {words!r}: it decodes it as {written!r}"
                )
        self.longest_class = max(map(len, encoded), default=0)
        self.end = len(self.tokenizer.target([]))
        # For any class, or a token of free text.
        self.shortest_answer = max(self.longest_class, 1) + self.end
        self.max_target_tokens = task.longest_as_text(self.longest_class) + self.end

    def most_written(self, row: Row) -> int:
        needed = self.kind.longest_as_text(self.longest_class, row) + self.end
        return min(needed, self.max_target_tokens)

    def shortened(self, row: Row, text: list[int], room: int) -> list[int]:
        from stages.text.tokenizer import longest_first

        parts = self.text_form.parts(row)
        first, *others = chain.from_iterable(parts)
        encoded = self.tokenizer.encode([first, *(self.tokenizer.blank + text for text in others)])
        names, texts = encoded[::2], encoded[1::2]
        lengths = longest_first([*map(len, texts)], room - sum(map(len, names)))
        cut = [ids[:length] for ids, length in zip(texts, lengths, strict=True)]
        return [*chain.from_iterable(chain.from_iterable(zip(names, cut, strict=True)))]
