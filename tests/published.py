"""The folder of published datasets that some tests read: STUDY_DATASETS, or next to the project."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "shared" / "datasets"
DATASETS = Path(os.environ.get("STUDY_DATASETS", BESIDE))
needs_datasets = pytest.mark.skipif(
    not DATASETS.is_dir(), reason=f"no published datasets in {DATASETS} (STUDY_DATASETS)"
)
