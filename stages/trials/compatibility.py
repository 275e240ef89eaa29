"""Whether a run, a task and a method go together."""

from stages.kinds._text_form import FORMS
from stages.methods._method import Method
from stages.models._backbone import Backbone
from stages.tasks._task import Task


def incompatibility(
    method: Method,
    task: Task | type[Task],
    kind: str,
    backbone: Backbone,
    *,
    text_to_text: bool = False,
) -> str | None:
    """Why the three have no trials, as the end of a sentence about the method; None if they have.

    Looks at no weights. ``kind`` is the task's name; with ``text_to_text`` it is one of writing.
    """
    if text_to_text and method.prompts:
        return "has prompts of its own"
    if reason := method.misfit(backbone):
        return reason
    if method.fits and kind not in method.fits:
        return f"fits {', '.join(method.fits)}, not {kind}"
    if task.architectures and backbone.architecture not in task.architectures:
        fitting = ", ".join(task.architectures)
        return f"has {kind} to learn, which fits {fitting}, not {backbone.architecture}"
    if text_to_text and (task.generates or kind not in FORMS):
        return f"turns a task into text, which {kind} is"
    if (writes := task.generates or text_to_text) and not backbone.can_generate:
        return f"has a text to write, and {backbone.architecture} models write none"
    if task.scores_text or writes:
        if method.trains and method.states_only:
            return "adapts the states that a head reads, where there is none"
    elif not method.trains and not method.prompts:
        return f"trains nothing, and {kind} has a head to learn; text_to_text has none"
    return None
