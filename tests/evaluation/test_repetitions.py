from pathlib import Path

from stages.core.params import load
from stages.evaluation.repetitions import repetitions

PROJECT = Path(__file__).parents[2]


def test_runs_that_differ_in_seeds_alone_repeat_one_another() -> None:
    runs = load(PROJECT / "studies" / "smoke.yaml").pretrain
    encoder, decoder = runs["encoder_mlm"], runs["decoder_causal"]
    again = encoder.model_copy(update={"seed": 2})
    groups = repetitions({"a": encoder, "b": decoder, "a_2": again, "a_same": encoder})
    assert groups == [("a", "a_2"), ("b",), ("a_same",)]


def test_runs_repeat_one_another_if_their_parents_do() -> None:
    first = load(PROJECT / "studies" / "smoke.yaml").pretrain["encoder_mlm"]
    second = first.model_copy(update={"seed": 2})
    runs = {"a": first, "a_2": second}
    runs["further"] = first.model_copy(update={"parent": "a"})
    runs["further_2"] = second.model_copy(update={"parent": "a_2"})
    assert repetitions(runs) == [("a", "a_2"), ("further", "further_2")]
