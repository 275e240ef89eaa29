"""A dataset of the Hugging Face hub, or a local folder in its layout, read with ``datasets``.

The hub's cache, HF_HOME and HF_HUB_OFFLINE are respected. Data in the cache is not requested again,
and no code of a dataset runs.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from stages.core.artifacts import Json, refuse_endless
from stages.core.components import Settings, unknown
from stages.core.hub_names import COMMIT, ON_THE_HUB
from stages.core.yaml_size import MOST_BYTES, refuse_large
from stages.kinds._kind import Kind, Split
from stages.sources._columns import NONE, SCHEMA, TEXT, TIME, Columns, draws_test
from stages.sources._source import (
    Document,
    Labelled,
    Part,
    Source,
    drawn_from_train,
    text_parts,
)
from stages.sources._times import Cuts, cuts_of

CARD = "README.md"
SECOND_CARD = ".huggingface.yaml"  # its settings would replace those of the card
SUFFIXES = ("parquet", "csv", "tsv", "jsonl", "json", "txt")
READERS = ("csv", "json", "parquet", "text")  # the library's; others may follow links in files
DATA = [f"*.{suffix}{packed}" for suffix in SUFFIXES for packed in ("", ".gz")]
REACHED_WITHIN_S = 5.0

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # set before anything reads it


class Hub(Source):
    """Documents or examples of a dataset whose files are parquet, csv, tsv, jsonl, json or txt.

    ``dataset`` is a name on the hub (stanfordnlp/sst2) and ``revision`` the full hash of a commit,
    since a branch or a tag can be moved. ``path`` is what DVC watches: the lock file, which decides
    the version of ``datasets``, or with ``dataset: none`` the local folder.

    ``config`` is a configuration in the dataset's README.md or, if it lists none, a subfolder.
    ``train``, ``validation`` and ``test`` are the dataset's names of the splits; a split that is
    ``none`` is drawn from train by a hash, as for files. The settings of columns, ``group``,
    ``time`` and ``split_seed`` are those of files. A label that the dataset gives as a number is
    replaced by its name.

    Raises ValueError for data that cannot be loaded or read, and for a row that is no example.
    """

    is_read_in_parts = True
    schema = SCHEMA

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
        self.path, self.dataset, self.revision = Path(path), dataset, revision
        self.config = config
        self.title = path if dataset == NONE else dataset
        self._read = naming
        named: dict[Split, str] = {"train": train, "validation": validation, "test": test}
        self.splits: dict[Split, str] = {
            split: name for split, name in named.items() if name != NONE
        }
        self._cuts: dict[Kind, Cuts] = {}
        naming.check_draw(self.splits)
        _refuse_outside(config, "config: the files")
        if train == NONE:
            raise ValueError("train: name the dataset's split; the others can be drawn from it")
        if not self.path.exists():
            raise ValueError(f"path: no such file or folder: {path}")
        refuse_endless(self.path)
        if dataset == NONE:
            _refuse_no_folder(self.path, revision)
        else:
            _refuse_unpinned(dataset, revision, self.path)

    @classmethod
    def draws_test(cls, settings: Settings) -> bool:
        return draws_test(settings)

    def versions(self) -> dict[str, str]:
        return {} if self.dataset == NONE else {self.dataset: self.revision}

    def check(self, kind: Kind | None) -> None:
        """Reads a folder up to the first row of each split; a dataset on the hub is not requested
        before its own stage."""
        if self.dataset != NONE:
            return
        for split in self.splits:
            next(self._examples(split, kind or TEXT), None)

    def documents(self) -> Iterator[Document]:
        return chain.from_iterable(part.documents() for part in self.parts())

    def examples(self, kind: Kind) -> Iterator[Labelled]:
        return chain.from_iterable(self._examples(split, kind) for split in self.splits)

    def parts(self) -> Iterator[Part]:
        return text_parts((e.id, e.split, e.row["text"]) for e in self.examples(TEXT))

    def _examples(self, split: Split, kind: Kind) -> Iterator[Labelled]:
        name = self.splits[split]
        for number, cells, place, row in self._rows(split, kind):
            group, time = self._read.group_of(cells, place), self._read.time_of(cells, place)
            if time is not None:
                drawn = self._cuts_of(kind).split_of(time.value)
            else:
                key = kind.group_key(row) if group is None else group
                drawn = drawn_from_train(split, key, self.splits, self._read.split_seed)
            yield Labelled(f"{name}:{number}", drawn, row, group=group, time=time)

    def _cuts_of(self, kind: Kind) -> Cuts:
        """Returns the cuts between splits that are drawn by time. The times of all rows are read
        first."""
        if kind not in self._cuts:
            rows = self._rows("train", kind)
            times = (
                (time, place)
                for _, cells, place, _ in rows
                if (time := self._read.time_of(cells, place)) is not None
            )
            self._cuts[kind] = cuts_of(times, self._read.name_of(TIME))
        return self._cuts[kind]

    def _rows(self, split: Split, kind: Kind) -> Iterator[tuple[int, Json, str, Json]]:
        """Yields the number, the cells, the place and the row of each record, except for records
        that the settings leave out."""
        name = self.splits[split]
        if name not in self._loaded:
            raise ValueError(
                f"{split}: {self.title}: {unknown(name, list(self._loaded))}; {NONE} draws it "
                "from train"
            )
        table = self._loaded[name]
        columns = self._read.names(kind)
        rows = _guarded(iter(table), f"{self.title} {name}")
        for number, cells in enumerate(rows, 1):
            place = f"{self.title} {name} row {number}"
            row = self._read.row(_named(cells, table.features, columns, place), kind, place)
            if row is not None:
                yield number, cells, place, row

    @cached_property
    def _loaded(self) -> Mapping[str, Any]:
        """The splits by their names in the dataset; rows are streamed from the files."""
        folder = self._folder()
        import datasets  # the import takes seconds

        datasets.disable_progress_bars()
        # The library also raises the errors that it logs.
        datasets.logging.set_verbosity(datasets.logging.CRITICAL)
        configs = _configs(folder)
        chosen = self._chosen(configs)
        where: Json = {"data_dir": self.config} if self.config != NONE else {}
        if chosen:
            where = {"name": chosen}
            if "data_dir" not in configs[chosen]:
                # Otherwise the library looks for files of the first configuration, too.
                where["data_files"] = configs[chosen].get("data_files")
        try:
            builder = datasets.load_dataset_builder(str(folder), **where)
            if builder.info.builder_name not in READERS:
                raise ValueError(f"its files must be one of {', '.join(SUFFIXES)}")
            tables = builder.as_streaming_dataset()
            return {name: _with_stored_media(table) for name, table in tables.items()}
        except Exception as error:  # readers of data raise many kinds of errors
            raise ValueError(f"{self._key}: {self.title} cannot be read: {_line(error)}") from None

    def _folder(self) -> Path:
        """Returns the folder with the data: the local folder, or the hub's cache, into which
        missing files are downloaded."""
        if self.dataset == NONE:
            return self.path
        configs = _configs(self._fetched([]))
        return self._fetched(self._patterns(configs))

    def _patterns(self, configs: dict[str, Json]) -> list[str]:
        """Returns patterns of the files that the configuration needs."""
        if not configs and self.config != NONE:
            return [f"{self.config}/*"]
        chosen = self._chosen(configs)
        if chosen and all("data_files" in c and "data_dir" not in c for c in configs.values()):
            return _paths(configs[chosen]["data_files"])
        return DATA  # the library looks into the folders of all configurations

    def _chosen(self, configs: dict[str, Json]) -> str | None:
        """Returns the name of the configuration, or None if the dataset lists none.

        Raises ValueError if ``config`` is not listed, or if several are listed and none is the
        default.
        """
        if not configs or self.config in configs:
            return self.config if configs else None
        if self.config != NONE:
            raise ValueError(f"config: {unknown(self.config, list(configs))}")
        flagged = [name for name, config in configs.items() if config.get("default")]
        if len(configs) > 1 and not flagged and "default" not in configs:
            raise ValueError(f"config: name one of {', '.join(configs)}")
        return [*flagged, *({"default"} & configs.keys()), *configs][0]

    def _fetched(self, patterns: list[str]) -> Path:
        """Returns the dataset's folder in the hub's cache, with README.md and the files that match
        ``patterns``."""
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        request: Json = {
            "repo_type": "dataset",
            "revision": self.revision,
            "allow_patterns": [CARD, *patterns],
        }
        try:
            folder = Path(snapshot_download(self.dataset, local_files_only=True, **request))
            present = [any(folder.glob(f"**/{pattern}")) for pattern in patterns]
            if any(present) if patterns is DATA else all(present):
                return folder
        except Exception:  # the cache has no such dataset, or only a part
            pass
        try:
            # One request first, since without a network the download would try for half a minute.
            HfApi().dataset_info(self.dataset, revision=self.revision, timeout=REACHED_WITHIN_S)
            return Path(snapshot_download(self.dataset, **request))
        except Exception as error:  # a network fails in many ways
            raise ValueError(
                f"dataset: {self.dataset} at revision {self.revision} is not in the cache nor can "
                f"be downloaded: {_line(error)}\nWithout a network, fill the cache elsewhere (`hf "
                f"download --repo-type dataset {self.dataset} --revision {self.revision}`) and "
                f"set HF_HOME to a copy of it, or give the folder of the dataset as `path` with "
                f"`dataset: {NONE}`"
            ) from None

    @property
    def _key(self) -> str:
        """The setting to name in an error about the data."""
        return "path" if self.dataset == NONE else "dataset"


def _with_stored_media(table: Any) -> Any:
    """Returns the table with pictures, sounds and other media left undecoded. To decode them, the
    library would open the files and request the addresses that the rows name."""
    from datasets import Features

    if table.features is None:
        return table
    features = Features(_undecoded(dict(table.features)))
    return table if features == table.features else table.cast(features)


def _undecoded(feature: Any) -> Any:
    """Returns a feature, or a dict or list of features, that leaves media undecoded."""
    if isinstance(feature, dict):
        return {key: _undecoded(each) for key, each in feature.items()}
    if isinstance(feature, list | tuple):
        return [*map(_undecoded, feature)]
    if hasattr(feature, "feature"):
        return replace(feature, feature=_undecoded(feature.feature))
    if hasattr(feature, "decode") and type(feature).__name__ != "Json":
        return replace(feature, decode=False)
    return feature


def _refuse_no_folder(path: Path, revision: str) -> None:
    if not path.is_dir():
        raise ValueError(
            f"path: {path} is no folder; to use a dataset on the hub, name it in `dataset`"
        )
    if revision != NONE:
        raise ValueError(
            f"revision: must be {NONE}, not {revision!r}: DVC watches the content of a folder"
        )
    for parent, folders, files in os.walk(path):
        for link in (Path(parent, name) for name in (*folders, *files)):
            target = Path(os.path.realpath(link))
            if link.is_symlink() and not target.is_relative_to(path.resolve()):
                raise ValueError(f"path: {link} is a link out of {path}; copy what it links to")


def _refuse_unpinned(dataset: str, revision: str, path: Path) -> None:
    if not ON_THE_HUB.fullmatch(dataset):
        raise ValueError(
            f"dataset: cannot be a name on the hub such as stanfordnlp/sst2: {dataset!r}"
        )
    if not COMMIT.fullmatch(revision):
        raise ValueError(
            f"revision: must be the hash of a commit of {dataset} (all 40 digits; branches and "
            f"tags can be moved), not {revision!r}; `python -m stages.commands.pin` asks the hub "
            f"for it and writes it"
        )
    if path.is_dir():
        raise ValueError(
            f"path: {path} is a folder, but the data is {dataset} of the hub; name the lock file "
            f"(requirements.lock), or leave `dataset` out"
        )


def _configs(folder: Path) -> dict[str, Json]:
    """Returns the configurations that a dataset's README.md lists."""
    from huggingface_hub import DatasetCard

    card, second = folder / CARD, folder / SECOND_CARD
    if os.path.lexists(second):
        raise ValueError(f"{second}: is not read; move its settings into {card}")
    if not card.is_file():
        return {}
    try:
        _refuse_large_header(card)
        listed = DatasetCard.load(card).data.to_dict().get("configs") or []
        configs = {str(config["config_name"]): config for config in listed}
        named = [
            str(name)
            for config in configs.values()
            for key in ("data_files", "data_dir")
            for name in _paths(config.get(key) or [])
        ]
    except Exception as error:  # YAML and its readers raise many kinds of errors
        reason = _line(error).removeprefix(f"{card}: ")
        raise ValueError(f"{card}: no card of a dataset: {reason}") from None
    for name in named:
        _refuse_outside(name, f"{card}: its files")
    return configs


def _refuse_large_header(card: Path) -> None:
    """Raises ValueError for a card whose header would fill the memory once it is parsed."""
    import yaml
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    if card.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    with card.open(encoding="utf-8-sig", newline="") as file:
        header = REGEX_YAML_BLOCK.search(file.read())
    if header:
        refuse_large(yaml.parse(f"\n{header[2]}", Loader=yaml.SafeLoader), card)


def _refuse_outside(name: str, what: str) -> None:
    """Raises ValueError for files that are not in the dataset's folder: DVC watches the folder
    alone, so that a change of other files would rerun nothing. A colon is refused, since it may end
    the name of a file system, as in file:/etc and zip://a.csv::/b.zip."""
    if ":" in name or PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(
            f"{what} must be in the folder of the dataset, not {name!r}; copy them into it"
        )


def _paths(files: Any) -> list[str]:
    """Returns the paths in a configuration's ``data_files``, which is a path, a list of paths, or a
    path or a list for each split."""
    all_paths: list[str] = []
    for item in files if isinstance(files, list) else [files]:
        paths = item["path"] if isinstance(item, Mapping) else item
        all_paths += paths if isinstance(paths, list) else [paths]
    return all_paths


def _named(cells: Settings, features: Settings | None, columns: list[str], place: str) -> Json:
    """Returns ``cells`` with the names of classes in place of their numbers in ``columns``. For a
    field of objects (``column.field``) the whole column is changed."""
    used = {column if column in cells else column.split(".")[0] for column in columns}
    named = {
        column: _by_name(cells[column], (features or {}).get(column), f"{place}: {column}")
        for column in used & cells.keys()
    }
    return {**cells, **named}


def _by_name(value: Any, feature: Any, place: str) -> Any:
    """Returns ``value`` with the names of classes in place of the dataset's numbers.

    Raises ValueError for a number that is no class, such as -1 for hidden labels.
    """
    names = getattr(feature, "names", None)
    if names is not None and type(value) is int:
        if not 0 <= value < len(names):
            raise ValueError(
                f"{place} is {value}, which is none of the labels {', '.join(names)}"
                + ("; -1 says that they are hidden: take another split" if value == -1 else "")
            )
        return names[value]
    if isinstance(value, list):
        inner = getattr(feature, "feature", None)
        return [_by_name(each, inner, f"{place}[{i}]") for i, each in enumerate(value)]
    if isinstance(value, dict) and isinstance(feature, Mapping):
        return {key: _by_name(each, feature.get(key), place) for key, each in value.items()}
    return value


def _guarded(rows: Iterator[Any], place: str) -> Iterator[Any]:
    """Yields the rows; errors of their reader are raised as ValueError."""
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:  # readers of data raise many kinds of errors
            raise ValueError(f"{place} cannot be read: {_line(error)}") from None
        yield row


def _line(error: Exception) -> str:
    """Returns the message of an error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
