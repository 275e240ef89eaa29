"""The stages that an edit makes pending in a project that is up to date according to DVC."""

import json
from pathlib import Path

import pytest

from stages.core.study_file import load
from stages.planning.pending import pending
from tests.project import AFTER_THE_DECODER, Project, clone_of_working_tree

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:_NoneStep:DeprecationWarning"),  # DVC's own
]

TASK = json.dumps({"num_examples": {"train": 100}})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = clone_of_working_tree(tmp_path_factory.mktemp("plan") / "project")
    project.run("python", "-m", "stages.resolve")
    make_up_outputs(project)
    for section in ("corpora", "models"):
        project.run("python", "-m", "stages.record_inputs", section)
    project.run("dvc", "commit", "--force", "--quiet")
    return project


def make_up_outputs(project: Project) -> None:
    """Writes every missing dependency and output of the stages."""
    from dvc.repo import Repo

    with Repo(str(project.folder)) as repository:
        stages = list(repository.index.stages)
        paths = [dep.fs_path for stage in stages for dep in stage.deps]
        paths += [out.fs_path for stage in stages for out in stage.outs]
    for path in map(Path, sorted(map(str, paths), key=len, reverse=True)):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            is_task = path.name == "task.json"
            path.write_text(TASK if is_task else f"{path.name}\n")


@pytest.fixture
def up_to_date(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(project.folder)
    project.run("git", "checkout", "--quiet", "params.yaml")
    return project


def test_pending_has_no_stage_where_all_is_up_to_date(up_to_date: Project) -> None:
    assert not pending(load())


def test_pending_has_the_stages_that_follow_from_an_edited_run(up_to_date: Project) -> None:
    up_to_date.edit("models", "decoder_causal", "training", "lr", value=0.002)
    stages = pending(load())
    assert sorted(stages) == sorted(AFTER_THE_DECODER)
    assert [*stages][0] == "resolve" and [*stages][-1] == "report"
    assert {*stages["evaluate@tag"]} == {"resolve", "finetune@tag"}


@pytest.mark.parametrize(
    ("path", "value", "stages", "others"),
    [
        (
            ("pretrain", "matched"),
            "flops",
            {"pretrain@decoder_causal", "finetune@tag", "report"},
            {"pretrain@encoder_mlm", "prepare_corpus@prose"},
        ),
        (  # a new run, which reads what others read
            ("models", "more"),
            {"objective": "span_mlm"},
            {"record_inputs@models", "pretrain@more", "finetune@tag"},
            {"pretrain@encoder_mlm", "pretrain@decoder_causal", "encode_corpus@prose-unigram"},
        ),
        (  # a setting of the report
            ("evaluation", "confidence"),
            0.9,
            {"resolve", "report"},
            {"evaluate@tag", "finetune@tag", "pretrain@encoder_mlm"},
        ),
    ],
)
def test_pending_has_the_stages_whose_plan_changes(
    up_to_date: Project, path: tuple[str, ...], value: object, stages: set[str], others: set[str]
) -> None:
    up_to_date.edit(*path, value=value)
    would_run = pending(load())
    assert stages <= would_run.keys() and others.isdisjoint(would_run)


def test_plan_refuses_faults_as_other_commands_do(up_to_date: Project) -> None:
    up_to_date.edit("pretrain", "reference", value="bert")
    output = up_to_date.run("python", "-m", "stages.commands.plan", check=False)
    assert output.startswith("error: pretrain.reference: unknown 'bert'")
