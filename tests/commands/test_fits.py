"""The table of tasks, models and methods that fit together."""

from stages.commands import fits
from stages.methods._method import METHODS
from stages.tasks._task import TASKS


def rows() -> dict[tuple[str, str], dict[str, str]]:
    head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in fits.lines()]
    return {(task, model): dict(zip(head[2:], cells, strict=True)) for task, model, *cells in lines}


def test_lines_have_a_model_for_every_task_and_a_row_for_every_method() -> None:
    table = rows()
    assert {task.partition(",")[0] for task, _ in table} == set(TASKS.names())
    for task in TASKS.names():
        assert any(row["full"] == fits.YES for (name, _), row in table.items() if name == task)
    for method in METHODS.names():
        assert any(row[method] == fits.YES for row in table.values()), method


def test_lines_leave_out_what_does_not_fit() -> None:
    table = rows()
    assert ("seq2seq", "encoder") not in table and ("seq2seq", "decoder") in table
    assert table["classification", "bilstm"]["lora"] == fits.NO
    assert table["classification", "bilstm"]["linear_probe"] == fits.YES
    assert table["tagging", "decoder"]["in_context"] == fits.NO


def test_lines_have_any_task_with_answers_as_one_of_writing() -> None:
    table = rows()
    written = {key: row for key, row in table.items() if key[0].endswith(fits.AS_TEXT)}
    assert {model for _, model in written} == {"decoder", "encoder_decoder"}
    assert {task for task, _ in written} == {
        f"{task}{fits.AS_TEXT}"
        for task in (
            *("classification", "multi_label", "multiple_choice", "regression"),
            *("span_qa", "tagging"),
        )
    }
    for row in written.values():
        assert row["none"] == row["full"] == fits.YES
        assert row["linear_probe"] == row["in_context"] == fits.NO
    assert table["classification", "decoder"]["none"] == fits.NO
