"""A proposed study, and its text: params.yaml from a template."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.proposal.corpus import Corpus
from stages.proposal.design import WIDTHS, Design
from stages.proposal.public import Candidate
from stages.tasks._kind import Split

WIDTH = 100  # of lines
BASELINES = {
    "classification": ["majority", "tfidf", "linear_svc"],
    "multi_label": ["majority", "tfidf"],
    "regression": ["majority", "tfidf"],
    "tagging": ["majority", "window"],
    "span_qa": ["majority", "sliding_window"],
    "multiple_choice": ["majority", "overlap"],
    "seq2seq": ["copy", "nearest"],
}
PROBED = {"classification", "multi_label", "regression", "tagging"}
# A probe of tags takes longer the more tags there are: with 21 tags of tweets, most of them rare,
# it took nine times as long as full fine-tuning; with 3 tags, a fifth of the time.
MOST_TAGS_PROBED = 5
PRETRAINING_LR, FINETUNING_LR = 9e-3, 1e-3  # for a model of the first width
# Full fine-tuning of a published checkpoint. With four epochs on 1,000 labels its validation score
# was 4.3 points lower on names in tweets, and equal on questions and on tweets in two classes.
PUBLISHED = {"lr": 2e-4, "num_epochs": 8, "min_steps": 100}


class Family(NamedTuple):
    """A family of models that is pretrained here, and its objective."""

    architecture: str
    objective: Json
    starts_local: bool

    def entry(self, name: str, d_model: int) -> Json:
        sizes = {"d_model": d_model, "num_layers": 4, "num_heads": 4}
        return {"name": name, **sizes} | ({"start": "local"} if self.starts_local else {})


FAMILIES = {
    "modernbert": Family("encoder", {"name": "mlm", "mask_prob": 0.3}, True),
    "phi": Family("decoder", {"name": "causal"}, True),
    "bart": Family("encoder_decoder", {"name": "denoising"}, False),
}


def families_for(kind: str) -> tuple[str, ...]:
    return ("bart", "phi") if kind == "seq2seq" else ("modernbert", "phi")


@dataclass(frozen=True, kw_only=True)
class Study:
    """The choices from which params.yaml is written."""

    name: str  # of the study and of its task
    kind: str
    task: Json
    source: Json
    min_rows: int  # of a class; rarer classes are left out
    num: Mapping[Split, int | Literal["all"]]
    corpus: Corpus
    design: Design
    max_tokens: int
    num_tags: int = 0  # number of different tags, if the task is tagging
    published: Candidate | None = None  # in the study if the design has time for it

    @property
    def families(self) -> list[str]:
        """The architectures with their families: ``encoder (modernbert)``."""
        return [f"{FAMILIES[name].architecture} ({name})" for name in self.design.architectures]

    @property
    def can_be_probed(self) -> bool:
        return self.kind in PROBED and self.num_tags <= MOST_TAGS_PROBED


def written(study: Study, comments: Iterable[str] = ()) -> str:
    """Returns the text of params.yaml, with ``comments`` at its head."""
    loader = FileSystemLoader(Path(__file__).parent)
    settings = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    environment = Environment(loader=loader, undefined=StrictUndefined, **settings)  # noqa: S701
    environment.filters["yaml"] = _yaml
    narrower = WIDTHS[0] / study.design.d_model  # wider models have smaller learning rates
    text = environment.get_template("study.yaml.jinja").render(
        study=study,
        corpus=study.corpus,
        design=study.design,
        checkpoint=study.published if study.design.published else None,
        samples={f"num_{split}": number for split, number in study.num.items()},
        families=FAMILIES,
        baselines=BASELINES[study.kind],
        rates={"pretraining": PRETRAINING_LR * narrower, "finetuning": FINETUNING_LR * narrower},
        published=PUBLISHED,
        head=[line for comment in comments for line in _comment(comment)],
    )
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _yaml(value: object, indent: int = 0) -> str:
    """Returns a value as YAML on one line. A component without settings is its name; a mapping
    that is too long has a line for each entry, indented by ``indent``."""
    if isinstance(value, Mapping) and value.keys() == {"name"}:
        value = value["name"]
    yaml, text = YAML(), StringIO()
    yaml.default_flow_style = True
    yaml.width = sys.maxsize
    yaml.dump(value, text)
    line = text.getvalue().removesuffix("...\n").strip()
    if not isinstance(value, Mapping) or not indent or indent + len(line) < WIDTH - 10:
        return line
    return "".join(f"\n{' ' * indent}{key}: {_yaml(item)}" for key, item in value.items())


def _comment(text: str) -> list[str]:
    lines = wrap(text, WIDTH - 2, subsequent_indent="  ", break_on_hyphens=False)
    return [f"# {line}".rstrip() for line in lines or [""]]
