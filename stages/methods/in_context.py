"""In-context learning: a prompt instead of training (Brown et al. 2020, section 2)."""

import string
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch

from stages.kinds._text_form import NO_LABEL
from stages.methods._method import Predictor, PromptMethod, Row
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead
from stages.models._likelihood import log_likelihoods
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, label_places, pad
from stages.text.tokenizer import TaskTokenizer

ROUNDING = 1e-4  # in nats: labels whose scores differ by less are tied
MOST_KNOWN = 2**16  # most scores kept in memory; new texts may need millions
INPUTS = ("text", "text_pair")
LABEL = "label"
AUTO = "auto"
TEMPLATES = {  # for a text, and for a pair of texts
    False: "{text}\nlabel: {label}",
    True: "{text}\n{text_pair}\nlabel: {label}",
}
Normalise = Literal["none", "tokens", "bytes", "unconditional"]


_Known = dict[tuple[bytes, ...], list[float]]  # the candidates of a batch -> their scores


class InContext(PromptMethod):
    """Classification by the label that a causal model finds likeliest after a prompt. Nothing
    trains; with 0 shots this is zero-shot classification.

    The prompt has ``num_shots`` examples, each in the form of the ``template``, and then the
    template up to ``{label}``, separated by ``separator``. The template ``auto`` has the text (or
    each text of a pair) on a line of its own and then ``label: {label}``. The prompt is placed at
    the beginning of a document. The study's own tokenizers read line breaks as blanks. If the
    prompt is longer than ``max_tokens``, shots are left out from its front, and then the beginning
    of the rest is cut; a warning says how many shots fitted.

    The words for a label are given by the task's ``verbalisers``. ``normalise`` says how
    log-likelihoods of labels are compared:

        none            as they are
        tokens          the mean per token (GPT-3, section 2.4)
        bytes           the mean per byte, which does not depend on the tokenizer
        unconditional   minus the label's log-likelihood after the end of the template alone, such
                        as "label:" (GPT-3, section 2.4, "answer context"; Holtzman et al.
                        2021, "domain-conditional PMI")

    All test rows of a trial have the same shots, unlike in GPT-3, which draws them anew for each
    row. Shots are drawn with the trial's seed from the rows of its label budget, with the labels as
    equally frequent as possible. A tie gives the prediction ``<no label>``.

    Raises ValueError for a template that cannot be filled in or does not end with the label.
    """

    fits = ("classification",)

    def __init__(
        self,
        *,
        num_shots: int = 0,
        template: str = AUTO,
        separator: str = "\n\n",
        normalise: Normalise = "none",
    ) -> None:
        if num_shots < 0:
            raise ValueError(f"num_shots must be at least 0, not {num_shots}")
        self.num_shots, self.separator, self.normalise = num_shots, separator, normalise
        self.template = None if template == AUTO else _Template.of(template)
        self._known: dict[
            tuple[bytes, ...], list[float]
        ] = {}  # scores that trials of one run share

    def incompatibility(self, backbone: Backbone) -> str | None:
        return (
            None if backbone.is_causal else f"needs a causal model; {backbone.architecture} is not"
        )

    def predictor(
        self,
        words: Mapping[str, str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        rows: Sequence[Row],
        *,
        rng: np.random.Generator,
    ) -> Predictor:
        template = self.template or _Template.of(TEMPLATES[INPUTS[1] in rows[0]])
        template.check(rows[0])
        shots = [
            template.shot(row, words[row[LABEL]])
            for row in draw_shots(rows, self.num_shots, rng=rng)
        ]
        return _Prompts(self, template, words, tokenizer, max_tokens, shots, self._known)


def draw_shots(rows: Sequence[Row], num_shots: int, *, rng: np.random.Generator) -> list[Row]:
    """Returns ``num_shots`` rows in random order, with the labels as equally frequent as
    possible."""
    seen: Counter[str] = Counter()
    places = []
    for tie, index in enumerate(rng.permutation(len(rows)).tolist()):
        label = rows[index][LABEL]
        places.append((seen[label], tie, index))
        seen[label] += 1
    chosen = [index for _, _, index in sorted(places)[:num_shots]]
    return [rows[chosen[i]] for i in rng.permutation(len(chosen))]


@dataclass(frozen=True)
class _Template:
    """A template of a prompt. ``before`` is its text up to the label, with the final blank."""

    before: str
    fields: frozenset[str]

    @classmethod
    def of(cls, template: str) -> "_Template":
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError as error:
            raise ValueError(f"template: {error}; a brace of the text is doubled") from None
        named = [name for _, name, _, _ in parts if name is not None]
        valid = [f"{{{name}}}" for name in (*INPUTS, LABEL)]
        for _, name, form, conversion in parts:
            if name is not None and (name not in (*INPUTS, LABEL) or form or conversion):
                raise ValueError(
                    f"template: unknown field {{{name}}}; there are {', '.join(valid)}"
                )
        if named.count(LABEL) != 1 or not template.endswith(f"{{{LABEL}}}"):
            raise ValueError(
                f"template: {{{LABEL}}} must stand once, at its end: what follows is likelihood"
            )
        if INPUTS[0] not in named:
            raise ValueError(f"template: lacks {{{INPUTS[0]}}}")
        before = template.removesuffix(f"{{{LABEL}}}")
        if not before[-1].isspace():
            raise ValueError(
                f"template: a blank or line break must stand before {{{LABEL}}}, so that its "
                "tokens are its own"
            )
        return cls(before, frozenset(named))

    def check(self, row: Row) -> None:
        """Raises ValueError unless the texts of a row are exactly the fields of the template."""
        for name in INPUTS:
            if (name in row) != (name in self.fields):
                lacking = "lacks" if name in row else "has"
                in_rows = "a row has" if name in row else "a row lacks"
                raise ValueError(f"template: {lacking} {{{name}}}, which {in_rows}")

    def prompt(self, row: Row) -> str:
        return self.before.format(**{name: row[name] for name in self.fields - {LABEL}})

    def shot(self, row: Row, word: str) -> str:
        return self.prompt(row) + word

    @property
    def answer_context(self) -> str:
        """The part of the template between the last text and the label."""
        tail = ""
        for literal, name, _, _ in string.Formatter().parse(self.before):
            tail = "" if name is not None else tail + literal
        return tail.lstrip() or tail


@dataclass(frozen=True)
class _Candidate:
    """A prompt followed by one of the labels."""

    id: str
    window: int  # index of the label
    tokens: np.ndarray  # int64 [T]
    first: int  # the tokens from here on are scored
    num_cut: int = 0  # tokens of the prompt that were left out
    num_windows: ClassVar[int] = 1
    num_repeated: ClassVar[int] = 0

    @property
    def key(self) -> bytes:
        return self.tokens.tobytes() + bytes([0]) + str(self.first).encode()


class _Prompts:
    """The predictor of a trial. An example is a row with one of the labels; its prediction is a
    score."""

    def __init__(
        self,
        method: InContext,
        template: _Template,
        words: Mapping[str, str],
        tokenizer: TaskTokenizer,
        max_tokens: int,
        shots: list[str],
        known: _Known,
    ) -> None:
        self.method, self.template, self.words, self.shots = method, template, words, shots
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        # If texts have no start token, the checkpoint was trained on texts that each follow the
        # end token of the previous text.
        self.start = list(tokenizer.before or tokenizer.after[-1:])
        self.has_prefix = False
        self._known = known
        self._unconditional: list[float] | None = None

    def encode(self, rows: Sequence[Row]) -> list[_Candidate]:
        for row in rows:
            self.template.check(row)
        numbers = [self._num_fitting(row) for row in rows]
        if rows and min(numbers) < len(self.shots):
            print(
                f"warning: in_context: of {len(self.shots)} shots {np.mean(numbers):.1f} fit into "
                f"finetune.max_tokens {self.max_tokens} on average",
                file=sys.stderr,
            )
        return [
            candidate
            for row, number in zip(rows, numbers, strict=True)
            for candidate in self._fitting(row, number)
        ]

    def _fitting(self, row: Row, num_shots: int) -> list[_Candidate]:
        """Returns the candidates of a row with the last ``num_shots`` shots in the prompt, cut to
        ``max_tokens``."""
        candidates = self._candidates(row["id"], self._context(row, num_shots))
        whole = candidates
        if num_shots < len(self.shots):
            whole = self._candidates(row["id"], self._context(row, len(self.shots)))
        return [
            replace(candidate, num_cut=len(uncut.tokens) - len(candidate.tokens))
            for candidate, uncut in zip(self._cut(candidates), whole, strict=True)
        ]

    def _num_fitting(self, row: Row) -> int:
        """Returns how many shots leave room for the row and the longest label."""

        def too_long(number: int) -> bool:
            candidates = self._candidates("", self._context(row, number))
            return max(len(candidate.tokens) for candidate in candidates) > self.max_tokens

        return bisect_left(range(1, len(self.shots) + 1), True, key=too_long)

    def _context(self, row: Row, num_shots: int) -> str:
        """Returns the prompt of a row with the last ``num_shots`` shots."""
        shots = self.shots[len(self.shots) - num_shots :]
        return self.method.separator.join([*shots, self.template.prompt(row)])

    def _candidates(self, id: str, context: str) -> list[_Candidate]:
        """Returns the context followed by each label. Scores leave out the first tokens, which all
        candidates share with the context alone. The rest are the label's own tokens, unless the
        tokenizer merges the first of them with the end of the context."""
        texts = [context.rstrip(), *(context + word for word in self.words.values())]
        alone, *whole = ([*self.start, *ids] for ids in self.tokenizer.encode(texts))
        first = min(_shared_prefix(alone, tokens) for tokens in whole)
        return [_Candidate(id, i, np.array(ids), first) for i, ids in enumerate(whole)]

    def _cut(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """Cuts equally many tokens from the front of all candidates, so that the longest fits into
        ``max_tokens``. Raises ValueError if this would cut the labels."""
        surplus = max(len(candidate.tokens) for candidate in candidates) - self.max_tokens
        if surplus <= 0:
            return candidates
        if surplus >= candidates[0].first:
            raise ValueError(f"finetune.max_tokens: {self.max_tokens} is too few for the labels")
        return [
            _Candidate(c.id, c.window, c.tokens[surplus:], c.first - surplus) for c in candidates
        ]

    def collate(self, examples: list[_Candidate], *, rngs: list[np.random.Generator]) -> Batch:
        inputs = [example.tokens[:-1] for example in examples]
        labels = [example.tokens[1:].copy() for example in examples]
        for label, example in zip(labels, examples, strict=True):
            label[: example.first - 1] = IGNORE_INDEX
        before = [np.arange(len(example.tokens) - 1) < example.first for example in examples]
        padded = pad(labels, IGNORE_INDEX)
        return Batch(
            input_ids=pad(inputs, self.tokenizer.pad_id),
            document_ids=pad([np.ones(len(row)) for row in inputs], PADDING),
            labels=padded,
            label_places=label_places(padded),
            visible=pad(before, 0).bool() if self.has_prefix else None,
            num_targets={},
        )

    def predict(
        self, model: ModelWithHead, batch: Batch, examples: list[_Candidate]
    ) -> list[float]:
        scores = self._scores(model, batch, examples)
        if self.method.normalise == "unconditional":
            alone = self._without_prompt(model, batch.input_ids.device)
            return [s - alone[e.window] for s, e in zip(scores, examples, strict=True)]
        lengths = [len(word.encode()) for word in self.words.values()]
        norms = {
            "none": [1 for _ in examples],
            "tokens": [len(e.tokens) - e.first for e in examples],
            "bytes": [lengths[e.window] for e in examples],
        }
        return [s / n for s, n in zip(scores, norms[self.method.normalise], strict=True)]

    def _scores(
        self, model: ModelWithHead, batch: Batch, examples: list[_Candidate]
    ) -> list[float]:
        """Returns log-likelihoods in nats; those of a batch that was scored before, in any trial,
        are looked up. Whole batches are remembered, because a batch's padding changes the last bit
        of its scores."""
        keys = tuple(example.key for example in examples)
        if keys not in self._known:
            if sum(map(len, self._known)) + len(keys) > MOST_KNOWN:
                self._known.clear()
            self._known[keys] = log_likelihoods(model.backbone, batch).tolist()
        return self._known[keys]

    def _without_prompt(self, model: ModelWithHead, device: torch.device) -> list[float]:
        if self._unconditional is None:
            candidates = self._candidates("", self.template.answer_context)
            batch = self.collate(candidates, rngs=[]).to(device)
            self._unconditional = self._scores(model, batch, candidates)
        return self._unconditional

    def combine(self, row: Row, predictions: list[float]) -> str:
        best = max(predictions)
        leading = [i for i, score in enumerate(predictions) if score > best - ROUNDING]
        return list(self.words)[leading[0]] if len(leading) == 1 else NO_LABEL


def _shared_prefix(a: list[int], b: list[int]) -> int:
    """Returns the length of the longest common beginning of two lists."""
    different = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(different, min(len(a), len(b)))
