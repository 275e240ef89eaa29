"""The terms that the page explains at their first use, in the words of docs/glossary.md."""

TERMS = {
    "classical baseline": "one entry of `baselines:`, a classical model without pre-training",
    "from scratch": "a run with `objective: none`: its weights stay as initialised",
    "trial": "one (run or baseline, pre-training seed, task, method, label budget, "
    "fine-tuning seed)",
    "contrast": "two cells that differ in one axis",
    "confound": "what else differs between the two cells: parameters, FLOPs, tokens seen, "
    "tokenizer",
    "interval": "the range that holds the true value in as many studies as its percentage says",
    "Holm correction": "the more tests a study makes, the smaller a p-value must be to count: "
    "without it some effect would look significant by chance",
    "pretraining seed": "draws the initial weights, the order of the text and the masks of one "
    "pre-training, and the labelled rows of its trials",
    "fine-tuning seed": "draws the head, the order of the rows and, with the pre-training seed, "
    "the labelled rows of a trial",
    "FLOPs": "operations of matrix products, a multiplication and an addition being two",
    "macro F1": "the mean over classes of F1, the harmonic mean of precision and recall",
    "entity F1": "the harmonic mean of precision and recall over whole entities: every tag right",
    "points": "100 times a score between 0 and 1",
}
