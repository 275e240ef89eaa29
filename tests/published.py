"""Where the published datasets lie that some tests read: beside the project, or STUDY_DATASETS."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "shared" / "datasets"
DATASETS = Path(os.environ.get("STUDY_DATASETS", BESIDE))
needs_datasets = pytest.mark.skipif(
    not DATASETS.is_dir(), reason=f"no published datasets in {DATASETS} (STUDY_DATASETS)"
)
