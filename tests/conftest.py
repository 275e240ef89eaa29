"""Every signature in stages/ is checked in every test: types by beartype, shapes by jaxtyping.

Tests run in parallel, in one process per core. Each process has one thread: more would only wait.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Set before torch is imported. As in dvc.yaml, threads that wait for others soon stop spinning.
os.environ |= {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
# multiprocessing's server of forks imports modules in advance. In Python 3.11 it searches the
# current folder, which most tests change, but not sys.path.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)
# Below `nohup` or `&` of a script SIGINT is ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until all tests are imported: all objects that imports make are kept

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from tests import checker  # noqa: E402

checker.install()

from tests.browser import browser_command  # noqa: E402

# How long an example takes depends on the machine.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# The slowest files, in this order. The first two start together, so only one of them may clone the
# smoke study: two clones would read the same packages.
SLOWEST = (
    *("test_study", "test_edits", "test_experiments", "test_extension", "test_finetune"),
    *("test_pretrain", "test_ranks", "test_schedule", "test_hub"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files start first, so that none keeps one process busy after the others' end."""
    place = {name: number for number, name in enumerate(SLOWEST)}

    def order(item: pytest.Item) -> tuple[int, bool]:
        is_slow = item.get_closest_marker("slow") is not None
        return place.get(item.path.stem, len(place)), not is_slow

    items.sort(key=order)


def pytest_runtest_setup() -> None:
    checker.calls.clear()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.freeze()  # pytest collects five times at the end, a second each


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Uses one thread: with models this small, two threads wait longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def browser(tmp_path: Path) -> list[str]:
    """The command of a browser without a screen, with a profile of its own."""
    try:
        return browser_command(tmp_path / "profile")
    except ValueError as error:
        pytest.skip(str(error))
