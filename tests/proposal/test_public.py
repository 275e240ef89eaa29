"""The published checkpoint in a proposed study: there or said how to get, and its cost counted."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stages.checking.faults import find_faults
from stages.core.params import load
from stages.proposal.propose import Proposal
from stages.text.packaged import ALL_MINILM, Packaged
from tests.labelled_files import classified, proposed
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packaged:
    """A small checkpoint that could be fetched; a labelled file."""
    monkeypatch.chdir(tmp_path)
    Path("requirements.lock").write_text("")
    Path("a.csv").write_text(classified())
    files = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in checkpoint("bert").iterdir()
    }
    made = replace(
        ALL_MINILM,
        files=files,
        revision=revision_of(checkpoint("bert")),
        max_positions=MAX_POSITIONS,
    )
    for module in ("stages.proposal.public", "stages.models._published_checkpoint"):
        monkeypatch.setattr(f"{module}.PACKAGED", [made])
    return made


def runs_of(proposal: Proposal) -> dict[str, object]:
    """The runs of the written file, in which nothing is wrong."""
    Path("params.yaml").write_text(proposal.text)
    params = load(Path("params.yaml"))
    assert [*find_faults(params)] == []
    return {**params.pretrain}


def test_where_it_is_not_there_the_file_says_how_to_get_it(small: Packaged) -> None:
    proposal = proposed("a.csv", minutes=600)
    assert small.key not in runs_of(proposal) and not proposal.study.design.published
    for part in ("make setup EXTRA=published", str(small.folder), "tuned on sentence"):
        assert part in proposal.text.replace("\n#   ", " ")


def test_where_it_is_there_it_is_a_candidate_if_time_allows(small: Packaged) -> None:
    shutil.copytree(checkpoint("bert"), small.folder)
    with_it = proposed("a.csv", minutes=600)
    assert small.key in runs_of(with_it) and with_it.study.design.published
    assert "Apache-2.0" in with_it.text
    short = proposed("a.csv", minutes=0.1)
    assert small.key not in runs_of(short) and "--minutes" in short.text
    assert "make setup" not in short.text


def test_texts_in_another_script_are_not_for_it(small: Packaged) -> None:
    shutil.copytree(checkpoint("bert"), small.folder)
    lines = ["text,label"]
    lines += [f"\u0445\u043e\u0440\u043e\u0448\u043e {i},{'ab'[i % 2]}" for i in range(120)]
    Path("b.csv").write_text("\n".join(lines))
    proposal = proposed("b.csv", minutes=600)
    assert small.key not in runs_of(proposal) and small.package not in proposal.text
