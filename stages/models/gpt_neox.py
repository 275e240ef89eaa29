"""GPT-NeoX: a decoder with rotary positions and biases, as Pythia has it (Black et al. 2022)."""

from stages.models._transformer import ROTATING_ALL, Transformer


class GPTNeoX(Transformer):
    """All dimensions of a head are rotated, and attention and feed-forward layers follow each
    other; the published models rotate a quarter and compute both side by side."""

    family = "gpt_neox"
    defaults = {
        "tie_word_embeddings": True,
        "use_parallel_residual": False,
        "rope_parameters": ROTATING_ALL,
    }
