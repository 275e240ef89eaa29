"""The check of whether a method, a model and a task are compatible."""

from stages.methods._method import Method, PromptMethod, UntrainedMethod
from stages.models._backbone import Backbone, unsupported
from stages.tasks._task import Task


def incompatibility(
    method: Method,
    task: Task | type[Task],
    kind: str,
    backbone: Backbone,
    *,
    text_to_text: bool = False,
) -> str | None:
    """Returns why a method is incompatible with a task and a model, or None if it is not. The
    reason continues a message that begins with the method's name and a colon.

    No weights are read. ``kind`` is the name of the task's component. With ``text_to_text``,
    answers are generated as text.
    """
    if text_to_text and isinstance(method, PromptMethod):
        return "has prompts of its own; text_to_text is not available"
    if reason := method.incompatibility(backbone):
        return reason
    if method.fits and task.name not in method.fits:
        return f"supports {', '.join(method.fits)} only, not {kind}"
    if reason := unsupported(task.architectures, backbone):
        return f"{kind} {reason}"
    if text_to_text and (task.generates or not task.has_text_form):
        return f"text_to_text is not available for {kind}"
    generates = task.generates or text_to_text
    if generates and not backbone.can_generate:
        return f"needs a generative model; {backbone.architecture} is not"
    has_head = not (task.scores_text or generates)
    if method.requires_head and not has_head:
        return "requires a task head"
    if isinstance(method, UntrainedMethod) and not isinstance(method, PromptMethod) and has_head:
        return f"trains nothing, and {kind} has a head to train; with text_to_text it has none"
    return None
