from stages.evaluation.precision import narrowing

TRIALS = [{"run": "a", "pretrain_seed": 1, "pretrain_s": 60.0, "s": 6.0}]


def said(*undecided: dict[str, object]) -> list[str]:
    columns = {"pretraining": "pretrain_s", "finetuning": "s"}
    return narrowing(undecided, TRIALS, "{:g} s".format, per="per hour", **columns)


def contrast(pretrain: object, rows: object) -> dict[str, object]:
    return {"narrower_pretrain": pretrain, "narrower_finetune": "", "narrower_rows": rows}


def test_narrowing_says_nothing_of_contrasts_whose_seeds_draw_the_splits() -> None:
    assert said() == said(contrast("", "")) == []
    (alone,) = said(contrast("0.2", "0.1"))
    assert "1 contrast with a verdict is not significant" in alone
    assert "pretraining seeds by 20%, for 66 s" in alone and "Pretraining seeds narrow" in alone
    assert said(contrast("0.2", "0.1"), contrast("", "")) == [alone]
