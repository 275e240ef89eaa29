import pytest

from stages.reporting.comparison.results import Results, load
from tests.synthetic_study import raw_params, write_study


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Those of the synthetic study."""
    root = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return load(write_study(root, raw_params()))
