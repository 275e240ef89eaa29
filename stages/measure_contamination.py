"""Count the test rows of every task that occur in a corpus: data/contamination/CORPUS/.

Only the text that was encoded for training is searched. If ``max_tokens`` limits the corpus, the
amount of this text depends on the tokenizer.
"""

from dataclasses import asdict
from itertools import chain

import numpy as np

from stages.core import paths
from stages.core.artifacts import read_json, replacing, write_json
from stages.core.plans import TextsPlan
from stages.core.process import run_stage
from stages.evaluation.contamination import TaskTexts, searched_texts
from stages.text.corpus import StoredDocuments, document_order


def main(plan: TextsPlan, corpus_key: str, tokenizer_key: str) -> str:
    """Writes the overlap with each task, the number of searched documents (the last may be encoded
    only in part) and of tokens, how much text ``decontaminate_against`` had removed from the
    corpus, and the hash of the whole corpus, by which the report recognises corpora that differ
    only in ``max_tokens``."""
    folder, split = paths.CORPORA / corpus_key, "train"
    documents = StoredDocuments(folder / f"{split}.jsonl")
    encoded = read_json(paths.ENCODED / corpus_key / tokenizer_key / "encoded.json")
    searched = document_order(len(documents), split)[: encoded[f"{split}_documents"]]
    parts = documents.parts(np.sort(searched))
    overlap = TaskTexts(searched_texts(plan.tasks)).overlap(chain.from_iterable(parts))
    corpus = read_json(folder / "corpus.json")
    about = {
        "documents": len(searched),
        "tokens": encoded["train_tokens"],
        "sha256": corpus["sha256"],
        "tasks": {task: asdict(of_task) for task, of_task in overlap.items()},
        "removed": corpus.get("removed", {}),
    }
    with replacing(paths.CONTAMINATION / corpus_key / f"{tokenizer_key}.json") as path:
        write_json(path, about)
    exact = (f"{of.exact:,} of {of.num_test:,} of {task}" for task, of in overlap.items())
    return f"test texts that occur in the corpus: {', '.join(exact)}"


if __name__ == "__main__":
    run_stage(main, TextsPlan, "corpus", "tokenizer")
