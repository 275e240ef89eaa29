"""Results of synthetic studies, as fixtures for tests of findings and of the report."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.findings.results import Results, load
from tests.synthetic_study import RUNS, raw_params, repeated, run, write_study


def loaded_in(folder: Path, raw: Mapping[str, Any]) -> Results:
    """Writes a study to the folder; returns its results."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return load(write_study(folder, raw))


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of the synthetic study."""
    return loaded_in(tmp_path_factory.mktemp("study"), raw_params())


@pytest.fixture(scope="session")
def five_seeds(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of four of its runs with five pretraining and three fine-tuning seeds."""
    names = ("encoder_mlm", "encoder_scratch", "decoder_causal", "encoder_scientific")
    raw = raw_params(repeated({name: RUNS[name] for name in names}, 5))
    raw["finetune"]["seeds"] = [1, 2, 3]
    return loaded_in(tmp_path_factory.mktemp("seeds"), raw)


@pytest.fixture(scope="session")
def three_sizes(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results of the synthetic study with one more size of its encoder."""
    raw = raw_params(RUNS | {"tiny": run("encoder", "mlm", d_model=48)})
    return loaded_in(tmp_path_factory.mktemp("sizes"), raw)


@pytest.fixture
def study_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Results]:
    """A function that writes a study of some runs, or of whole ``raw`` params, to the current
    folder, which is empty before, and returns the study's results."""
    monkeypatch.chdir(tmp_path)

    def study(runs: Mapping[str, Any] = RUNS, *, raw: Any = None, **options: Any) -> Results:
        return load(write_study(Path(), raw or raw_params(runs), **options))

    return study


def with_baseline_at(results: Results, value: float) -> Results:
    """Returns results in which each task's strongest baseline has this score in all trials."""
    trials = [replace(t, value=value) if t.run in ("crf", "tfidf") else t for t in results.trials]
    return replace(results, trials=trials)
