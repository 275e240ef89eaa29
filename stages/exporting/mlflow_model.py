"""A kept trial as a model of MLflow, for ``mlflow.pyfunc.load_model``.

The folder of the model holds the study's files that the trial needs, at their paths in the study,
and the project's code. torch is imported only when a model is loaded, because the report imports
this module.
"""

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stages.baselines import _kept
from stages.core import paths
from stages.core.artifacts import Json, read_json, write_json
from stages.core.keys import RunKey
from stages.kinds._inputs import Columns, input_of
from stages.kinds._kind import KINDS

if TYPE_CHECKING:
    import pandas as pd

    from stages.trials.new_rows import NewRow

Predictions = Callable[[Iterable["NewRow"]], Iterator[Json]]

_lock = threading.Lock()


def _load_pyfunc(path: str) -> "KeptModel":
    """Loads the model in ``path``. MLflow expects a function of this name."""
    return KeptModel(Path(path).resolve())


class KeptModel:
    """A loaded trial, of a run or of a baseline, which predicts the rows of tables.

    Raises ValueError for files that do not belong together.
    """

    def __init__(self, folder: Path) -> None:
        records = [*(folder / paths.BASELINES).glob(f"*/{_kept.KEPT}/*.json")]
        examples, self._predictions = _baseline(folder, *records) if records else self._run(folder)
        self._columns = Columns.of(examples)

    def _run(self, folder: Path) -> tuple[Path, Predictions]:
        """Loads a run's trial. Returns the folder of its task and the function that predicts
        rows."""
        from stages.trials import kept
        from stages.trials.new_rows import Abstention, device_for, predictions

        (weights,) = (folder / paths.FINETUNED).glob("*/*/weights/*.safetensors")
        trial = kept.read(weights)
        self._renamed = tempfile.TemporaryDirectory()
        runs = _runs(folder / paths.PRETRAINED, trial.checkpoint, Path(self._renamed.name))
        with _files_in(runs, folder / paths.TASKS):
            setup = kept.setup_of(trial, weights)
        device = device_for(trial, "auto")
        model = kept.rebuilt(trial, setup, weights).to(device.torch)
        every = Abstention()
        return setup.examples, lambda rows: predictions(trial, setup, model, rows, device, every)

    def predict(self, model_input: "pd.DataFrame") -> "pd.DataFrame":
        """Returns the prediction of each row, in the columns of ``stages.commands.predict``.

        Raises ValueError for a cell that is missing, empty or of the wrong type.
        """
        import pandas as pd

        from stages.trials.new_rows import NewRow

        rows = [
            NewRow({}, {"id": str(number), **self._inputs(cells, f"row {number}")})
            for number, cells in enumerate(model_input.to_dict("records"))
        ]
        return pd.DataFrame(list(self._predictions(rows)), index=model_input.index)

    def _inputs(self, cells: dict[str, object], place: str) -> Json:
        import pandas as pd

        inputs, kind = {}, KINDS[self._columns.kind]
        for key in (*self._columns.inputs, *self._columns.optional):
            value = cells.get(key)
            if isinstance(value, np.ndarray):  # words read from parquet
                value = value.tolist()
            if pd.api.types.is_scalar(value) and pd.isna(value):
                if key in self._columns.inputs:
                    raise ValueError(f"{place}: {key} is missing")
                continue
            inputs[key] = input_of(value, f"{place}: {key}", kind, key)
        return inputs


def _baseline(folder: Path, record: Path) -> tuple[Path, Predictions]:
    """Fits a baseline's trial again. Returns the folder of its task and the function that predicts
    rows."""
    from stages.trials.new_rows import Abstention, baseline_predictions

    examples = folder / paths.examples(_kept.read(record).task)
    baseline, kind = _kept.refit(record, examples)
    return examples, lambda rows: baseline_predictions(baseline, kind, rows, Abstention())


def _runs(runs: Path, checkpoint: RunKey, renamed: Path) -> Path:
    """Returns ``runs``; for a public checkpoint ``renamed``, with links to the run's files and a
    ``run.json`` that has the checkpoint's present path."""
    place = Path(checkpoint.run, str(checkpoint.pretrain_seed))
    record = read_json(runs / place / "run.json")
    if "path" not in record["model"]:
        return runs
    (renamed / place).mkdir(parents=True)
    for path in (runs / place).iterdir():
        if path.name != "run.json":
            (renamed / place / path.name).symlink_to(path)
    model = record["model"] | {"path": str(runs / place)}
    write_json(renamed / place / "run.json", record | {"model": model})
    return renamed


@contextmanager
def _files_in(runs: Path, tasks: Path) -> Iterator[None]:
    """Lets a ``TrialSetup`` that is made inside the context find its files in these folders."""
    with _lock:
        before = paths.PRETRAINED, paths.TASKS
        paths.PRETRAINED, paths.TASKS = runs, tasks
        try:
            yield
        finally:
            paths.PRETRAINED, paths.TASKS = before
