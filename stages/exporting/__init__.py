"""Export: our models and their tokenizers as models and tokenizers of transformers."""
