"""Validate the whole of params.yaml before anything runs, and say what each stage depends on."""

from dataclasses import asdict
from pathlib import Path

from stages.artifacts import replacing, write_json
from stages.checking.faults import find_faults
from stages.code import hashes
from stages.evaluation.trials import discard_unlisted
from stages.params import NONE, Params
from stages.process import run_stage
from stages.training.budget import plans

DATA = Path("data")


def main(params: Params) -> None:
    faults = list(find_faults(params))
    if faults:
        raise ValueError("\n".join(faults))
    # What a run without a parent, a corpus or a tokenizer depends on, and a tokenizer without a
    # corpus: there, and always the same.
    _write(DATA / "corpora" / NONE / "train.jsonl", "nothing\n")
    _write(DATA / "pretrained" / NONE, "nothing\n")
    _write(DATA / "tokenizers" / NONE, "nothing\n")
    with replacing(DATA / "encoded" / NONE) as folder:
        folder.mkdir()
        for key in (*params.tokenizers, NONE):
            (folder / key).write_text("nothing\n")
    # And a corpus that nothing is removed from, and the report of a study without corpora.
    _write(DATA / NONE, "nothing\n")
    _write(DATA / "contamination" / NONE, "nothing\n")
    # Some stages depend on all that lies there: what is listed no more goes, so that they do not
    # run again where that never was.
    discard_unlisted(DATA / "tasks", params.tasks)
    discard_unlisted(DATA / "contamination", [*params.corpora, NONE])
    for key in params.corpora:
        listed = [f"{tokenizer}.json" for tokenizer in params.tokenizers]
        discard_unlisted(DATA / "contamination" / key, listed)
    # A run depends on its own plan, so that it runs anew when the reference changes what it means.
    with replacing(DATA / "plans") as folder:
        folder.mkdir()
        for key, plan in plans(params).items():
            write_json(folder / f"{key}.json", asdict(plan))
    # And each stage on the code that it runs.
    with replacing(DATA / "code") as folder:
        for stage, modules in code_by_stage(params).items():
            file = folder / f"{stage}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, hashes(stage.partition("/")[0], *modules))


def code_by_stage(params: Params) -> dict[str, list[str]]:
    """The components that each stage of dvc.yaml (``stage`` or ``stage/key``) looks up by name.

    A checkpoint and a prepared task hold the hashes of the code of their model and of their task,
    so that fine-tuning, which depends on both, need not name them.
    """
    sources = [f"sources/{corpus.source['name']}" for corpus in params.corpora.values()]
    found = {
        f"prepare_corpus/{key}": [source]
        for key, source in zip(params.corpora, sources, strict=True)
    }
    for key, task in params.tasks.items():
        components = [f"sources/{task.source['name']}", f"tasks/{task.task['name']}"]
        found[f"prepare_task/{key}"] = components
    for key, run in params.pretrain.items():
        components = [f"models/{run.model['name']}", f"objectives/{run.objective['name']}"]
        found[f"pretrain/{key}"] = components
    baselines = {f"baselines/{baseline['name']}" for baseline in params.baselines.values()}
    methods = {f"methods/{entry.method['name']}" for entry in params.finetune.methods.values()}
    alone = ("train_tokenizer", "encode_corpus", "measure_contamination", "evaluate", "report")
    return (
        found
        | dict.fromkeys(alone, [])
        | {
            "fit_baseline": sorted(baselines),
            "finetune": sorted(methods),
        }
    )


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


if __name__ == "__main__":
    run_stage(main)
