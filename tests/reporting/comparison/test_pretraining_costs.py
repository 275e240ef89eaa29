"""What pretraining took, by hand."""

from pathlib import Path

import pytest

from stages.reporting.comparison.pretraining_costs import pretraining, pretraining_rows
from stages.reporting.comparison.results import load
from tests.synthetic_study import RUNS, further, public, raw_params, write_study


def test_the_cost_of_a_run_includes_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = RUNS["encoder_mlm"] | {"parent": "encoder_mlm", "corpus": "scientific"}
    names = ("encoder_mlm", "encoder_scratch")
    results = load(write_study(tmp_path, raw_params({n: RUNS[n] for n in names} | {"more": more})))
    group = {group.name: group for group in results.groups}
    alone, continued = (pretraining(results, group[name]) for name in ("encoder_mlm", "more"))
    assert (alone.wall_time_s, alone.joules) == (61.5, 1440)
    assert (continued.wall_time_s, continued.joules) == (2 * 61.5, 2 * 1440)


def test_what_a_public_checkpoint_took_is_unknown_and_loading_it_no_pretraining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = {"bert": public("a/bert"), "adapted": further("a/bert", "mlm")}
    found = pretraining_rows(load(write_study(tmp_path, raw_params(runs))))
    published, adapted = (set(list(row.values())[2:]) for row in found)
    assert published == {"unknown"} and "unknown" not in adapted
