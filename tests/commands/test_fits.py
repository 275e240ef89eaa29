"""The table of what goes together."""

from stages.commands import fits
from stages.methods._method import METHODS
from stages.tasks._task import TASKS


def rows() -> dict[tuple[str, str], dict[str, str]]:
    head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in fits.lines()]
    return {(task, model): dict(zip(head[2:], cells, strict=True)) for task, model, *cells in lines}


def test_every_task_is_learnt_by_some_model_and_every_method_fits_something() -> None:
    found = rows()
    assert {task.partition(",")[0] for task, _ in found} == set(TASKS.names())
    for task in TASKS.names():
        assert any(row["full"] == fits.YES for (name, _), row in found.items() if name == task)
    for method in METHODS.names():
        assert any(row[method] == fits.YES for row in found.values()), method


def test_a_model_without_a_decoder_writes_no_text_and_has_no_blocks_to_prefix() -> None:
    found = rows()
    assert ("seq2seq", "encoder") not in found and ("seq2seq", "decoder") in found
    assert found["classification", "bilstm"]["lora"] == fits.NO
    assert found["classification", "bilstm"]["linear_probe"] == fits.YES
    assert found["tagging", "decoder"]["in_context"] == fits.NO


def test_as_text_any_task_with_answers_is_one_of_writing() -> None:
    found = rows()
    written = {key: row for key, row in found.items() if key[0].endswith(fits.AS_TEXT)}
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
    assert found["classification", "decoder"]["none"] == fits.NO
