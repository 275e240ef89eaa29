import pytest

from stages.reporting.comparison.results import Results, load
from tests.synthetic_study import RUNS, raw_params, run, write_study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Those of the synthetic study."""
    root = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return load(write_study(root, raw_params()))


@pytest.fixture(scope="module")
def three_sizes(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The synthetic study with one more size of its encoder."""
    root = tmp_path_factory.mktemp("sizes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return load(
            write_study(root, raw_params(RUNS | {"tiny": run("encoder", "mlm", d_model=48)}))
        )
