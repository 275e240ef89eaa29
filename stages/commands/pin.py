"""Write the commit of each public checkpoint and data set into a study.

A study pins what it takes from the Hugging Face hub by the hash of a commit, since branches and
tags can be moved. This command asks the hub once for the commit of each `revision` that is a
branch, a tag or missing, and writes it in place; nothing else of the file changes. A local
checkpoint is pinned by the hash of its folder's content. Entries that are pinned already stay.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from stages.commands._parser import parser_of
from stages.core import paths
from stages.core.artifacts import replacing
from stages.core.hub_names import COMMIT, ON_THE_HUB
from stages.core.params import NONE
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, read_yaml

MODEL, DATASET = "path", "dataset"  # the setting that names what is pinned
REACHED_WITHIN_S = 10.0


@dataclass(frozen=True)
class Entry:
    """A component that names a checkpoint or a data set."""

    where: str  # its path in params.yaml
    kind: str  # MODEL or DATASET
    named: ScalarNode
    revision: ScalarNode | None
    indent: int | None  # of the entry's keys; None for an entry in braces

    @property
    def branch(self) -> str | None:
        """The branch or tag that the entry names; None for the default branch."""
        value = self.revision.value if self.revision else NONE
        return None if value == NONE else value

    def edit(self, commit: str) -> tuple[int, int, str]:
        """Returns the edit that writes the commit over the revision or, without one, after the
        name: where a part of the file begins and ends, and the text that replaces it."""
        if self.revision:
            begin, end = self.revision.start_mark.index, self.revision.end_mark.index
            return begin, end, _written(commit)
        end = self.named.end_mark.index
        before = ", " if self.indent is None else "\n" + " " * self.indent
        return end, end, f"{before}revision: {_written(commit)}"


def main() -> None:
    parser = parser_of("pin", __doc__)
    parser.add_argument(
        "study", nargs="?", type=Path, default=PATH, help=f"the study (default: {PATH})"
    )
    study = parser.parse_args().study
    exit_on_mistake(lambda: pin(study))


def pin(study: Path) -> None:
    """Pins a study. Raises ValueError, and writes nothing, if an entry cannot be pinned."""
    read_yaml(study)  # raises ValueError if it is no study
    text = study.read_bytes().decode()
    commits: dict[str, str] = {}
    edits, faults, lines = [], [], []
    for entry in entries(YAML().compose(text)):
        try:
            commits[entry.where] = commit = commit_of(entry)
        except ValueError as error:
            faults.append(f"{entry.where}.{error}")
            continue
        if commit != entry.branch:
            edits.append(entry.edit(commit))
            before = entry.branch or "its default branch"
            lines.append(f"{entry.where}: {entry.named.value} at {before} is {commit}")
    if faults:
        raise ValueError("\n".join(faults))
    if edits:
        for begin, end, new in sorted(edits, reverse=True):  # from the end, to keep positions
            text = text[:begin] + new + text[end:]
        _refuse_damage(text, commits)
        with replacing(study) as path:
            path.write_text(text, encoding="utf-8", newline="")
    print("\n".join(lines) or f"{study}: nothing to pin")


def entries(node: Node, where: str = "", seen: set[int] | None = None) -> Iterator[Entry]:
    """Yields the entries in the order of the file. An entry that aliases repeat comes once."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, SequenceNode):
        for i, child in enumerate(node.value):
            yield from entries(child, f"{where}.{i}", seen)
    if not isinstance(node, MappingNode):
        return
    values = {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
    if "hub" in (_text(values.get("name")), _text(values.get("algorithm"))):
        kind = DATASET if _text(values.get(DATASET)) not in (None, NONE) else MODEL
        named, revision = values.get(kind), values.get("revision")
        # A data set in a local folder is watched by DVC and not pinned.
        is_pinned_here = kind == DATASET or not where.endswith(".source")
        if isinstance(named, ScalarNode) and is_pinned_here:
            pinned = revision if isinstance(revision, ScalarNode) else None
            indent = None if node.flow_style else node.start_mark.column
            yield Entry(where, kind, named, pinned, indent)
    for key, value in values.items():
        yield from entries(value, f"{where}.{key}".lstrip("."), seen)


def commit_of(entry: Entry) -> str:
    """Returns the value that ``revision`` must have: a commit, or the hash of a local folder.

    Raises ValueError, with the setting at the start of its message, if the hub does not have the
    name or the revision, or does not answer.
    """
    # Imports torch, which `--help` does not need.
    from stages.text.published_files import content_of

    name, branch = entry.named.value, entry.branch
    if entry.kind == MODEL and Path(name).is_dir():
        return content_of(Path(name))
    if branch and COMMIT.fullmatch(branch):
        return branch
    if entry.kind == MODEL and Path(name).parent == paths.CHECKPOINTS:
        raise ValueError(f"path: {name} is not there yet; `dvc repro` says its revision")
    if not ON_THE_HUB.fullmatch(name):
        raise ValueError(f"{entry.kind}: no such folder, nor can it be a name on the hub: {name!r}")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    hub = HfApi()
    ask = hub.dataset_info if entry.kind == DATASET else hub.model_info
    try:
        commit = ask(name, revision=branch, timeout=REACHED_WITHIN_S).sha
    except RevisionNotFoundError:
        raise ValueError(f"revision: {name} has no branch, tag or commit {branch!r}") from None
    except RepositoryNotFoundError:
        raise ValueError(f"{entry.kind}: {name} is not on the hub, or is not public") from None
    except Exception as error:  # a network fails in many ways
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{entry.kind}: the hub was not reached for {name}: {reason}") from None
    if not commit or not COMMIT.fullmatch(commit):
        raise ValueError(f"revision: the hub gives no commit of {name}, but {commit!r}")
    return commit


def _refuse_damage(text: str, commits: dict[str, str]) -> None:
    """Raises ValueError if an edited study does not state the ``commits``. The reason may be an
    anchor or an alias on a single value, or a key without a value."""
    try:
        pinned = {entry.where: entry.branch for entry in entries(YAML().compose(text))}
    except YAMLError:
        pinned = {}
    for where, commit in commits.items():
        if pinned.get(where) != commit:
            raise ValueError(
                f"{where}.revision: cannot be written beside an anchor, an alias or an empty "
                f"value; write `revision: {commit}` there"
            )


def _text(node: Node | None) -> str | None:
    return node.value if isinstance(node, ScalarNode) else None


def _written(commit: str) -> str:
    """Returns a commit as YAML, with quotes if YAML would read a number: ``7284e50``."""
    return f'"{commit}"' if re.fullmatch(r"\d+(e\d+)?", commit) else commit


if __name__ == "__main__":
    main()
