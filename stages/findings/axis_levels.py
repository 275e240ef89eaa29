"""The levels of two compared groups on the axis in which they differ, in words."""

from collections.abc import Mapping

from stages.core.components import Settings
from stages.findings import amounts
from stages.findings.axes import Axis
from stages.findings.groups import Group, Used


def levels_of(axis: Axis, a: Group, b: Group, used: Mapping[str, Used]) -> tuple[str, str]:
    """Returns the level of each side on the axis, in words."""

    def words(g: Group, other: Group) -> str:
        match axis:
            case "architecture":
                name = used_part(g, used[g.name])
                return f"{name} ({g.objective})" if g.pretrained else name
            case "objective":
                return " ".join([g.objective, *_settings(g.entry.objective, other.entry.objective)])
            case "size":
                return ", ".join(_settings(g.entry.model, other.entry.model))
            case "training set":
                further = g.entry.is_public and not g.entry.as_published
                return f"{g.entry.model['path']}, then {g.corpus}" if further else g.corpus
            case amounts.AMOUNT:
                return amounts.words(g)
            case "checkpoint":
                return _checkpoint(g, other)
            case "optimizer":
                own = g.entry.training.optimizer
                return " ".join([own["name"], *_settings(own, other.entry.training.optimizer)])
            case "pretrained":
                start = f"{g.objective} on {g.corpus}" if g.pretrained else "from scratch"
                same = g.entry.model == other.entry.model
                return start if same else f"{used_part(g, used[g.name])}, {start}"
            case _:
                return ", ".join(_settings(g.settings, other.settings))

    return words(a, b), words(b, a)


def used_part(group: Group, used: Used) -> str:
    """Returns the name of the architecture, or of the part of it that a task uses."""
    if used.architecture == group.architecture:
        return group.architecture
    return f"{used.architecture} of an {group.architecture}"


def _checkpoint(group: Group, other: Group) -> str:
    path = group.entry.model["path"]
    same_path = path == other.entry.model["path"]
    return path + (f" at {group.entry.model['revision'][:7]}" if same_path else "")


def _settings(one: Settings, other: Settings) -> list[str]:
    """Returns the settings of one side that the other side lacks or has with another value."""
    return [f"{k}={v}" for k, v in one.items() if k != "name" and other.get(k) != v]
