"""Whether a run, a task and a method go together."""

from stages.methods._method import Method
from stages.models._backbone import Backbone
from stages.tasks._task import Task


def misfit(method: Method, task: Task | type[Task], kind: str, backbone: Backbone) -> str | None:
    """Why the three have no trials, as the end of a sentence about the method; None if they have.

    Looks at no weights. ``kind`` is the task's name.
    """
    if reason := method.misfit(backbone):
        return reason
    if method.fits and kind not in method.fits:
        return f"fits {', '.join(method.fits)}, not {kind}"
    if task.architectures and backbone.architecture not in task.architectures:
        fitting = ", ".join(task.architectures)
        return f"has {kind} to learn, which fits {fitting}, not {backbone.architecture}"
    if task.generates and not backbone.can_generate:
        return f"has {kind} to learn, and {backbone.architecture} models write no text"
    if (task.scores_text or task.generates) and method.trains and method.states_only:
        return f"adapts the states that a head reads, and {kind} has no head"
    return None
