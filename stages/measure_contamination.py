"""Count the test rows of every task that stand in a corpus: data/contamination/CORPUS/.

The corpus is what was encoded of it for training: ``max_tokens`` may keep a part, and which one
depends on the tokenizer.
"""

from dataclasses import asdict

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, replacing, write_json
from stages.core.params import Params, entry
from stages.core.process import run_stage
from stages.evaluation.contamination import TaskTexts, searched_texts
from stages.text.corpus import document_order


def main(params: Params, corpus_key: str, tokenizer_key: str) -> None:
    """Also writes how many documents were searched (of the last one a part may be encoded) and,
    where ``decontaminate_against`` was on, what it removed before."""
    entry(params.corpora, corpus_key, where="corpora")
    folder, split = paths.CORPORA / corpus_key, "train"
    documents = read_jsonl(folder / f"{split}.jsonl")
    encoded = read_json(paths.ENCODED / corpus_key / tokenizer_key / "encoded.json")
    kept = document_order(len(documents), split)[: encoded[f"{split}_documents"]]
    overlap = TaskTexts(searched_texts(params.tasks)).overlap(
        documents[i]["sentences"] for i in kept
    )
    about = {
        "documents": len(kept),
        "tasks": {task: asdict(of_task) for task, of_task in overlap.items()},
        "removed": read_json(folder / "corpus.json").get("removed", {}),
    }
    with replacing(paths.CONTAMINATION / corpus_key / f"{tokenizer_key}.json") as path:
        write_json(path, about)


if __name__ == "__main__":
    run_stage(main, "corpus", "tokenizer")
