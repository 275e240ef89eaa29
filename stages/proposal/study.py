"""A proposed study, and its text: params.yaml from a template."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from textwrap import wrap

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from ruamel.yaml import YAML

from stages.core.artifacts import Json
from stages.core.params import TaskEntry
from stages.proposal.checkpoints import path_of
from stages.proposal.corpus import Corpus
from stages.proposal.design import OWN_EPOCHS, Design
from stages.proposal.questions import Note

WIDTH = 100  # of lines
PROBED = {"classification", "multi_label", "regression", "tagging"}
# A probe of tags takes longer the more tags there are: with 21 tags of tweets, most of them rare,
# it took nine times as long as full fine-tuning; with 3 tags, a fifth of the time.
MOST_TAGS_PROBED = 5


@dataclass(frozen=True, kw_only=True)
class Study:
    """The choices from which params.yaml is written, and what is said about them."""

    data: str  # name of the user's file or folder
    name: str  # of the study and of its task
    kind: str
    entry: TaskEntry
    corpus: Corpus
    design: Design
    max_tokens: int
    num_train: int  # rows of train
    num_tags: int = 0  # number of different tags, if the task is tagging
    checkpoint: Json | None = None  # the published one that is a candidate if the design has one
    notes: tuple[Note, ...] = ()  # what was found in the data, and what was decided
    rows: tuple[str, ...] = ()  # the first rows as they are read
    seconds: float = 0.0  # that the study will take

    @property
    def can_be_probed(self) -> bool:
        return self.kind in PROBED and self.num_tags <= MOST_TAGS_PROBED

    @property
    def text(self) -> str:
        """The text of params.yaml, with the notes at its head."""
        environment = Environment(  # noqa: S701
            loader=FileSystemLoader(Path(__file__).parent),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters["yaml"] = _yaml
        takes = minutes(self.seconds)
        head = [f"Which model should be fine-tuned on {self.data}? It takes about {takes}.", ""]
        head += ["What the data were taken for:", *(f"- {note}" for note in self.notes)]
        form: Json = {"width": WIDTH - 2, "subsequent_indent": "  ", "break_on_hyphens": False}
        checkpoint = self.checkpoint if self.design.published else None
        text = environment.get_template("study.yaml.jinja").render(
            study=self,
            checkpoint=checkpoint,
            path=path_of(checkpoint) if checkpoint else None,
            own_epochs=OWN_EPOCHS,
            head=[line for comment in head for line in wrap(comment, **form) or [""]],
        )
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def _yaml(value: object, indent: int = 0) -> str:
    """Returns a value as YAML on a line, or on several ones indented by ``indent`` if it is long. A
    component without settings is its name."""
    if isinstance(value, Mapping) and value.keys() == {"name"}:
        value = value["name"]
    # libyaml's writer, since what it reads is narrower than what ruamel writes.
    yaml, text = YAML(typ="safe"), StringIO()
    yaml.default_flow_style = yaml.allow_unicode = True
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = WIDTH - indent - 10 if indent else 2**30
    yaml.dump(value, text)
    lines = text.getvalue().removesuffix("...\n").splitlines()
    return f"\n{' ' * indent}".join(line.strip() for line in lines)
