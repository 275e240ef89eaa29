"""The findings of a study, read from a project in which it has run: validation losses beside the
unigram entropy, scores, and gains over from scratch.

    cp studies/NAME.yaml params.yaml && dvc repro
    python benchmarks/findings.py > benchmarks/NAME.md
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from stages.core.params import Params, load
from stages.text.corpus import EncodedCorpus

POINTS = 6  # of each curve, or all there are


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "project", type=Path, nargs="?", default=Path(), help="default: the current folder"
    )
    project = parser.parse_args().project
    params = load(project / "params.yaml")
    print(
        "Validation loss (nats per target) against tokens seen. `entropy` is the unigram entropy\n"
        "of the corpus' validation tokens: the loss of a model that sees no context.\n"
    )
    print(curves(project, params).to_markdown(index=False, disable_numparse=True))
    print(f"\n{scores(project)}\n")
    print("Gains over from scratch by full fine-tuning, in points:\n")
    print(gains(project).to_markdown(index=False, disable_numparse=True))


def curves(project: Path, params: Params) -> pd.DataFrame:
    rows = []
    for key, run in params.pretrain.items():
        history = pd.read_csv(project / "data/progress/history" / f"{key}.csv")
        validated = history.dropna(subset=["validation_loss"])
        if validated.empty:
            continue
        every = max(len(validated) // POINTS, 1)
        shown = validated.iloc[every - 1 :: every]
        corpus = project / "data/encoded" / run.corpus / run.tokenizer / "validation"
        rows.append(
            {"run": key, "entropy": f"{entropy(EncodedCorpus.load(corpus).tokens):.2f}"}
            | {
                f"{n / 1e6:.2f}M": f"{x:.2f}"
                for n, x in zip(shown["tokens"], shown["validation_loss"], strict=True)
            }
        )
    return pd.DataFrame(rows)


def entropy(tokens: np.ndarray) -> float:
    """The unigram entropy of these tokens, in nats."""
    counts = np.bincount(tokens)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def scores(project: Path) -> str:
    """The section "Scores" of comparison.md."""
    text = (project / "reports/comparison.md").read_text(encoding="utf-8")
    section = text.partition("\n## Scores\n")[2].partition("\n## ")[0]
    return section.strip()


def gains(project: Path) -> pd.DataFrame:
    table = pd.read_csv(project / "reports/contrasts.csv", keep_default_na=False)
    table = table[(table["axis"] == "pretrained") & (table["method"] == "full")]
    points = {name: 100 * table[name].astype(float) for name in ("effect", "low", "high")}
    return pd.DataFrame(
        {
            "task": table["task"],
            "labels": table["label_budget"],
            "run": table["run_a"],
            "from scratch": table["run_b"],
            "gain": points["effect"].map("{:+.1f}".format),
            "95 % interval": points["low"].map("{:+.1f}".format)
            + " to "
            + points["high"].map("{:+.1f}".format),
            "verdict": table["verdict"],
        }
    )


if __name__ == "__main__":
    main()
