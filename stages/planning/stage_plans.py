"""The plan of each stage of dvc.yaml, which the root stage writes."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path

from stages.baselines._baseline import BASELINES
from stages.core import paths
from stages.core.artifacts import sha256, write_json
from stages.core.code import hashes
from stages.core.components import Settings
from stages.core.params import NONE, Params, PublishedTokenizer, Run, Tokenizer
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
from stages.kinds._kind import KINDS, settings_of
from stages.matching.budget import matched

PACKAGES = Path("requirements.lock")


def write_plans(params: Params, folder: Path) -> None:
    """Writes the plan of each stage into ``folder``, as the root stage does into data/plans."""
    for keys, plan in plans(params):
        file = folder / path_of(*keys).relative_to(paths.PLANS)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, plan.model_dump(mode="json", exclude_none=True))


def plans(params: Params) -> Iterator[tuple[tuple[str, ...], Plan]]:
    """Yields the plan of each stage of dvc.yaml, with the name and the keys of the stage."""
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
    yield ("record_inputs",), inputs_plan(params)
    for key, run in everything.runs.items():
        yield ("pretrain", key), pretrain_plan(everything, run)
    finetune = finetune_plan(everything)
    for task in params.tasks:
        yield ("fit_baseline", task), baseline_plan(params, task)
        yield ("finetune", task), finetune
        yield ("evaluate", task), EvaluationPlan(runs=[*params.runs], code=hashes("evaluate"))
    yield ("report",), ReportPlan(params=everything, code=hashes("report"))


def baseline_plan(params: Params, task: str) -> BaselinePlan:
    """Returns the plan of ``fit_baseline``. The entry of a baseline that reads files names the file
    for the task, and is left out if there is none."""
    baselines: dict[str, Settings] = {}
    files: dict[str, str] = {}
    for name, entry in params.baselines.items():
        file_of = files_of(name, entry, params.tasks)
        if file_of is None:
            baselines[name] = entry
        elif file := file_of.get(task):
            baselines[name] = {"name": entry["name"], "path": str(file)}
            files[str(file)] = sha256(file)
    reading = {key for kind in KINDS.values() for key in settings_of(type(kind))}
    source = params.tasks[task].source if files else {}
    components = {f"baselines/{entry['name']}" for entry in baselines.values()}
    return BaselinePlan(
        baselines={name: dict(entry) for name, entry in baselines.items()},
        files=files,
        reading={key: value for key, value in source.items() if key in reading},
        label_budgets=params.finetune.label_budgets,
        pretrain_seeds=params.pretrain_seeds,
        finetune_seeds=params.finetune.seeds,
        code=hashes("fit_baseline", *sorted(components)),
    )


def files_of(name: str, entry: Settings, tasks: Iterable[str]) -> dict[str, Path] | None:
    """Returns the user's file that a baseline reads for each of the ``tasks`` that it is compared
    on, None if it reads none."""
    return BASELINES.build(entry, where=f"baselines.{name}").files([*tasks])


def inputs_plan(params: Params) -> InputsPlan:
    """Returns the plan of ``record_inputs``."""
    fetched = {paths.CHECKPOINTS / key: key for key in params.packaged_checkpoints}
    read = {
        key: RunInputs(
            corpus=run.corpus,
            tokenizer=run.tokenizer,
            checkpoint=fetched.get(Path(str(run.model.get("path"))), NONE),
        )
        for key, run in params.runs.items()
    }
    return InputsPlan(
        runs=read,
        tasks=[*params.tasks],
        label_budgets=params.finetune.label_budgets,
        code=hashes("record_inputs"),
    )


def pretrain_plan(everything: Params, run: Run) -> PretrainPlan:
    """Returns the plan of a run of ``everything``, a study under the matched budget."""
    components = (
        f"models/{run.model['name']}",
        f"objectives/{run.objective['name']}",
        f"optimizers/{run.training.optimizer['name']}",
    )
    return PretrainPlan(
        study=everything.study,
        run=run,
        compute=everything.compute,
        distributed=everything.distributed,
        code=hashes("pretrain", *components),
    )


def finetune_plan(everything: Params) -> FinetunePlan:
    """Returns the plan of the fine-tuning on each task of ``everything``, a study under the matched
    budget. Checkpoints and examples have the hashes of the code of models and tasks."""
    methods = without_texts(everything.finetune.methods)
    adapted = {f"methods/{entry.method['name']}" for entry in methods.values()}
    trainings = (m.of(run).training for m in methods.values() for run in everything.runs)
    optimizers = {f"optimizers/{each.optimizer['name']}" for each in trainings if each}
    return FinetunePlan(
        runs=everything.runs,
        finetune=everything.finetune.model_copy(update={"methods": methods}),
        compute=everything.compute,
        code=hashes("finetune", *sorted(adapted | optimizers)),
    )


def _revisions(
    runs: Mapping[str, Run],
    tokenizers: Mapping[str, Tokenizer | PublishedTokenizer],
    folder: Path,
) -> dict[str, str]:
    """Returns the revision of a local folder that each run and tokenizer states, by the setting's
    path in params.yaml."""
    stated: dict[str, Settings] = {
        f"{run.where(key)}.model": run.model for key, run in runs.items() if run.is_public
    }
    stated |= {
        f"tokenizers.{key}": entry.model_dump()
        for key, entry in tokenizers.items()
        if isinstance(entry, PublishedTokenizer)
    }
    return {
        f"{where}.revision": entry["revision"]
        for where, entry in stated.items()
        if Path(entry["path"]) == folder
    }
