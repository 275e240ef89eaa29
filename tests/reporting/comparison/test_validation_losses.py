from stages.reporting.comparison.results import Results
from stages.reporting.comparison.validation_losses import comparable


def test_comparable_runs_share_objective_text_and_tokenizer(results: Results) -> None:
    panels = [[group.name for group in groups] for groups in comparable(results).values()]
    assert panels == [
        ["encoder_mlm", "encoder_small"],
        ["decoder_causal"],
        ["encoder_scientific"],
        ["encoder_deep_learning"],
    ]
