"""Writes a study as the text of params.yaml, in its short form."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from textwrap import indent, wrap
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from stages.core.artifacts import Json
from stages.core.params import HUB
from stages.kinds._kind import Split
from stages.proposal.corpus import Corpus
from stages.proposal.design import WIDTHS, Design
from stages.proposal.public import Candidate

WIDTH = 100  # of lines
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
# A probe of tags takes longer the more tags there are: with 21 tags of tweets, most of them rare,
# it took nine times as long as full fine-tuning; with 3 tags, a fifth of the time.
MOST_TAGS_PROBED = 5
OBJECTIVES: dict[str, Json | str] = {
    "encoder": {"name": "mlm", "mask_prob": 0.3},
    "decoder": "causal",
    "encoder_decoder": "denoising",
}
PRETRAINING_LR, FINETUNING_LR = 9e-3, 1e-3  # for a model of the first width
FINETUNING_STEPS = 150  # at least: few labels need more epochs
# Full fine-tuning of a published checkpoint. With four epochs on 1,000 labels its validation score
# was 4.3 points lower on names in tweets, and equal on questions and on tweets in two classes.
PUBLISHED = {"lr": 2e-4, "num_epochs": 8, "min_steps": 100}
COMMENTS = {
    "samples": "label budgets draw from train",
    "pretrain.seeds": "each run is trained once with each seed; more give surer answers",
    "pretrain.matched": "every run reads as many tokens as the first one",
    "pretrain.runs": "the first is the reference; the others say how they differ from it",
    "baselines": "classical models on the same rows",
    "finetune.label_budgets": "training rows of a trial",
    "finetune.seeds": "each draws its labelled rows anew",
    "finetune.max_tokens": "longer inputs are cut",
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """The choices from which params.yaml is written."""

    name: str  # of the study and of its task
    kind: str
    task: Json
    source: Json
    min_rows_per_class: int
    num: Mapping[Split, int | Literal["all"]]
    corpus: Corpus
    design: Design
    max_tokens: int
    num_tags: int = 0  # number of different tags, if the task is tagging
    published: Candidate | None = None  # in the study if the design has time for it

    @property
    def can_be_probed(self) -> bool:
        return self.kind in PROBED and self.num_tags <= MOST_TAGS_PROBED


def architectures_of(kind: str) -> tuple[str, ...]:
    return ARCHITECTURES.get(kind, USUAL_ARCHITECTURES)


def written(study: Study, comments: list[str]) -> str:
    """Returns the text of params.yaml, with ``comments`` at its head."""
    yaml, text = YAML(), StringIO()
    yaml.width = WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(_styled(entries(study), _comments(study), where="", indent=0), text)
    return "".join(map(_comment, comments)) + text.getvalue()


def entries(study: Study) -> Json:
    """Returns the content of params.yaml as parsed YAML."""
    design, corpus = study.design, study.corpus
    runs = _runs(study)
    sections: Json = {
        "study": study.name,
        "corpora": {
            corpus.key: {
                "source": corpus.source,
                "max_tokens": "all",
                "decontaminate_against": corpus.decontaminate_against,
                "about": f"{corpus.why[0].upper()}{corpus.why[1:]}.",
            }
        },
        "tokenizers": {
            corpus.algorithm: {
                "corpus": corpus.key,
                "algorithm": corpus.algorithm,
                "vocab_size": corpus.vocab_size,
            }
        },
        "samples": {f"num_{split}": number for split, number in study.num.items()},
        "tasks": {study.name: {"task": _short(study.task), "source": study.source}},
        "pretrain": {
            "seeds": [*range(1, design.pretraining_seeds + 1)],
            "training": {
                "num_steps": design.pretraining_steps,
                "batch_rows": 16,
                "max_tokens": 128,
                "lr": _lr(PRETRAINING_LR, design),
                "optimizer": "muon",
            },
            "matched": "tokens",
            "runs": runs,
        },
        "baselines": [*BASELINES[study.kind]],
        "finetune": {
            "methods": _methods(study),
            "label_budgets": [*design.budgets],
            "seeds": design.finetuning_seeds,
            "max_tokens": study.max_tokens,
        },
    }
    if study.min_rows_per_class > 1:
        sections["tasks"][study.name]["min_rows_per_class"] = study.min_rows_per_class
    if design.split_per_seed:
        sections["tasks"][study.name]["split_per_seed"] = True
    if corpus.algorithm == "unigram":
        del sections["tokenizers"][corpus.algorithm]["algorithm"]
    if not design.pretrains:
        del sections["pretrain"]["training"]
        sections["pretrain"]["matched"] = "none"
    if (checkpoint := _published(study)) is not None:
        sections["checkpoints"] = {checkpoint.key: checkpoint.entry.model_dump()}
    if sections["finetune"]["seeds"] == [1]:
        del sections["finetune"]["seeds"]
    order = ("study", "corpora", "checkpoints", *sections)
    return {key: sections[key] for key in dict.fromkeys(order) if key in sections}


def _published(study: Study) -> Candidate | None:
    """Returns the published checkpoint of the study, if it has one."""
    return study.published if study.design.published else None


def _runs(study: Study) -> Json:
    """Returns the runs: each architecture pretrained and from scratch, then the checkpoint."""
    design, runs = study.design, Json()
    for architecture in design.architectures:
        sizes = {"d_model": design.d_model, "num_layers": 4, "num_heads": 4}
        model = {"name": architecture, **sizes}
        objective = OBJECTIVES[architecture]
        if design.pretrains:
            name = objective if isinstance(objective, str) else objective["name"]
            corpus = {} if runs else {"corpus": study.corpus.key}
            runs[f"{architecture}_{name}"] = {**corpus, "model": model, "objective": objective}
        # A run states how it differs from the first run, so it need not repeat the first's model.
        is_first = architecture == design.architectures[0]
        own = {} if is_first and design.pretrains else {"model": model}
        runs[f"{architecture}_scratch"] = {**own, "objective": "none"}
    if (checkpoint := _published(study)) is not None:
        pinned = {"path": str(checkpoint.folder), "revision": checkpoint.revision}
        runs[checkpoint.key] = {"model": {"name": HUB, **pinned}}
    return runs


def _methods(study: Study) -> Json:
    design = study.design
    training = {
        "num_epochs": 4,
        "min_steps": FINETUNING_STEPS,
        "batch_examples": 16,
        "lr": _lr(FINETUNING_LR, design),
    }
    full: Json = {"training": training}
    if (checkpoint := _published(study)) is not None:
        full["runs"] = {checkpoint.key: PUBLISHED}
    methods: Json = {"full": full | {"about": "All weights are trained."}}
    if design.probed != "none":
        only = {"only": [checkpoint.key]} if checkpoint and design.probed == "published" else {}
        about = "A linear classifier is fitted to the states of the frozen model."
        methods["linear_probe"] = only | {"about": about}
    return methods


def _short(component: Json) -> Json | str:
    """Returns a component, or only its name if it has no settings."""
    return component["name"] if component.keys() == {"name"} else component


def _comments(study: Study) -> dict[str, str]:
    """Returns the comments at the ends of lines, by the paths of the settings."""
    comments = dict(COMMENTS)
    corpus = f"corpora.{study.corpus.key}.decontaminate_against"
    if study.corpus.decontaminate_against == "tasks":
        comments[corpus] = "without sentences of test rows"
    if (checkpoint := _published(study)) is not None:
        comments[f"pretrain.runs.{checkpoint.key}"] = f"{checkpoint.hub_name}, as published"
        comments["finetune.methods.full.runs"] = "a large pretrained model needs a lower rate"
    if study.design.split_per_seed:
        comments["finetune.seeds"] = "each draws train, validation and test anew"
    if not study.design.pretrains:
        why = "time" if study.corpus.pretrains else "text"
        comments["pretrain.runs"] = f"from scratch, since there is no {why} to pretrain"
    return comments


def _styled(node: Any, comments: Mapping[str, str], *, where: str, indent: int) -> Any:
    """Returns a node of a parsed file with its comments. Lists are styled for one line, and so are
    mappings that contain no mappings, if they fit."""
    if isinstance(node, list):
        items = CommentedSeq(node)
        items.fa.set_flow_style()
        return items
    if not isinstance(node, dict):
        return node
    mapping = CommentedMap()
    for key, value in node.items():
        path = f"{where}.{key}".lstrip(".")
        mapping[key] = _styled(value, comments, where=path, indent=indent + 2)
        if comment := comments.get(path):
            mapping.yaml_add_eol_comment(comment, key, column=0)
        if not where and key != "study":
            mapping.yaml_set_comment_before_after_key(key, before="\n")
    key_width = len(where.rpartition(".")[2]) + 2
    fits = indent + key_width + len(flow(node)) + len(comments.get(where, "")) < WIDTH
    is_entry = where.count(".") == 1 and not where.startswith(("tokenizers", "pretrain"))
    if where and fits and not is_entry and not any(isinstance(v, dict) for v in node.values()):
        mapping.fa.set_flow_style()
    return mapping


def flow(value: object) -> str:
    """Returns a value as YAML on one line."""
    yaml, text = YAML(), StringIO()
    yaml.default_flow_style = True
    yaml.width = sys.maxsize
    yaml.dump(value, text)
    return text.getvalue().removesuffix("...\n").strip()


def _comment(text: str) -> str:
    lines = wrap(text, WIDTH - 2, subsequent_indent="  ", break_on_hyphens=False)
    return indent("\n".join(lines), "# ") + "\n" if lines else "#\n"


def _lr(rate: float, design: Design) -> float:
    """Returns a learning rate, smaller for wider models."""
    return rate * WIDTHS[0] / design.d_model
