"""Export: our models as transformers has them, layer by layer, and their tokenizers."""
