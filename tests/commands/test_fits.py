"""The table of what goes together is the one that the README shows."""

from pathlib import Path

from stages.commands import fits
from stages.components import names

ROOT = Path(__file__).parents[2]


def rows() -> dict[tuple[str, str], dict[str, str]]:
    head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in fits.lines()]
    return {(task, model): dict(zip(head[2:], cells, strict=True)) for task, model, *cells in lines}


def test_the_readme_shows_the_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n".join(fits.lines()) in readme


def test_every_task_is_learnt_by_some_model_and_every_method_fits_something() -> None:
    found = rows()
    assert {task for task, _ in found} == set(names("tasks"))
    for task in names("tasks"):
        assert any(row["full"] == fits.YES for (name, _), row in found.items() if name == task)
    for method in names("methods"):
        assert any(row[method] == fits.YES for row in found.values()), method


def test_a_model_without_a_decoder_writes_no_text_and_has_no_blocks_to_prefix() -> None:
    found = rows()
    assert ("seq2seq", "encoder") not in found and ("seq2seq", "decoder") in found
    assert found["classification", "bilstm"]["lora"] == fits.NO
    assert found["classification", "bilstm"]["linear_probe"] == fits.YES
    assert found["tagging", "decoder"]["in_context"] == fits.NO
