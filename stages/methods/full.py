"""Full fine-tuning: every weight trains (GPT and BERT)."""

from stages.methods._method import TrainedMethod


class Full(TrainedMethod):
    """Trains every weight of the model."""
