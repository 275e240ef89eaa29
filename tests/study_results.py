"""Results of synthetic studies, as fixtures for tests of findings and of the report."""

import pytest

from stages.findings.results import Results, load
from tests.synthetic_study import RUNS, raw_params, repeated, run, write_study


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Those of the synthetic study."""
    root = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return load(write_study(root, raw_params()))


@pytest.fixture(scope="session")
def five_seeds(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Four runs of it, each with five pretraining and three fine-tuning seeds."""
    root = tmp_path_factory.mktemp("seeds")
    names = ("encoder_mlm", "encoder_scratch", "decoder_causal", "encoder_scientific")
    raw = raw_params(repeated({name: RUNS[name] for name in names}, 5))
    raw["finetune"]["seeds"] = [1, 2, 3]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return load(write_study(root, raw))


@pytest.fixture(scope="session")
def three_sizes(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The synthetic study with one more size of its encoder."""
    root = tmp_path_factory.mktemp("sizes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return load(
            write_study(root, raw_params(RUNS | {"tiny": run("encoder", "mlm", d_model=48)}))
        )
