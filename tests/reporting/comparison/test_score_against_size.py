from dataclasses import replace
from typing import Any

from stages.core.params import Params
from stages.reporting.comparison.results import Results, row_key
from stages.reporting.comparison.score_against_size import cells_with_sizes, power_laws
from tests.synthetic_study import RUNS, raw_params, run

PLACE = ("type", "200")


def test_sizes_that_differ_in_something_else_have_no_law(three_sizes: Results) -> None:
    def alone(**settings: Any) -> bool:
        raw = raw_params(RUNS | {"tiny": run("encoder", "mlm", d_model=48) | settings})
        changed = replace(three_sizes, params=Params(**raw))
        return power_laws(changed, cells_with_sizes(changed, *PLACE)) == []

    assert not alone()
    assert alone(corpus="scientific")
    assert alone(objective={"name": "mlm", "mask_prob": 0.5})


def test_a_law_rests_on_pretraining_seeds_where_all_sizes_have_several(
    three_sizes: Results,
) -> None:
    def doubled(num_runs: int) -> int:
        trials = list(three_sizes.trials)
        pretrain = dict(raw_params(RUNS | {"tiny": run("encoder", "mlm", d_model=48)})["pretrain"])
        for name in ("encoder_mlm", "encoder_small", "tiny")[:num_runs]:
            pretrain[f"{name}_2"] = pretrain[name] | {"seed": 2}
            trials += [
                replace(t, run=f"{name}_2", pretrain_seed=2, value=t.value - 0.01)
                for t in three_sizes.trials
                if t.run == name
            ]
        params = Params(**(raw_params() | {"pretrain": pretrain}))
        any_rows = next(iter(three_sizes.row_scores.values()))
        row_scores = {row_key(trial): any_rows for trial in trials}
        more = replace(three_sizes, params=params, trials=trials, row_scores=row_scores)
        ((_, law, _),) = power_laws(more, cells_with_sizes(more, *PLACE))
        return len(law.exponents)

    assert doubled(3) == 2  # pretraining seeds
    assert doubled(2) == 5  # seeds of fine-tuning
