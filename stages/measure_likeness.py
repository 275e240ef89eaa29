"""Measure how alike a corpus and the texts of every task are: data/likeness/CORPUS/.

The corpus is what was encoded of it for training: ``max_tokens`` may keep a part, and which one
depends on the tokenizer. The texts of a task are the inputs of its test rows, as models read them:
those of its training rows may stand in the corpus, where both have one source.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing, write_json
from stages.core.params import Params, entry
from stages.core.process import run_stage
from stages.evaluation.likeness import measure
from stages.kinds._kind import KINDS
from stages.text.corpus import document_order


def main(params: Params, corpus_key: str, tokenizer_key: str) -> None:
    """Also writes how many tokens were encoded and the hash of the corpus before any part of it was
    kept: corpora that share it differ in ``max_tokens`` alone."""
    entry(params.corpora, corpus_key, where="corpora")
    encoded = read_json(paths.ENCODED / corpus_key / tokenizer_key / "encoded.json")
    measured = measure(
        _documents(corpus_key, encoded["train_documents"]),
        {task: list(_texts(task)) for task in params.tasks},
    )
    about = {
        "tokens": encoded["train_tokens"],
        "sha256": read_json(paths.CORPORA / corpus_key / "corpus.json")["sha256"],
        **asdict(measured),
    }
    with replacing(paths.LIKENESS / corpus_key / f"{tokenizer_key}.json") as path:
        write_json(path, about)


def _documents(corpus_key: str, num_encoded: int) -> Iterator[list[str]]:
    """The sentences of the documents that were encoded (of the last one, a part may be)."""
    folder = paths.CORPORA / corpus_key
    number = read_json(folder / "corpus.json")["train"]["documents"]
    kept = set(document_order(number, "train")[:num_encoded].tolist())
    with (folder / "train.jsonl").open(encoding="utf-8") as file:
        for i, line in enumerate(file):
            if i in kept:
                yield json.loads(line)["sentences"]


def _texts(task: str) -> Iterator[str]:
    kind = KINDS[read_json(paths.examples(task) / "task.json")["kind"]]
    for row in read_jsonl(paths.examples(task) / "test.jsonl"):
        yield from kind.texts(row)


if __name__ == "__main__":
    run_stage(main, "corpus", "tokenizer")
