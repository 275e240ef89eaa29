"""Read a corpus: unlabelled documents for training and validation."""

import hashlib

from stages.core import paths
from stages.core.artifacts import replacing, write_json, write_jsonl
from stages.core.params import NONE, Params, entry
from stages.core.process import run_stage
from stages.evaluation.contamination import TaskTexts, searched_texts
from stages.kinds._kind import SPLITS, Split
from stages.sources._source import SOURCES, Document, Source


def main(params: Params, key: str) -> None:
    """Writes ``{train,validation}.jsonl`` and what they hold to ``corpus.json``.

    Documents of the test split are in no corpus: the texts of tasks are tested on them. With
    ``decontaminate_against: tasks``, nor are sentences of others that hold such a text or an n-gram
    of it, nor documents that are left without a sentence; how many there were is written, too.
    Raises ValueError if there is nothing to train or to validate on.
    """
    where = f"corpora.{key}.source"
    corpus = entry(params.corpora, key, where="corpora")
    source: Source = SOURCES.build(corpus.source, where=where)
    documents: dict[Split, list[Document]] = {split: [] for split in SPLITS}
    try:
        for document in source.documents():
            documents[document.split].append(document)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    held_out = len(documents.pop("test"))
    removed = {}
    if corpus.decontaminate_against != NONE:
        texts = TaskTexts(searched_texts(params.tasks))
        for split, found in documents.items():
            documents[split] = decontaminated(found, texts)
            removed[split] = loss(found, documents[split])

    digest = hashlib.sha256()
    counts = {}
    with replacing(paths.CORPORA / key) as folder:
        folder.mkdir()
        for split, found in documents.items():
            if not found:
                left = " that no task tests on" if removed else ""
                raise ValueError(f"{where}: no text for {split}{left}; give it more documents")
            write_jsonl(
                folder / f"{split}.jsonl", ({"id": d.id, "sentences": d.sentences} for d in found)
            )
            counts[split] = extent(found)
            sentences = [sentence for d in found for sentence in d.sentences]
            digest.update("\n".join([split, *sentences, ""]).encode())
        about = {
            **counts,
            **({"removed": removed} if removed else {}),
            "held_out_documents": held_out,
            "max_tokens": corpus.max_tokens,  # which the encoded corpus will keep to
            "versions": source.versions(),
            "sha256": digest.hexdigest(),
        }
        write_json(folder / "corpus.json", about)


def decontaminated(documents: list[Document], texts: TaskTexts) -> list[Document]:
    """Without what ``texts`` match, and without what is then empty."""
    left = texts.removed_from(document.sentences for document in documents)
    pairs = zip(documents, left, strict=True)
    return [document._replace(sentences=sentences) for document, sentences in pairs if sentences]


def extent(documents: list[Document]) -> dict[str, int]:
    sentences = [sentence for document in documents for sentence in document.sentences]
    return {
        "documents": len(documents),
        "sentences": len(sentences),
        "characters": sum(map(len, sentences)),
    }


def loss(before: list[Document], after: list[Document]) -> dict[str, int]:
    """How much less there is."""
    left = extent(after)
    return {name: number - left[name] for name, number in extent(before).items()}


if __name__ == "__main__":
    run_stage(main, "corpus", repeats=lambda raw, key: [raw["corpora"][key]])
