"""A proposed study has a published checkpoint if it can be fetched and time allows."""

import shutil
from pathlib import Path

import pytest

from stages.checking.faults import find_faults
from stages.core import paths
from stages.core.params import Model, PackagedCheckpoint
from stages.core.study_file import load
from stages.proposal.checkpoints import PUBLISHED, candidates
from stages.proposal.study import Study
from tests.hub_server import COMMIT, hub
from tests.labelled_files import classified, proposed, study_of
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of

KEY, MULTILINGUAL = "all_minilm_l6_v2", "multilingual_e5_small"
ENTRY = PUBLISHED[KEY]
PACKAGE = ENTRY["package"]["package"]
TWIN = f"{KEY}_scratch"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offers a small checkpoint to fetch, and no hub; writes a labelled file."""
    Path("a.csv").write_text(classified())
    monkeypatch.setitem(ENTRY, "revision", revision_of(checkpoint("bert")))
    monkeypatch.setitem(ENTRY, "tokens", MAX_POSITIONS)
    monkeypatch.setitem(PUBLISHED[MULTILINGUAL], "name", "own/bert")
    monkeypatch.setitem(PUBLISHED[MULTILINGUAL], "revision", COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(
        "stages.proposal.checkpoints.fetch",
        lambda entry, folder: shutil.copytree(checkpoint("bert"), folder),
    )


def runs_of(proposal: Study) -> dict[str, Model]:
    """Returns the runs of the proposed study, which has no fault."""
    params = study_of(proposal)
    assert [*find_faults(params)] == []
    return params.models


def test_propose_leaves_the_checkpoint_out_if_it_is_told_to() -> None:
    proposal = proposed("a.csv", minutes=600, published=False)
    assert KEY not in runs_of(proposal) and PACKAGE not in proposal.text
    assert not (paths.CHECKPOINTS / KEY).exists()


def test_propose_goes_on_without_a_checkpoint_that_cannot_be_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(entry: PackagedCheckpoint, folder: Path) -> None:
        raise ValueError(f"package: {entry.package} cannot be downloaded")

    monkeypatch.setattr("stages.proposal.checkpoints.fetch", fail)
    proposal = proposed("a.csv", minutes=600, published=None)
    assert KEY not in runs_of(proposal)
    assert any(f"{PACKAGE} cannot be downloaded" in note for note in proposal.notes)
    with pytest.raises(ValueError, match="cannot be downloaded"):
        proposed("a.csv", minutes=600, published=True)


@pytest.mark.parametrize(
    ("minutes", "models", "methods"),
    [
        (0.1, {KEY}, {"linear_probe"}),
        (1.7, {KEY}, {"full", "linear_probe"}),
        (3.5, {KEY, TWIN}, {"full", "linear_probe"}),
        (600, {KEY, TWIN, "encoder_mlm", "decoder_scratch"}, {"full", "linear_probe"}),
    ],
)
def test_propose_takes_a_checkpoint_and_what_time_allows_besides(
    minutes: float, models: set[str], methods: set[str]
) -> None:
    proposal = proposed("a.csv", minutes=minutes, published=minutes < 600 or None)
    runs = runs_of(proposal)
    params = load(Path("params.yaml"))
    assert {*runs} >= models and len(runs) == len(models) + 2 * (minutes == 600)
    assert params.finetune.methods.keys() == methods
    assert ("for want of time" in proposal.text) == (minutes < 600)
    assert runs[KEY].as_published and runs[KEY].architecture["path"] == str(paths.CHECKPOINTS / KEY)
    assert params.packaged_checkpoints == {KEY: PackagedCheckpoint(**ENTRY["package"])}
    for name in (models & {KEY, TWIN}) if "full" in methods else ():
        tuned = params.finetune.methods["full"].of(name).training
        assert tuned is not None and tuned.model_dump().items() >= ENTRY["training"].items()


def test_propose_pretrains_nothing_for_texts_in_another_script_and_offers_no_checkpoint() -> None:
    lines = ["text,label"]
    lines += [f"\u0445\u043e\u0440\u043e\u0448\u043e {i},{'ab'[i % 2]}" for i in range(120)]
    Path("b.csv").write_text("\n".join(lines))
    proposal = proposed("b.csv", minutes=600, published=None)
    assert {run.objective["name"] for run in runs_of(proposal).values()} == {"none"}
    assert KEY not in runs_of(proposal) and PACKAGE not in proposal.text


@pytest.mark.parametrize(
    ("shares", "latin", "keys"),
    [
        ({"en": 0.97, "de": 0.03}, 1.0, [KEY, MULTILINGUAL]),
        ({"en": 0.6, "de": 0.4}, 1.0, [MULTILINGUAL, KEY]),
        ({"ru": 1.0}, 0.1, [MULTILINGUAL]),
        ({}, 0.1, [MULTILINGUAL]),
    ],
)
def test_candidates_are_sorted_by_the_share_of_texts_whose_language_they_know(
    shares: dict[str, float], latin: float, keys: list[str]
) -> None:
    assert [entry["key"] for entry in candidates(shares, latin, MAX_POSITIONS)] == keys
    assert MULTILINGUAL not in [entry["key"] for entry in candidates(shares, latin, 1024)]


def write_german() -> None:
    rows = [f"Die Rechnung {i} ist noch nicht gekommen,{'ab'[i % 2]}" for i in range(120)]
    Path("b.csv").write_text("\n".join(["text,label", *rows]))


def test_propose_takes_a_checkpoint_of_the_hub_that_knows_the_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is huggingface_hub's own; it asks a server on this machine."""
    write_german()
    files = {file.name: file.read_bytes() for file in checkpoint("bert").iterdir()}
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with hub("models", "own/bert", files) as (endpoint, sent):
        template = f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        proposal = proposed("b.csv", minutes=600, published=True)
    assert "model.safetensors" in sent
    models = runs_of(proposal)
    assert KEY not in models and models[MULTILINGUAL].as_published
    assert models[MULTILINGUAL].architecture["path"] == "own/bert"
    assert not study_of(proposal).packaged_checkpoints
    assert not any("English alone" in note for note in proposal.notes)


def test_propose_says_without_a_hub_that_the_checkpoint_knows_english_alone() -> None:
    write_german()
    proposal = proposed("b.csv", minutes=600, published=True)
    assert proposal.checkpoint == ENTRY
    assert any("German" in note for note in proposal.notes)
    (note,) = (note for note in proposal.notes if "English alone, but 100%" in note)
    assert "own/bert: the hub cannot be reached" in note
