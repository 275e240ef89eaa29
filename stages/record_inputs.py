"""Record for each run the hashes of the corpus, the tokenizer and the public checkpoint that it
reads: data/inputs.

Templates of dvc.yaml cannot name them, since a run takes over from the reference what it does not
say itself. So this stage depends on all of them, and pretraining on the record of its run: another
corpus, tokenizer or checkpoint of the study runs no pretraining again.
"""

from stages.core import paths
from stages.core.artifacts import replacing, sha256_of_tree, write_json
from stages.core.plans import InputsPlan
from stages.core.process import run_stage


def main(plan: InputsPlan) -> None:
    with replacing(paths.INPUTS) as folder:
        folder.mkdir()
        for key, run in plan.runs.items():
            hashes = {path.as_posix(): sha256_of_tree(path) for path in run.folders}
            write_json(folder / f"{key}.json", hashes)


if __name__ == "__main__":
    run_stage(main, InputsPlan)
