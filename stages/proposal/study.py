"""A study as the text of params.yaml."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

from stages.core.artifacts import Json
from stages.kinds._kind import Split
from stages.proposal.corpus import Corpus
from stages.proposal.design import WIDTHS, Design
from stages.text.packaged import Packaged

WIDTH = 98  # of comments
BASELINES = {
    "classification": ("majority", "tfidf"),
    "multi_label": ("majority", "one_vs_rest"),
    "regression": ("mean", "ridge"),
    "tagging": ("majority", "window"),
    "span_qa": ("majority", "sliding_window"),
    "multiple_choice": ("majority", "choice_only", "overlap"),
    "seq2seq": ("copy", "nearest"),
}
ARCHITECTURES = {"seq2seq": ("encoder_decoder", "decoder")}
USUAL_ARCHITECTURES = ("encoder", "decoder")
PROBED = (
    *("classification", "multi_label", "regression", "tagging", "span_qa", "multiple_choice"),
)
# A probe is solved for each word and tag, in more steps the more tags there are: 21 tags of tweets,
# most of them rare, took nine times as long as full fine-tuning; 3 take a fifth of it.
MOST_TAGS_PROBED = 5
OBJECTIVES: dict[str, Json] = {
    "encoder": {"name": "mlm", "mask_prob": 0.3},
    "decoder": {"name": "causal"},
    "encoder_decoder": {"name": "denoising", "infilling": 0.3, "mean_span_length": 3.0},
}
NUM_VALIDATIONS = 4
PRETRAINING_LR, FINETUNING_LR = 3e-3, 1e-3  # at the first width
PUBLISHED_LR = 1e-4  # of fine-tuning in full
PLAIN = r"[A-Za-z_./~-][\w./~ -]*"  # of a text that needs no quotes in YAML
OTHER_IN_YAML = {"true", "false", "yes", "no", "on", "off", "null", "~", "y", "n", ""}


@dataclass(frozen=True, kw_only=True)
class Study:
    """All that the file says."""

    name: str  # of the study and of its task
    kind: str
    task: Json
    source: Json
    num: Mapping[Split, int | Literal["all"]]
    corpus: Corpus
    design: Design
    max_tokens: int
    threads: int
    num_tags: int = 0  # of words, if they are tagged
    published: Packaged | None = None  # a candidate if the design has time for it

    @property
    def is_probed(self) -> bool:
        return self.kind in PROBED and self.num_tags <= MOST_TAGS_PROBED

    @property
    def reference(self) -> str:
        """The first run."""
        return run_names(self.design)[0][0]


def architectures_of(kind: str) -> tuple[str, ...]:
    return ARCHITECTURES.get(kind, USUAL_ARCHITECTURES)


def run_names(design: Design) -> list[tuple[str, str, bool, int]]:
    """(name, architecture, whether it is pretrained, seed) of each run."""
    found = []
    for architecture in design.architectures:
        for pretrained in (True, False) if design.pretrains else (False,):
            kind = OBJECTIVES[architecture]["name"] if pretrained else "scratch"
            for seed in range(1, design.pretraining_seeds + 1):
                last = "" if seed == 1 else f"_{seed}"
                found.append((f"{architecture}_{kind}{last}", architecture, pretrained, seed))
    return found


def written(study: Study, comments: list[str]) -> str:
    """The file; ``comments`` stand at its head."""
    parts = (_head(study, comments), _data(study), _runs(study), _finetuning(study))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def flow(value: object) -> str:
    """A value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool) or not isinstance(value, str):
        return json.dumps(value)
    is_plain = re.fullmatch(PLAIN, value) and value.lower() not in OTHER_IN_YAML
    is_plain = is_plain and value[-1] != " " and not value.startswith(("- ", "---"))
    return (
        value
        if is_plain and value.lower() not in (".inf", ".nan")
        else json.dumps(value, ensure_ascii=False)
    )


def _head(study: Study, comments: list[str]) -> Iterator[str]:
    for comment in comments:
        yield from (
            f"# {line}".rstrip()
            for line in wrap(comment, WIDTH, subsequent_indent="  ", break_on_hyphens=False) or [""]
        )
    yield f"study: {study.name}"
    yield ""
    yield "compute:"
    yield "  device: auto # auto, cpu or cuda"
    yield "  precision: auto # auto, float32 or bfloat16"
    yield "  compile: false"
    yield f"  threads: {study.threads} # of pretraining; as many as there were cores"
    yield "  trial_threads: 1 # of a fine-tuning trial; threads / trial_threads run side by side"
    yield ""
    yield "distributed: {devices: 1, num_nodes: 1, strategy: ddp} # of one pretraining"


def _data(study: Study) -> Iterator[str]:
    corpus = study.corpus
    yield "corpora:"
    yield f"  {corpus.key}: # {corpus.why}"
    yield f"    source: {flow(corpus.source)}"
    yield "    max_tokens: all"
    yield (
        f"    decontaminate_against: {corpus.decontaminate_against} # tasks: without sentences of "
        "test rows"
    )
    yield ""
    yield "tokenizers:"
    settings = {
        "corpus": corpus.key,
        "algorithm": corpus.algorithm,
        "vocab_size": corpus.vocab_size,
        "max_sentences": 60000,
    }
    yield f"  {corpus.algorithm}: {flow(settings)}"
    yield ""
    yield "tasks:"
    yield f"  {study.name}:"
    yield f"    task: {flow(study.task)}"
    yield "    source:"
    for key, value in study.source.items():
        yield f"      {key}: {flow(value)}"
    yield f"    num_train: {study.num['train']} # label_budgets draw from these"
    yield f"    num_validation: {study.num['validation']}"
    yield f"    num_test: {study.num['test']}"
    yield "    seed: 1"


def _runs(study: Study) -> Iterator[str]:
    design, algorithm = study.design, study.corpus.algorithm
    yield (
        "pretrain: # each architecture pretrained and from scratch"
        if design.pretrains
        else ("pretrain: # from scratch: there is no text to pretrain on")
    )
    known: set[str] = set()
    for number, (name, architecture, pretrained, seed) in enumerate(run_names(design)):
        d_model = design.d_model
        model = {"name": architecture, "d_model": d_model}
        model |= {"num_layers": 4, "num_heads": 4, "d_ff": 4 * d_model}
        first = architecture not in known
        known.add(architecture)
        yield f"  {name}:" + (" # the reference" if not number else "")
        yield f"    corpus: {study.corpus.key if pretrained else 'none'}"
        yield f"    tokenizer: {algorithm}"
        yield "    parent: none"
        yield f"    model: {f'&{architecture} {flow(model)}' if first else f'*{architecture}'}"
        yield f"    objective: {flow(OBJECTIVES[architecture] if pretrained else {'name': 'none'})}"
        if number:
            yield "    training: *training"
        else:
            yield from _training(design)
        yield f"    seed: {seed}"
    if study.published is not None and design.published:
        yield from _published(study.published)
    yield ""
    matched = "tokens" if design.pretrains else "none"
    yield f"budget: {{matched: {matched}, reference: {study.reference}}}"


def _published(checkpoint: Packaged) -> Iterator[str]:
    yield f"  {checkpoint.key}: # {checkpoint.hub_name}, as published"
    for line in wrap(checkpoint.about, WIDTH - 4):
        yield f"    # {line}"
    yield "    corpus: none"
    yield "    tokenizer: none"
    yield "    parent: none"
    yield "    model:"
    yield "      name: hub"
    yield f"      path: {checkpoint.folder}"
    yield f"      revision: {flow(checkpoint.revision)}"
    yield "    objective: {name: none}"
    yield "    training: *training # which nothing needs here"
    yield "    seed: 1"


def _lr(rate: float, design: Design) -> str:
    """Smaller for wider models."""
    return f"{rate * WIDTHS[0] / design.d_model:.1e}".replace(".0e", "e").replace("e-0", "e-")


def _training(design: Design) -> Iterator[str]:
    yield "    training: &training"
    yield f"      num_steps: {design.pretraining_steps} # of 16 x 128 tokens; more tell more"
    yield "      batch_rows: 16"
    yield "      micro_batch_rows: 16"
    yield "      max_tokens: 128"
    yield f"      lr: {_lr(PRETRAINING_LR, design)}"
    yield "      warmup_fraction: 0.1"
    yield "      decay: linear"
    yield "      weight_decay: 0.01"
    yield "      max_grad_norm: 1.0"
    yield f"      num_validations: {NUM_VALIDATIONS}"


def _finetuning(study: Study) -> Iterator[str]:
    design = study.design
    yield "baselines: # classical models on the same rows: what a neural one must beat"
    for name in BASELINES[study.kind]:
        yield f"  {name}: {{name: {name}}}"
    yield ""
    yield "finetune:"
    yield "  methods:"
    yield "    full:"
    yield "      method: {name: full}"
    yield "      training:"
    yield "        num_epochs: 4"
    yield "        min_steps: 500 # few labels need more epochs"
    yield "        patience: none # the last epoch is kept"
    yield "        batch_examples: 8"
    lr = _lr(FINETUNING_LR, design)
    if design.published:
        low = f"{PUBLISHED_LR:.0e}".replace("e-0", "e-")
        yield f"        lr: [{low}, {lr}] # chosen on validation: large models need the lower"
    else:
        yield f"        lr: {lr}"
    yield "        warmup_fraction: 0.1"
    yield "        decay: linear"
    yield "        weight_decay: 0.01"
    yield "        max_grad_norm: 1.0"
    if study.is_probed:
        yield "    linear_probe: # on frozen weights: solved, not trained"
        yield "      method: {name: linear_probe}"
    yield f"  label_budgets: {flow(design.budgets)} # rows of train that a trial learns from"
    one = "one for each pretraining seed, which varies everything"
    yield f"  seeds: {flow(design.finetuning_seeds)}" + (
        f" # {one}" if design.finetuning_seeds == [1] else " # each draws its rows anew"
    )
    yield f"  max_tokens: {study.max_tokens} # longer inputs are cut"
    yield "  keep_weights: first_seed # for stages.commands.predict and export"
    yield ""
    yield "evaluation: {confidence: 0.95}"
