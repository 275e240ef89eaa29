"""A proposed study, and its text: params.yaml from a template."""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from textwrap import wrap

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from stages.core.artifacts import Json
from stages.core.params import TaskEntry
from stages.proposal.checkpoints import path_of
from stages.proposal.corpus import Corpus
from stages.proposal.design import OWN_EPOCHS, Design

WIDTH = 100  # of lines
PROBED = {"classification", "multi_label", "regression", "tagging"}
# A probe of tags takes longer the more tags there are: with 21 tags of tweets, most of them rare,
# it took nine times as long as full fine-tuning; with 3 tags, a fifth of the time.
MOST_TAGS_PROBED = 5


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
    checkpoint: Json | None = None  # the published one that is a candidate if the design has one

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
    checkpoint = study.checkpoint if design.published else None
    tuned = (checkpoint or {"training": {}})["training"] | {"num_epochs": design.epochs}
    text = environment.get_template("study.yaml.jinja").render(
        study=study,
        checkpoint=checkpoint,
        path=path_of(checkpoint) if checkpoint else None,
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
    yaml.dump(_quoted(value), text)
    return text.getvalue().removesuffix("...\n").strip().replace("\n", f"\n{' ' * indent}")


def _quoted(value: object) -> object:
    """Quotes texts that libyaml does not read as ruamel writes them, such as questions."""
    if isinstance(value, Mapping):
        return {key: _quoted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_quoted(each) for each in value]
    is_odd = isinstance(value, str) and re.search(r"[?:\x80-\xa0\u2000-\u202f]", value)
    return DoubleQuotedScalarString(value) if is_odd else value
