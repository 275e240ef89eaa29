"""T5: an encoder-decoder with relative positions (Raffel et al. 2020).

Encoder and decoder have ``num_layers`` blocks each: at equal sizes the model has about twice the
parameters of an encoder, but about the same number of operations per token, since each token passes
through only one of the two stacks.
"""

from stages.models._transformer import Transformer


class T5(Transformer):
    family = "t5"
    defaults = {"dropout_rate": 0.0}
