"""Read a corpus: unlabelled documents for training and validation."""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stages.core import parallel, paths
from stages.core.artifacts import replacing, write_json
from stages.core.parallel import grouped, in_order
from stages.core.plans import CorpusPlan
from stages.core.process import run_stage
from stages.evaluation.contamination import TaskTexts, searched_texts
from stages.sources._source import SOURCES, Document, Part, Source, check_split
from stages.text.corpus import SPLITS
from stages.text.stored import StoredDocuments

_TO_JSON = json.JSONEncoder(ensure_ascii=False).encode
_COUNTED = ("documents", "sentences", "characters")


def main(plan: CorpusPlan, key: str) -> str:
    """Writes ``{train,validation}.jsonl`` and a summary to ``corpus.json``.

    Documents of the test split are left out, because tasks with the same source test on their
    texts. With ``decontaminate_against: tasks``, sentences that contain a task's test text, or an
    n-gram of one, are removed, and so are documents that have no sentence left; the summary counts
    what was removed. Raises ValueError if no document is left for training or validation.
    """
    where = f"corpora.{key}.source"
    corpus = plan.corpus
    source: Source = SOURCES.build(corpus.source, where=where)
    tasks = plan.decontaminated_against
    texts = TaskTexts(searched_texts(tasks)) if tasks else None
    with replacing(paths.CORPORA / key) as folder:
        folder.mkdir()
        try:
            about = write(source, texts, folder)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        about |= {
            "max_tokens": corpus.max_tokens,  # limit of the encoded corpus
            "versions": source.versions(),
            "sha256": about.pop("sha256"),
        }
        write_json(folder / "corpus.json", about)
    train, validation = (about[split]["documents"] for split in SPLITS)
    characters = about["train"]["characters"]
    return f"{train:,} documents ({characters:,} characters), {validation:,} for validation"


def write(
    source: Source, texts: TaskTexts | None, folder: Path, *, processes: int | None = None
) -> dict[str, Any]:
    """Writes the documents of a source in their order, without sentences that ``texts`` match.

    Returns how much text was written, removed and held out, and the hash of the written text.
    Raises ValueError if a split is empty.
    """
    if texts is None and not source.is_read_in_parts:
        processes = 1  # sending sentences to processes would take longer than writing them
    groups = grouped(source.parts(), lambda part: part.num_bytes)
    work = partial(_prepared, texts)
    counts: Counter[tuple[str, ...]] = Counter()
    digest = hashlib.sha256(b"train\n")
    with ExitStack() as stack:
        batches = in_order(work, groups, _num_bytes, processes=processes)
        stack.enter_context(closing(batches))
        files = {
            split: stack.enter_context((folder / f"{split}.jsonl").open("wb")) for split in SPLITS
        }
        for batch in batches:
            counts.update(batch.counts)
            digest.update(batch.train_text)
            for split, rows in batch.rows.items():
                files[split].write(rows)
    extents = {split: {name: counts[split, name] for name in _COUNTED} for split in SPLITS}
    removed = {
        split: {name: counts["removed", split, name] for name in _COUNTED} for split in SPLITS
    }
    for split, extent in extents.items():
        if not extent["documents"]:
            left = " that no task tests on" if texts else ""
            raise ValueError(f"no text for {split}{left}; give it more documents")
    digest.update(b"validation\n")  # after train, even if it comes first in the source
    stored = StoredDocuments(folder / "validation.jsonl")
    for sentences in stored.sentences(range(len(stored))):
        digest.update(_lines(sentences))
    return {
        **extents,
        **({} if texts is None else {"removed": removed}),
        "held_out_documents": counts["test", "documents"],
        "sha256": digest.hexdigest(),
    }


class _Prepared(NamedTuple):
    """Documents in the form that is written to files, and counts of what they contain."""

    rows: dict[str, bytes]  # lines of JSON of each split
    train_text: bytes
    counts: Counter[tuple[str, ...]]  # keys: (split, name), ("removed", split, name)


def _prepared(texts: TaskTexts | None, parts: list[Part]) -> _Prepared:
    rows = {split: io.BytesIO() for split in SPLITS}
    train_text = io.BytesIO()
    counts: Counter[tuple[str, ...]] = Counter()
    documents = [document for part in parts for document in part.documents()]
    parts.clear()  # frees memory; a document may be large
    for document, sentences in zip(documents, _left(documents, texts), strict=True):
        check_split(document)
        split = document.split
        if split == "test":
            counts[split, "documents"] += 1
            continue
        before = left = _extent(document.sentences)
        if texts is not None:
            left = _extent(sentences) if sentences else dict.fromkeys(_COUNTED, 0)
            counts.update({("removed", split, n): before[n] - left[n] for n in _COUNTED})
        counts.update({(split, name): number for name, number in left.items()})
        if not left["documents"]:
            continue
        is_short = left["characters"] <= parallel.PART_BYTES
        pieces = [sentences] if is_short else list(grouped(sentences, len))
        for piece in _row(document.id, pieces):
            rows[split].write(piece.encode())
        if split == "train":
            for piece in pieces:
                train_text.write(_lines(piece))
    return _Prepared(
        {split: file.getvalue() for split, file in rows.items()}, train_text.getvalue(), counts
    )


def _left(documents: list[Document], texts: TaskTexts | None) -> Iterable[list[str]]:
    """Returns the sentences that each document keeps; documents of test keep all of theirs."""
    if texts is None:
        return (document.sentences for document in documents)
    searched = (document.sentences for document in documents if document.split != "test")
    left = texts.removed_from(searched)
    return (d.sentences if d.split == "test" else next(left) for d in documents)


def _num_bytes(parts: list[Part]) -> int:
    return sum(part.num_bytes for part in parts)


def _extent(sentences: list[str]) -> dict[str, int]:
    """Returns the numbers of documents, sentences and characters of one document."""
    return {
        "documents": 1,
        "sentences": len(sentences),
        "characters": sum(map(len, sentences)),
    }


def _row(id: str, pieces: list[list[str]]) -> Iterator[str]:
    """Yields a document's line as ``json.dumps`` writes it, one group of sentences at a time."""
    begin = f'{{"id": {_TO_JSON(id)}, "sentences": ['
    for piece in pieces:
        yield begin + _TO_JSON(piece)[1:-1]
        begin = ", "
    yield "]}\n"


def _lines(sentences: list[str]) -> bytes:
    """Returns sentences as the bytes that are hashed, one line each."""
    return "".join(f"{sentence}\n" for sentence in sentences).encode()


if __name__ == "__main__":
    run_stage(main, CorpusPlan, "corpus")
