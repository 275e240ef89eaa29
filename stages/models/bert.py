"""BERT: an encoder with learnt positions and segments (Devlin et al. 2019)."""

from stages.models._transformer import Transformer


class Bert(Transformer):
    family = "bert"
    defaults = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
