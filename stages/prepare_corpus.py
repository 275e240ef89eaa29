"""Read a corpus: unlabelled documents for training and validation."""

import hashlib
from pathlib import Path

from stages.artifacts import replacing, write_json, write_jsonl
from stages.components import build
from stages.params import Params, entry
from stages.process import run_stage
from stages.sources._source import Document, Source
from stages.text.labelled import SPLITS, Split

FOLDER = Path("data/corpora")


def main(params: Params, key: str) -> None:
    """Writes ``{train,validation}.jsonl`` and what they hold to ``corpus.json``.

    Documents of the test split are in no corpus: the texts of tasks are tested on them.
    Raises ValueError if there is nothing to train or to validate on.
    """
    where = f"corpora.{key}.source"
    corpus = entry(params.corpora, key, where="corpora")
    source: Source = build("sources", corpus.source, where=where)
    documents: dict[Split, list[Document]] = {split: [] for split in SPLITS}
    try:
        for document in source.documents():
            documents[document.split].append(document)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    held_out = len(documents.pop("test"))

    digest = hashlib.sha256()
    counts = {}
    with replacing(FOLDER / key) as folder:
        folder.mkdir()
        for split, found in documents.items():
            if not found:
                raise ValueError(f"{where}: no text for {split}; give it more documents")
            write_jsonl(
                folder / f"{split}.jsonl", ({"id": d.id, "sentences": d.sentences} for d in found)
            )
            sentences = [sentence for d in found for sentence in d.sentences]
            counts[split] = {
                "documents": len(found),
                "sentences": len(sentences),
                "characters": sum(map(len, sentences)),
            }
            digest.update("\n".join([split, *sentences, ""]).encode())
        about = {
            **counts,
            "held_out_documents": held_out,
            "max_tokens": corpus.max_tokens,  # which the encoded corpus will keep to
            "versions": source.versions(),
            "sha256": digest.hexdigest(),
        }
        write_json(folder / "corpus.json", about)


if __name__ == "__main__":
    run_stage(main, "corpus", repeats=lambda raw, key: [raw["corpora"][key]])
