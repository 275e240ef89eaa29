"""Masked language modelling (BERT; Devlin et al. 2019, section 3.1, task 1)."""

from stages.objectives._masking import MaskedObjective


class MLM(MaskedObjective):
    """Of the chosen tokens BERT masks 80 %, replaces 10 % and keeps 10 %."""
