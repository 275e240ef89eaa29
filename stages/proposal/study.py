"""A study as the text of params.yaml."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from string import Template
from textwrap import indent, wrap
from typing import Literal

from ruamel.yaml import YAML

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
PROBED = BASELINES.keys() - {"seq2seq"}
# A probe is solved for each word and tag, in more steps the more tags there are: 21 tags of tweets,
# most of them rare, took nine times as long as full fine-tuning; 3 take a fifth of it.
MOST_TAGS_PROBED = 5
OBJECTIVES: dict[str, Json] = {
    "encoder": {"name": "mlm", "mask_prob": 0.3},
    "decoder": {"name": "causal"},
    "encoder_decoder": {"name": "denoising", "infilling": 0.3, "mean_span_length": 3.0},
}
PRETRAINING_LR, FINETUNING_LR = 3e-3, 1e-3  # at the first width
PUBLISHED_LR = 1e-4  # of fine-tuning in full

STUDY = Template("""\
${comments}study: $name

compute:
  device: auto # auto, cpu or cuda
  precision: auto # auto, float32 or bfloat16
  compile: false
  threads: $threads # of pretraining; as many as there were cores
  trial_threads: 1 # of a fine-tuning trial; threads / trial_threads run side by side

distributed: {devices: 1, num_nodes: 1, strategy: ddp} # of one pretraining

corpora:
  $corpus: # $why_corpus
    source: $corpus_source
    max_tokens: all
    decontaminate_against: $decontaminate_against # tasks: without sentences of test rows

tokenizers:
  $tokenizer: $tokenizer_settings

tasks:
  $name:
    task: $task
    source:
$source
    num_train: $num_train # label_budgets draw from these
    num_validation: $num_validation
    num_test: $num_test
    seed: 1

pretrain: # $about_runs
$runs
budget: {matched: $matched, reference: $reference}

baselines: # classical models on the same rows: what a neural one must beat
$baselines

finetune:
  methods:
    full:
      method: {name: full}
      training:
        num_epochs: 4
        min_steps: 500 # few labels need more epochs
        patience: none # the last epoch is kept
        batch_examples: 8
        lr: $lr
        warmup_fraction: 0.1
        decay: linear
        weight_decay: 0.01
        max_grad_norm: 1.0
${probe}  label_budgets: $label_budgets # rows of train that a trial learns from
  seeds: $seeds # $about_seeds
  max_tokens: $max_tokens # longer inputs are cut
  keep_weights: first_seed # for stages.commands.predict and export

evaluation: {confidence: 0.95}
""")
RUN = Template("""\
  $name:$about
    corpus: $corpus
    tokenizer: $tokenizer
    parent: none
    model: $model
    objective: $objective
    training: $training
    seed: $seed
""")
TRAINING = Template("""\
&training
      num_steps: $num_steps # of 16 x 128 tokens; more tell more
      batch_rows: 16
      micro_batch_rows: 16
      max_tokens: 128
      lr: $lr
      warmup_fraction: 0.1
      decay: linear
      weight_decay: 0.01
      max_grad_norm: 1.0
      num_validations: 4""")
PUBLISHED = Template("""\
  $key: # $hub_name, as published
$about
    corpus: none
    tokenizer: none
    parent: none
    model:
      name: hub
      path: $path
      revision: $revision
    objective: {name: none}
    training: *training # which nothing needs here
    seed: 1
""")
PROBE = """\
    linear_probe: # on frozen weights: solved, not trained
      method: {name: linear_probe}
"""


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


def architectures_of(kind: str) -> tuple[str, ...]:
    return ARCHITECTURES.get(kind, USUAL_ARCHITECTURES)


def written(study: Study, comments: list[str]) -> str:
    """The text of the file; ``comments`` stand at its head."""
    design, corpus = study.design, study.corpus
    tokenizer = {"corpus": corpus.key, "algorithm": corpus.algorithm}
    tokenizer |= {"vocab_size": corpus.vocab_size, "max_sentences": 60000}
    runs = _runs(study)
    own_lr = _lr(FINETUNING_LR, design)
    both_lrs = (
        f"[{_short(PUBLISHED_LR)}, {own_lr}] # chosen on validation: large models need the lower"
    )
    return STUDY.substitute(
        comments="".join(map(_comment, comments)),
        name=study.name,
        threads=study.threads,
        corpus=corpus.key,
        why_corpus=corpus.why,
        corpus_source=flow(corpus.source),
        decontaminate_against=corpus.decontaminate_against,
        tokenizer=corpus.algorithm,
        tokenizer_settings=flow(tokenizer),
        task=flow(study.task),
        source="\n".join(f"      {key}: {flow(value)}" for key, value in study.source.items()),
        **{f"num_{split}": number for split, number in study.num.items()},
        about_runs="each architecture pretrained and from scratch"
        if design.pretrains
        else "from scratch: there is no text to pretrain on",
        runs="".join(runs.values()),
        matched="tokens" if design.pretrains else "none",
        reference=next(iter(runs)),
        baselines="\n".join(f"  {name}: {{name: {name}}}" for name in BASELINES[study.kind]),
        lr=both_lrs if design.published else own_lr,
        probe=PROBE if study.is_probed else "",
        label_budgets=flow([*design.budgets]),
        seeds=flow(design.finetuning_seeds),
        about_seeds="one for each pretraining seed, which varies everything"
        if design.finetuning_seeds == [1]
        else "each draws its rows anew",
        max_tokens=study.max_tokens,
    )


def flow(value: object) -> str:
    """A value as YAML on one line."""
    yaml, text = YAML(), StringIO()
    yaml.default_flow_style = True
    yaml.width = sys.maxsize
    yaml.dump(value, text)
    return text.getvalue().removesuffix("...\n").strip()


def _comment(text: str) -> str:
    lines = wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return indent("\n".join(lines), "# ") + "\n" if lines else "#\n"


def _runs(study: Study) -> dict[str, str]:
    """The entry of each run by its name: each architecture pretrained and from scratch."""
    design, runs = study.design, dict[str, str]()
    settings = TRAINING.substitute(
        num_steps=design.pretraining_steps, lr=_lr(PRETRAINING_LR, design)
    )
    for architecture in design.architectures:
        sizes = {"d_model": design.d_model, "num_layers": 4, "num_heads": 4}
        model = {"name": architecture, **sizes, "d_ff": 4 * design.d_model}
        new_model = f"&{architecture} {flow(model)}"
        for pretrained in (True, False) if design.pretrains else (False,):
            objective = OBJECTIVES[architecture] if pretrained else {"name": "none"}
            kind = objective["name"] if pretrained else "scratch"
            for seed in range(1, design.pretraining_seeds + 1):
                name = f"{architecture}_{kind}" + ("" if seed == 1 else f"_{seed}")
                runs[name] = RUN.substitute(
                    name=name,
                    about="" if runs else " # the reference",
                    corpus=study.corpus.key if pretrained else "none",
                    tokenizer=study.corpus.algorithm,
                    model=new_model,
                    objective=flow(objective),
                    training="*training" if runs else settings,
                    seed=seed,
                )
                new_model = f"*{architecture}"
    if study.published is not None and design.published:
        checkpoint = study.published
        runs[checkpoint.key] = PUBLISHED.substitute(
            key=checkpoint.key,
            hub_name=checkpoint.hub_name,
            about=indent("\n".join(wrap(checkpoint.about, WIDTH - 4)), "    # "),
            path=checkpoint.folder,
            revision=flow(checkpoint.revision),
        )
    return runs


def _lr(rate: float, design: Design) -> str:
    """Smaller for wider models."""
    return _short(rate * WIDTHS[0] / design.d_model)


def _short(rate: float) -> str:
    return f"{rate:.1e}".replace(".0e", "e").replace("e-0", "e-")
