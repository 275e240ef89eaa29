"""No adaptation: the model as it was pretrained, for tasks without a head."""

from stages.methods._method import UntrainedMethod


class NoAdaptation(UntrainedMethod):
    """Trains nothing, so label budget and seed change nothing. It supports tasks whose text is
    scored (``language_modelling``) or generated: ``seq2seq``, and other tasks with ``text_to_text:
    true``, whose targets a model has learnt to write with the objective ``multi_task``.
    """
