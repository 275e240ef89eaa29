"""Validate the whole of params.yaml before anything runs, and write what each stage depends on."""

from dataclasses import asdict
from pathlib import Path

from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.artifacts import replacing, write_json
from stages.core.code import code_by_stage, hashes
from stages.core.params import NONE, Params
from stages.core.process import run_stage
from stages.evaluation.records import discard_unlisted
from stages.matching.budget import plans

# Input of the stages that read installed packages.
ENVIRONMENT = paths.DATA / "environment.json"


def main(params: Params) -> None:
    if not ENVIRONMENT.exists():
        raise ValueError(f"{ENVIRONMENT} is missing: run `make setup`, which writes it")
    faults = list(find_faults(params))
    if faults:
        raise ValueError("\n".join(faults))
    # Inputs of a run without a parent, a corpus or a tokenizer, and of a tokenizer without a
    # corpus: files that always exist and never change.
    _write(paths.CORPORA / NONE / "train.jsonl", "nothing\n")
    _write(paths.PRETRAINED / NONE, "nothing\n")
    _write(paths.TOKENIZERS / NONE, "nothing\n")
    with replacing(paths.ENCODED / NONE) as folder:
        folder.mkdir()
        for key in (*params.tokenizers, NONE):
            (folder / key).write_text("nothing\n")
    # Inputs of a corpus that nothing is removed from, and of the report of a study without corpora.
    _write(paths.DATA / NONE, "nothing\n")
    _write(paths.CONTAMINATION / NONE, "nothing\n")
    _write(paths.LIKENESS / NONE, "nothing\n")
    # Some stages depend on whole folders. Entries that are no longer in params.yaml are removed, so
    # that those stages do not run again.
    discard_unlisted(paths.TASKS, params.tasks)
    discard_unlisted(paths.PRETRAINED, [*params.pretrain, NONE])
    for folder in (paths.CONTAMINATION, paths.LIKENESS):
        discard_unlisted(folder, [*params.corpora, NONE])
        for key in params.corpora:
            discard_unlisted(folder / key, [f"{name}.json" for name in params.tokenizers])
    # A run depends on its own plan, so that it runs again when the reference run changes the plan.
    with replacing(paths.PLANS) as folder:
        folder.mkdir()
        for key, plan in plans(params).items():
            write_json(folder / f"{key}.json", asdict(plan))
    # A baseline depends on the runs' seeds alone, which decide together with the fine-tuning seeds
    # which rows are labelled.
    with replacing(paths.SEEDS) as file:
        write_json(file, {"pretrain_seeds": params.pretrain_seeds})
    # The report depends on this file, since ``about:`` is optional in params.yaml.
    with replacing(paths.DATA / "about.json") as file:
        write_json(file, params.about.model_dump())
    # Each stage depends on the code that it runs.
    with replacing(paths.CODE) as folder:
        for stage, modules in code_by_stage(params).items():
            file = folder / f"{stage}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, hashes(stage.partition("/")[0], *modules))


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    run_stage(main)
