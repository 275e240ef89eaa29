"""In-context learning: a prompt instead of training (Brown et al. 2020, section 2)."""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Literal

import numpy as np

from stages.methods._method import Predictor, PromptMethod, Row
from stages.models._backbone import Backbone
from stages.models._heads import ModelWithHead, log_likelihoods
from stages.tasks._text_form import NO_LABEL
from stages.text.batch import IGNORE_INDEX, PADDING, Batch, label_places, pad
from stages.text.tokenizer import Tokenizer

ROUNDING = 1e-4  # in nats: labels whose scores differ by less are tied
AUTO = "auto"
LABEL = "{label}"
TEMPLATES = {  # for a text, and for a pair of texts
    False: "{text}\nlabel: {label}",
    True: "{text}\n{text_pair}\nlabel: {label}",
}
FIELD = re.compile(r"\{(\w*)\}")
Normalise = Literal["none", "tokens", "bytes", "unconditional"]


class InContext(PromptMethod):
    """Classification by the label that a causal model finds likeliest after a prompt. Nothing
    trains; with 0 shots this is zero-shot classification.

    The prompt, at the beginning of a document, has ``num_shots`` examples, each in the form of the
    ``template``, and then the template up to ``{label}``, separated by ``separator``. The template
    ``auto`` has each text on a line of its own and then ``label: {label}``. The study's own
    tokenizers read line breaks as blanks. If the prompt is longer than ``max_tokens``, shots are
    left out from its front, and then the beginning of the rest is cut; a warning says how many
    shots fitted.

    The words for a label are given by the task's ``verbalisers``. ``normalise`` says how
    log-likelihoods of labels are compared:

        none            as they are
        tokens          the mean per token (GPT-3, section 2.4)
        bytes           the mean per byte, which does not depend on the tokenizer
        unconditional   minus the label's log-likelihood after the end of the template alone, such
                        as "label:" (GPT-3, section 2.4, "answer context"; Holtzman et al.
                        2021, "domain-conditional PMI")

    All test rows of a trial have the same shots (GPT-3 draws them anew for each row), drawn with
    the trial's seed from the rows of its label budget, with the labels as equally frequent as
    possible. A tie gives the prediction ``<no label>``.
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
        fields = FIELD.findall(template)
        has_label = template.endswith((f" {LABEL}", f"\n{LABEL}")) and fields.count("label") == 1
        has_text = {"text"} <= {*fields} <= {"text", "text_pair", "label"}
        if template != AUTO and not (has_label and has_text):
            raise ValueError(
                "template: must have {text}, for pairs {text_pair}, and at its end, after a blank "
                f"or a line break, {LABEL}"
            )
        self.num_shots, self.template, self.separator = num_shots, template, separator
        self.normalise: Normalise = normalise

    def incompatibility(self, backbone: Backbone) -> str | None:
        if backbone.is_causal:
            return None
        return f"needs a causal model; {backbone.architecture} is not"

    def predictor(
        self,
        words: Mapping[str, str],
        tokenizer: Tokenizer,
        max_tokens: int,
        rows: Sequence[Row],
        *,
        rng: np.random.Generator,
    ) -> Predictor:
        is_pair = "text_pair" in rows[0]
        template = TEMPLATES[is_pair] if self.template == AUTO else self.template
        if is_pair != ("text_pair" in FIELD.findall(template)):
            raise ValueError(f"template: {'lacks' if is_pair else 'has'} {{text_pair}}")
        before = template.removesuffix(LABEL)
        shots = [
            filled(before, row) + words[row["label"]]
            for row in draw_shots(rows, self.num_shots, rng=rng)
        ]
        return _Prompts(self, before, words, tokenizer, max_tokens, shots)


def filled(template: str, row: Row) -> str:
    """Returns the template with the texts of a row in place of their names."""
    return FIELD.sub(lambda field: row[field[1]], template)


def draw_shots(rows: Sequence[Row], num_shots: int, *, rng: np.random.Generator) -> list[Row]:
    """Returns ``num_shots`` rows in random order, with the labels as equally frequent as
    possible."""
    seen: Counter[str] = Counter()
    places = []
    for tie, index in enumerate(rng.permutation(len(rows)).tolist()):
        label = rows[index]["label"]
        places.append((seen[label], tie, index))
        seen[label] += 1
    chosen = [index for _, _, index in sorted(places)[:num_shots]]
    return [rows[chosen[i]] for i in rng.permutation(len(chosen))]


@dataclass(frozen=True)
class _Candidate:
    """A prompt followed by one of the labels."""

    id: str
    window: int  # index of the label
    tokens: np.ndarray  # int64 [T]
    first: int  # the tokens from here on are scored
    num_cut: int = 0  # tokens of the prompt that were left out


@dataclass
class _Prompts:
    """The predictor of a trial. An example is a row with one of the labels; its prediction is a
    score."""

    method: InContext
    before: str  # the template up to the label
    words: Mapping[str, str]
    tokenizer: Tokenizer
    max_tokens: int
    shots: list[str]
    has_prefix: bool = False

    def encode(self, rows: Sequence[Row]) -> list[_Candidate]:
        candidates, num_shots = list[_Candidate](), list[int]()
        for row in rows:
            prompts = [*self.shots, filled(self.before, row)]
            uncut, first = self._encoded(self.method.separator.join(prompts))
            whole = uncut
            while len(prompts) > 1 and max(map(len, whole)) > self.max_tokens:
                prompts = prompts[1:]
                whole, first = self._encoded(self.method.separator.join(prompts))
            num_shots.append(len(prompts) - 1)
            # Equally many tokens are cut from the front of all, if the longest is still too long.
            surplus = max(max(map(len, whole)) - self.max_tokens, 0)
            if surplus >= first:
                raise ValueError(f"finetune.max_tokens: {self.max_tokens} is too few for labels")
            for label, (ids, all_ids) in enumerate(zip(whole, uncut, strict=True)):
                tokens, num_cut = np.array(ids[surplus:]), len(all_ids) - len(ids) + surplus
                candidates.append(_Candidate(row["id"], label, tokens, first - surplus, num_cut))
        if rows and min(num_shots) < len(self.shots):
            print(
                f"warning: in_context: of {len(self.shots)} shots {np.mean(num_shots):.1f} fit "
                f"into finetune.max_tokens {self.max_tokens} on average",
                file=sys.stderr,
            )
        return candidates

    def _encoded(self, context: str) -> tuple[list[list[int]], int]:
        """Returns the tokens of the context followed by each label, and the number of tokens at the
        beginning that all of them share with the context alone, which are not scored."""
        # If texts have no start token, the checkpoint was trained on texts that each follow the end
        # token of the previous text.
        start = self.tokenizer.before or self.tokenizer.after[-1:]
        texts = [context.rstrip(), *(context + word for word in self.words.values())]
        alone, *whole = ([*start, *ids] for ids in self.tokenizer.encode(texts))
        return whole, min(len(commonprefix([alone, tokens])) for tokens in whole)

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
        """Returns the normalised log-likelihood of the label of each example, in nats."""
        scores = log_likelihoods(model.backbone, batch).tolist()
        match self.method.normalise:
            case "none":
                return scores
            case "tokens":
                lengths = [len(example.tokens) - example.first for example in examples]
            case "bytes":
                num_bytes = [len(word.encode()) for word in self.words.values()]
                lengths = [num_bytes[example.window] for example in examples]
            case "unconditional":
                context = FIELD.split(self.before)[-1]
                whole, first = self._encoded(context.lstrip() or context)
                prior = [_Candidate("", i, np.array(ids), first) for i, ids in enumerate(whole)]
                device = batch.input_ids.device
                alone = log_likelihoods(
                    model.backbone, self.collate(prior, rngs=[]).to(device)
                ).tolist()
                return [s - alone[e.window] for s, e in zip(scores, examples, strict=True)]
        return [score / length for score, length in zip(scores, lengths, strict=True)]

    def combine(self, row: Row, predictions: list[float]) -> str:
        best = max(predictions)
        leading = [i for i, score in enumerate(predictions) if score > best - ROUNDING]
        return list(self.words)[leading[0]] if len(leading) == 1 else NO_LABEL
