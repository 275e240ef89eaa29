"""Export: our models in the form of transformers, layer by layer, and their tokenizers."""
