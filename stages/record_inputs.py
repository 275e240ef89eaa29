"""Record for each run the hashes of the corpus, the tokenizer and the public checkpoint that it
reads: data/inputs.

Templates of dvc.yaml cannot name these files, since a run takes over settings from the reference.
So this stage depends on the files of all runs, and each pretraining only on the record of its own
run: a change of another run's corpus, tokenizer or checkpoint does not rerun the pretraining.

The stage also refuses a label budget that a task cannot fill, before anything is trained.
"""

from stages.core import paths
from stages.core.artifacts import read_json, replacing, sha256_of_tree, write_json
from stages.core.plans import InputsPlan
from stages.core.process import run_stage
from stages.tasks._labelled_rows import most_rows


def main(plan: InputsPlan) -> str:
    """Writes a record for each run. Raises ValueError for a label budget above a task's rows."""
    for task in plan.tasks:
        rows = read_json(paths.examples(task) / "task.json")["num_examples"]["train"]
        most_rows(plan.label_budgets, rows, task=task)
    with replacing(paths.INPUTS) as folder:
        folder.mkdir()
        for key, run in plan.runs.items():
            hashes = {path.as_posix(): sha256_of_tree(path) for path in run.folders}
            write_json(folder / f"{key}.json", hashes)
    return f"inputs of {len(plan.runs)} runs"


if __name__ == "__main__":
    run_stage(main, InputsPlan)
