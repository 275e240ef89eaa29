"""Adds the column ``prediction`` to the inputs of SST-2: 1 if VADER's compound score is at least 0,
else 0. VADER reads no label.

    pip install vaderSentiment==3.3.2
    python benchmarks/vader_predictions.py predictions/vader/sentiment.csv
"""

import argparse
from pathlib import Path

import pandas


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("inputs", type=Path, help="a csv file with the column text; it is changed")
    file = parser.parse_args().inputs
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    analyzer = SentimentIntensityAnalyzer()
    inputs = pandas.read_csv(file, keep_default_na=False)
    scores = [analyzer.polarity_scores(text)["compound"] for text in inputs["text"]]
    inputs.assign(prediction=[int(score >= 0) for score in scores]).to_csv(file, index=False)


if __name__ == "__main__":
    main()
