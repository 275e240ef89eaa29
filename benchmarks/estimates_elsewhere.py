"""The numbers that transformer-ranker gives on drawn states, for the tests of our own estimates.

pip install transformer-ranker==0.2.0
python benchmarks/estimates_elsewhere.py > tests/evaluation/transformer_ranker.csv
"""

import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformer_ranker.estimators import HScore, LogME

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.evaluation.labelled_states import CASES, WIDE

print("version,case,estimate,value")
for case in [*CASES, *WIDE]:
    states, classes = map(torch.from_numpy, case.draw())
    targets = torch.from_numpy(case.number_of_each())
    for estimate, value in (
        ("h_score", HScore().fit(embeddings=states, labels=classes)),
        ("logme", LogME().fit(embeddings=states, labels=classes)),
        ("logme of a number", LogME(regression=True).fit(embeddings=states, labels=targets)),
    ):
        print(f'{version("transformer-ranker")},"{case.name}",{estimate},{value:.10g}')
