"""Encode the documents of a corpus with a tokenizer."""

from stages.core import paths
from stages.core.artifacts import read_json, replacing, sha256, write_json
from stages.core.params import HUB
from stages.core.plans import EncodingPlan
from stages.core.process import run_stage
from stages.sources._source import SOURCES
from stages.text.corpus import SPLITS
from stages.text.encoding import encode_stored
from stages.text.stored import StoredDocuments
from stages.text.tokenizer import FILE, TaskTokenizer, Tokenizer


def main(plan: EncodingPlan, corpus_key: str, tokenizer_key: str) -> str:
    max_tokens = read_json(paths.CORPORA / corpus_key / "corpus.json")["max_tokens"]
    source = SOURCES.find(plan.corpus.source["name"], where=f"corpora.{corpus_key}.source")
    encoder = _tokenizer(tokenizer_key, is_public=plan.tokenizer.algorithm == HUB)
    with replacing(paths.ENCODED / corpus_key / tokenizer_key) as folder:
        folder.mkdir()
        counts: dict[str, int] = {}
        for split in SPLITS:
            keep = None if max_tokens == "all" or split != "train" else int(max_tokens)
            encoded = encode_stored(
                StoredDocuments(paths.CORPORA / corpus_key / f"{split}.jsonl"),
                split,
                encoder,
                folder / split,
                max_tokens=keep,
                running=source.running_text,
            )
            if keep is not None and encoded.tokens < keep:
                raise ValueError(
                    f"corpora.{corpus_key}.max_tokens: the corpus has only "
                    f"{encoded.tokens} tokens, not {keep}"
                )
            counts[f"{split}_tokens"] = encoded.tokens
            counts[f"{split}_documents"] = encoded.documents
            counts[f"{split}_bytes"] = encoded.num_bytes
        write_json(folder / "encoded.json", counts | {"tokenizer": sha256(*encoder.files)})
    return f"{counts['train_tokens']:,} tokens, {counts['validation_tokens']:,} for validation"


def _tokenizer(key: str, *, is_public: bool) -> TaskTokenizer:
    folder = paths.TOKENIZERS / key
    if not is_public:
        return Tokenizer(folder / FILE)
    from stages.text.published import PublishedTokenizer  # the import takes seconds

    return PublishedTokenizer(folder)


if __name__ == "__main__":
    run_stage(main, EncodingPlan, "corpus", "tokenizer")
