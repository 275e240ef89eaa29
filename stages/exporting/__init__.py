"""Export: our models and tokenizers in the forms of transformers and of ONNX."""
