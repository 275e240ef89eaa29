"""Encode the documents of a corpus with a tokenizer."""

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing, sha256, write_json
from stages.core.params import HUB, Params, entry
from stages.core.process import run_stage
from stages.sources._source import SOURCES
from stages.text.corpus import SPLITS, document_order, encode
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
            sentences = (documents[i]["sentences"] for i in document_order(len(documents), split))
            encoded = encode(sentences, encoder, max_tokens=keep, running=source.running_text)
            if keep is not None and len(encoded.tokens) < keep:
                raise ValueError(
                    f"corpora.{corpus_key}.max_tokens: the corpus has only "
                    f"{len(encoded.tokens)} tokens, not {keep}"
                )
            encoded.save(folder / split)
            counts[f"{split}_tokens"] = len(encoded.tokens)
            counts[f"{split}_documents"] = len(encoded.document_starts)
        write_json(folder / "encoded.json", counts | {"tokenizer": sha256(*encoder.files)})


def _tokenizer(params: Params, key: str) -> TaskTokenizer:
    folder = paths.TOKENIZERS / key
    if params.tokenizers[key].algorithm != HUB:
        return Tokenizer(folder / FILE)
    from stages.text.published import PublishedTokenizer  # which takes seconds

    return PublishedTokenizer(folder)


if __name__ == "__main__":
    run_stage(main, "corpus", "tokenizer")
