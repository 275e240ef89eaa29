"""Text as numbers: tokenizers, encoded corpora, packing, batches."""
