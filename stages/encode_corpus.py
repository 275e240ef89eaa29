"""Encode the documents of a corpus with a tokenizer."""

from collections.abc import Iterable, Iterator

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing, sha256, write_json
from stages.core.params import HUB, Params, entry
from stages.core.process import run_stage
from stages.sources._source import SOURCES
from stages.text.corpus import SPLITS, EncodedCorpus, document_order, encode
from stages.text.tokenizer import FILE, TaskTokenizer, Tokenizer


def main(params: Params, corpus_key: str, tokenizer_key: str) -> None:
    corpus = entry(params.corpora, corpus_key, where="corpora")
    max_tokens = read_json(paths.CORPORA / corpus_key / "corpus.json")["max_tokens"]
    source = SOURCES.find(corpus.source["name"], where=f"corpora.{corpus_key}.source")
    encoder = _tokenizer(params, tokenizer_key)
    with replacing(paths.ENCODED / corpus_key / tokenizer_key) as folder:
        folder.mkdir()
        counts: dict[str, int] = {}
        for split in SPLITS:
            documents = read_jsonl(paths.CORPORA / corpus_key / f"{split}.jsonl")
            keep = None if max_tokens == "all" or split != "train" else int(max_tokens)
            sizes: list[int] = []
            order = document_order(len(documents), split)
            sentences = _measured((documents[i]["sentences"] for i in order), sizes)
            encoded = encode(sentences, encoder, max_tokens=keep, running=source.running_text)
            if keep is not None and len(encoded.tokens) < keep:
                raise ValueError(
                    f"corpora.{corpus_key}.max_tokens: the corpus has only "
                    f"{len(encoded.tokens)} tokens, not {keep}"
                )
            encoded.save(folder / split)
            counts[f"{split}_tokens"] = len(encoded.tokens)
            counts[f"{split}_documents"] = len(encoded.document_starts)
            counts[f"{split}_bytes"] = num_bytes(encoded, sizes)
        write_json(folder / "encoded.json", counts | {"tokenizer": sha256(*encoder.files)})


def _measured(documents: Iterable[list[str]], sizes: list[int]) -> Iterator[list[str]]:
    """The documents; the UTF-8 bytes of each that is taken go into ``sizes``."""
    for sentences in documents:
        sizes.append(sum(len(sentence.encode()) for sentence in sentences))
        yield sentences


def num_bytes(encoded: EncodedCorpus, sizes: list[int]) -> int:
    """The bytes of text that were encoded. Of the last document, which ``max_tokens`` may cut, an
    estimate: its tokens hold as many bytes each as those of the others."""
    whole = int(encoded.document_starts[-1])
    if not whole:  # one document
        return sizes[-1]
    return round(sum(sizes[:-1]) * len(encoded.tokens) / whole)


def _tokenizer(params: Params, key: str) -> TaskTokenizer:
    folder = paths.TOKENIZERS / key
    if params.tokenizers[key].algorithm != HUB:
        return Tokenizer(folder / FILE)
    from stages.text.published import PublishedTokenizer  # which takes seconds

    return PublishedTokenizer(folder)


if __name__ == "__main__":
    run_stage(main, "corpus", "tokenizer")
