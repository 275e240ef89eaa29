"""Rules of imports that import-linter's layers (pyproject.toml) do not cover."""

import grimp
import pytest

from stages.core.components import Components

FOLDERS = (  # of components
    *("sources", "models", "objectives", "optimizers", "tasks", "methods", "baselines"),
)


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("stages", cache_dir=None)


@pytest.mark.parametrize("folder", FOLDERS)
def test_components_never_import_one_another(folder: str, imports: grimp.ImportGraph) -> None:
    components = {f"stages.{folder}.{name}" for name in Components(folder).names()}
    assert components
    for component in components:
        neighbours = imports.find_modules_directly_imported_by(component) & components
        assert not neighbours, f"{component} imports {neighbours}; share it in a _file.py"
