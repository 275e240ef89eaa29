"""A dataset of the Hugging Face hub, or a local folder in its layout, read with ``datasets``.

The hub's cache, HF_HOME and HF_HUB_OFFLINE are respected: files are downloaded once. No code of a
dataset runs.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from stages.core.artifacts import Json
from stages.core.components import unknown
from stages.core.paths import COMMIT, ON_THE_HUB
from stages.sources._columns import NONE, TEXT, Columns, Placed, RecordSource
from stages.tasks._task import Split, Task

CARD = "README.md"
REACHED_WITHIN_S = 5.0
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # set before anything reads it


class Hub(RecordSource):
    """Documents or examples of a dataset whose files are parquet, csv, tsv, jsonl, json or txt.

    ``dataset`` is a name on the hub (stanfordnlp/sst2) and ``revision`` the full hash of a commit,
    since a branch or a tag can be moved. ``path`` is what DVC watches: the lock file, which decides
    the version of ``datasets``, or with ``dataset: none`` the local folder.

    ``config`` is a configuration in the dataset's README.md or, if it lists none, a subfolder.
    ``train``, ``validation`` and ``test`` are the dataset's names of the splits; one that is
    ``none`` is drawn from train (``Columns``). Numbers of classes are replaced by their names.

    Raises ValueError for a dataset that cannot be downloaded, and for a row that is no example.
    """

    def __init__(
        self,
        naming: Columns,
        *,
        path: str,
        dataset: str = NONE,
        revision: str = NONE,
        config: str = NONE,
        train: str = "train",
        validation: str = "validation",
        test: str = "test",
    ) -> None:
        self.columns, self.path, self.config = naming, Path(path), config
        self.dataset, self.revision = dataset, revision
        self.title = path if dataset == NONE else dataset
        named: dict[Split, str] = {"train": train, "validation": validation, "test": test}
        self.splits = {split: name for split, name in named.items() if name != NONE}
        naming.check_draw(self.given)
        if train == NONE:
            raise ValueError("train: name the dataset's split; the others can be drawn from it")
        if not self.path.exists():
            raise ValueError(f"path: no such file or folder: {path}")
        if (dataset == NONE) != self.path.is_dir():
            raise ValueError(
                f"path: {path} is {'no' if dataset == NONE else 'a'} folder; it is the folder with "
                "the data, or for a `dataset` on the hub the lock file (requirements.lock)"
            )
        if dataset != NONE and not (ON_THE_HUB.fullmatch(dataset) and COMMIT.fullmatch(revision)):
            raise ValueError(
                f"revision: must be all 40 digits of a commit of {dataset}, not {revision!r}; "
                f"`git ls-remote https://huggingface.co/datasets/{dataset} HEAD` prints it, to be "
                "set as `revision: HASH`"
            )

    @property
    def given(self) -> Collection[Split]:
        return self.splits

    def versions(self) -> dict[str, str]:
        return {} if self.dataset == NONE else {self.dataset: self.revision}

    def check(self, kind: Task | None) -> None:
        """Reads the first row of each split of a folder; the hub is not asked before the stage."""
        if self.dataset == NONE:
            super().check(kind)

    def parts(self, kind: Task | None) -> Iterator[Iterator[Placed]]:
        return (self._placed(split, name, kind or TEXT) for split, name in self.splits.items())

    def _placed(self, split: Split, name: str, kind: Task) -> Iterator[Placed]:
        if name not in self._tables:
            raise ValueError(
                f"{split}: {self.title}: {unknown(name, [*self._tables])}; {NONE} draws it "
                "from train"
            )
        table = self._tables[name]
        features, known = table.features or {}, {*(table.column_names or ())}
        columns = [*self.columns.of(kind).values(), self.columns.group, self.columns.time]
        names = {n for name in columns for n in ([name] if isinstance(name, str) else name)}
        wanted = {n if n in known else n.partition(".")[0] for n in names - {NONE}}
        if wanted <= known:  # without the others, since pictures and sounds would be decoded
            table = table.select_columns(sorted(wanted))
        for number, cells in enumerate(table, 1):
            place = f"{self.title} {name} row {number}"
            named = {key: _named(cells[key], features.get(key), place, key) for key in cells}
            yield Placed(f"{name}:{number}", split, place, named, kind)

    @cached_property
    def _tables(self) -> Mapping[str, Any]:
        """The splits by their names in the dataset; rows are streamed from the files."""
        import datasets  # the import takes seconds
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        datasets.disable_progress_bars()
        datasets.logging.set_verbosity(datasets.logging.CRITICAL)
        folder = self.path
        if self.dataset != NONE:
            chosen = self._chosen(self._fetched([CARD]))
            files = [f"{chosen['data_dir']}/*"] if "data_dir" in chosen else _paths(chosen)
            folder = self._fetched([CARD, *files] if files else None)
        return datasets.load_dataset(str(folder), streaming=True, **self._chosen(folder))

    def _fetched(self, patterns: list[str] | None) -> Path:
        """Returns the folder, with all files that match the patterns (None: any)."""
        from huggingface_hub import HfApi, snapshot_download

        request: Json = {"revision": self.revision, "repo_type": "dataset"}
        request["allow_patterns"] = patterns
        with suppress(OSError):  # not in the cache, or not whole
            return Path(snapshot_download(self.dataset, local_files_only=True, **request))
        try:
            # One request first, since without a network the download would try for half a minute.
            HfApi().dataset_info(self.dataset, revision=self.revision, timeout=REACHED_WITHIN_S)
            return Path(snapshot_download(self.dataset, **request))
        except Exception as error:  # a network fails in many ways
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ValueError(
                f"dataset: {self.dataset} at revision {self.revision} is not in the cache, nor can "
                f"it be downloaded: {reason}\nWithout a network, fill the cache elsewhere "
                f"(`hf download --repo-type dataset {self.dataset} --revision {self.revision}`) "
                "and set HF_HOME to a copy of it"
            ) from None

    def _chosen(self, folder: Path) -> Json:
        """Returns the arguments of ``load_dataset`` that choose the configuration: one that the
        card lists, or else a subfolder."""
        from huggingface_hub import DatasetCard

        card = folder / CARD
        listed = DatasetCard.load(card).data.get("configs") if card.is_file() else None
        configs = {str(config["config_name"]): config for config in listed or ()}
        if not configs:
            return {} if self.config == NONE else {"data_dir": self.config}
        name = self.config
        if name == NONE:
            defaults = [
                n for n, config in configs.items() if config.get("default") or n == "default"
            ]
            name = [*defaults, *configs][0] if defaults or len(configs) == 1 else NONE
        if name not in configs:
            raise ValueError(f"config: {unknown(name, [*configs])}")
        # Without its files, the library looks for those of the first configuration, too.
        files = configs[name].get("data_files")
        return {"name": name} | ({"data_files": files} if files else {})


def _paths(files: Any) -> list[str]:
    """Returns the paths in the ``data_files`` of a configuration, which are a path, a list of
    paths, or a path or a list for each split."""
    if isinstance(files, Mapping):
        return _paths(files.get("data_files", files.get("path", [])))
    return [files] if isinstance(files, str) else [path for each in files for path in _paths(each)]


def _named(value: Any, feature: Any, place: str, column: str) -> Any:
    """Returns ``value`` with the names of classes in place of the dataset's numbers."""
    if isinstance(value, list):
        inner = getattr(feature, "feature", None)
        return [_named(each, inner, place, column) for each in value]
    names = getattr(feature, "names", None)
    if names is None or type(value) is not int:
        return value
    if not 0 <= value < len(names):
        hidden = "; -1 says that they are hidden: take another split" if value == -1 else ""
        labels = ", ".join(names)
        raise ValueError(
            f"{place}: {column} is {value}, which is none of the labels {labels}{hidden}"
        )
    return names[value]
