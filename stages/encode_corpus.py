"""Encode the documents of a corpus with a tokenizer."""

import os
from collections.abc import Iterable, Iterator

from stages.core import paths
from stages.core.artifacts import read_json, replacing, sha256, write_json
from stages.core.plans import EncodingPlan
from stages.core.process import run_stage
from stages.sources._source import SOURCES
from stages.text.corpus import SPLITS, StoredDocuments, document_order, encode
from stages.text.tokenizer import Tokenizer


def main(plan: EncodingPlan, corpus_key: str, tokenizer_key: str) -> str:
    max_tokens = read_json(paths.CORPORA / corpus_key / "corpus.json")["max_tokens"]
    source = SOURCES.find(plan.corpus.source["name"], where=f"corpora.{corpus_key}.source")
    tokenizer = Tokenizer(paths.TOKENIZERS / tokenizer_key)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # on all cores
    with replacing(paths.ENCODED / corpus_key / tokenizer_key) as folder:
        folder.mkdir()
        counts: dict[str, int] = {}
        for split in SPLITS:
            keep = None if max_tokens == "all" or split != "train" else int(max_tokens)
            documents = StoredDocuments(paths.CORPORA / corpus_key / f"{split}.jsonl")
            sizes: list[int] = []
            texts = _measured(documents.sentences(document_order(len(documents), split)), sizes)
            corpus = encode(texts, tokenizer, max_tokens=keep, running=source.running_text)
            num_tokens = len(corpus.tokens)
            if keep is not None and num_tokens < keep:
                raise ValueError(
                    f"corpora.{corpus_key}.max_tokens: the corpus has only {num_tokens} tokens, "
                    f"not {keep}"
                )
            corpus.save(folder / split)
            counts[f"{split}_tokens"] = num_tokens
            counts[f"{split}_documents"] = len(corpus.document_starts)
            *whole, num_bytes = sizes[: len(corpus.document_starts)]
            if whole:  # an estimate, since the last document may be cut
                num_bytes = round(sum(whole) * num_tokens / int(corpus.document_starts[-1]))
            counts[f"{split}_bytes"] = num_bytes
        write_json(folder / "encoded.json", counts | {"tokenizer": sha256(*tokenizer.files)})
    return f"{counts['train_tokens']:,} tokens, {counts['validation_tokens']:,} for validation"


def _measured(documents: Iterable[list[str]], sizes: list[int]) -> Iterator[list[str]]:
    """Yields the documents, and appends their UTF-8 bytes of text to ``sizes``."""
    for sentences in documents:
        sizes.append(sum(len(sentence.encode()) for sentence in sentences))
        yield sentences


if __name__ == "__main__":
    run_stage(main, EncodingPlan, "corpus", "tokenizer")
