"""A proposed study has a published checkpoint if it can be fetched and time allows."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stages.checking.faults import find_faults
from stages.core.params import PackagedCheckpoint, Run
from stages.core.study_file import load
from stages.proposal.propose import Proposal
from stages.proposal.public import ALL_MINILM, Candidate
from stages.proposal.study import PUBLISHED
from tests.labelled_files import classified, proposed, study_of
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Candidate:
    """Offers a small checkpoint to fetch; writes a labelled file."""
    Path("a.csv").write_text(classified())
    revision = revision_of(checkpoint("bert"))
    candidate = replace(ALL_MINILM, revision=revision, max_positions=MAX_POSITIONS)

    def fetch(entry: PackagedCheckpoint, folder: Path) -> None:
        assert entry == candidate.entry
        shutil.copytree(checkpoint("bert"), folder)

    monkeypatch.setattr("stages.proposal.public.CANDIDATES", (candidate,))
    monkeypatch.setattr("stages.proposal.public.fetch", fetch)
    return candidate


def runs_of(proposal: Proposal) -> dict[str, Run]:
    """Returns the runs of the proposed study, which has no fault."""
    params = study_of(proposal)
    assert [*find_faults(params)] == []
    return params.runs


def test_propose_leaves_the_checkpoint_out_if_it_is_told_to(small: Candidate) -> None:
    proposal = proposed("a.csv", minutes=600, published=False)
    assert small.key not in runs_of(proposal) and small.entry.package not in proposal.text
    assert not small.folder.exists()


def test_propose_goes_on_without_a_checkpoint_that_cannot_be_fetched(
    small: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(entry: PackagedCheckpoint, folder: Path) -> None:
        raise ValueError(f"package: {entry.package} cannot be downloaded")

    monkeypatch.setattr("stages.proposal.public.fetch", fail)
    proposal = proposed("a.csv", minutes=600, published=None)
    assert small.key not in runs_of(proposal)
    assert any(f"{small.entry.package} cannot be downloaded" in note for note in proposal.notes)
    with pytest.raises(ValueError, match="cannot be downloaded"):
        proposed("a.csv", minutes=600, published=True)


@pytest.mark.parametrize("published", [None, True])
def test_propose_takes_a_checkpoint_if_time_allows(
    small: Candidate, published: bool | None
) -> None:
    proposal = proposed("a.csv", minutes=600, published=published)
    run = runs_of(proposal)[small.key]
    assert proposal.study.design.published and "Apache-2.0" in proposal.text
    assert run.as_published and run.architecture["path"] == str(small.folder)
    packaged = load(Path("params.yaml")).packaged_checkpoints
    assert packaged == {small.key: small.entry} and run.architecture["revision"] == small.revision
    own = load(Path("params.yaml")).finetune.methods["full"].of(small.key).training
    assert own is not None and own.model_dump().items() >= PUBLISHED.items()
    short = proposed("a.csv", minutes=0.1, published=True)
    assert small.key not in runs_of(short) and "--minutes" in short.text


def test_propose_probes_the_checkpoint_alone_where_time_is_short(small: Candidate) -> None:
    only = list[list[str] | None]()
    for minutes in (15, 600):
        assert small.key in runs_of(proposed("a.csv", minutes=minutes, published=True))
        only.append(load(Path("params.yaml")).finetune.methods["linear_probe"].only)
    assert only == [[small.key], None]


def test_propose_offers_no_checkpoint_for_texts_in_another_script(small: Candidate) -> None:
    lines = ["text,label"]
    lines += [f"\u0445\u043e\u0440\u043e\u0448\u043e {i},{'ab'[i % 2]}" for i in range(120)]
    Path("b.csv").write_text("\n".join(lines))
    proposal = proposed("b.csv", minutes=600, published=None)
    assert small.key not in runs_of(proposal) and small.entry.package not in proposal.text
