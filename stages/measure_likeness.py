"""Measure how alike a corpus and the texts of every task are: data/likeness/CORPUS/.

Only the text that was encoded for training is compared. If ``max_tokens`` limits the corpus, the
amount of this text depends on the tokenizer. The texts of a task are the inputs of its test rows,
as models read them. Its training rows are left out: if the task and the corpus have the same
source, the corpus may contain them.
"""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain

import numpy as np

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing, write_json
from stages.core.plans import TextsPlan
from stages.core.process import run_stage
from stages.evaluation.likeness import measured
from stages.tasks._task import TASKS
from stages.text.corpus import StoredDocuments, document_order


def main(plan: TextsPlan, corpus_key: str, tokenizer_key: str) -> str:
    """Writes the likeness to each task, the number of encoded tokens and the hash of the whole
    corpus, by which the report recognises corpora that differ only in ``max_tokens``."""
    encoded = read_json(paths.ENCODED / corpus_key / tokenizer_key / "encoded.json")
    documents = StoredDocuments(paths.CORPORA / corpus_key / "train.jsonl")
    encoded_documents = document_order(len(documents), "train")[: encoded["train_documents"]]
    read = chain.from_iterable(documents.parts(np.sort(encoded_documents)))
    likeness = measured(read, {task: list(_texts(task)) for task in plan.tasks})
    about = {
        "tokens": encoded["train_tokens"],
        "sha256": read_json(paths.CORPORA / corpus_key / "corpus.json")["sha256"],
        **asdict(likeness),
    }
    with replacing(paths.LIKENESS / corpus_key / f"{tokenizer_key}.json") as path:
        write_json(path, about)
    return f"{len(encoded_documents):,} documents compared with {', '.join(plan.tasks)}"


def _texts(task: str) -> Iterator[str]:
    kind = TASKS[read_json(paths.examples(task) / "task.json")["kind"]]
    for row in read_jsonl(paths.examples(task) / "test.jsonl"):
        yield from kind.texts(row)


if __name__ == "__main__":
    run_stage(main, TextsPlan, "corpus", "tokenizer")
