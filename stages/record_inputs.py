"""Record the hashes of the files that each corpus or each model reads: data/inputs.

Templates of dvc.yaml cannot name these files, since an entry of params.yaml need not state them: a
model takes over its corpus and tokenizer, has a parent or not, and a corpus is decontaminated or
not. So this stage depends on the files of all entries, and the stage of an entry only on the record
of its own: a change of another model's corpus, tokenizer or checkpoint does not rerun a
pretraining.

The stage also refuses a label budget that a task cannot fill, before anything is trained.
"""

from pathlib import Path

from stages.core import paths
from stages.core.artifacts import read_json, replacing, sha256_of_tree, write_json
from stages.core.plans import InputsPlan
from stages.core.process import run_stage
from stages.tasks._labelled_rows import most_rows


def main(plan: InputsPlan, section: str) -> str:
    """Writes a record for each entry of ``section``, ``corpora`` or ``models``.

    Raises ValueError for a label budget above a task's rows.
    """
    for task in plan.tasks:
        rows = read_json(paths.examples(task) / "task.json")["num_examples"]["train"]
        most_rows(plan.label_budgets, rows, task=task)
    with replacing(paths.INPUTS / section) as folder:
        folder.mkdir()
        for key, inputs in plan.inputs.items():
            write_json(
                folder / f"{key}.json", {path: sha256_of_tree(Path(path)) for path in inputs}
            )
    return f"inputs of {len(plan.inputs)} {section}"


if __name__ == "__main__":
    run_stage(main, InputsPlan, "section")
