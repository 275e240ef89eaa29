"""Fine-tunes a study's checkpoints again, with code that shares nothing with the project.

Checkpoints are read as transformers reads an export, rows from the study's files, and a plain loop
of torch trains on labels that are drawn here. Each pooling of a text's states (mean, last, first)
and each kind of initial weights of a model from scratch (the study's and transformers' own) is
trained for every checkpoint, and validation chooses, as in the study. All are kept, so that the
outcome of a shared default can be read too. Scores are those of scikit-learn, and entity F1
by the definition of CoNLL 2000.

    python -m stages.commands.export RUN --pretrain-seed SEED --out EXPORTED/RUN/SEED
    cp -r data/checkpoints/all_minilm_l6_v2 EXPORTED/all_minilm/SEED    # as published
    python benchmarks/second_way.py EXPORTED STUDY --tasks type section --out second_way.jsonl

Run one of the first two commands for each checkpoint. A row of the output is one training, which is
not repeated if its row exists. A table of all rows is printed at the end. On one core each training
takes up to half a minute with the default study's own models, and up to two minutes with the
published one.
"""

import argparse
import csv
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from sklearn.metrics import accuracy_score, f1_score
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModel, AutoTokenizer

DROPOUT = 0.1
IGNORED = -100


# Rows ---------------------------------------------------------------------------------------------


def read_jsonl(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_rows(study: Path, task: str) -> dict[str, list[dict]]:
    folder = study / "data" / "tasks" / task
    rows = {
        split: read_jsonl(folder / "examples" / f"{split}.jsonl")
        for split in ("train", "validation", "test")
    }
    labels = {row["id"]: row for row in read_jsonl(folder / "test_labels.jsonl")}
    rows["test"] = [row | labels[row["id"]] for row in rows["test"]]
    return rows


def entities(tags: list[str]) -> set[tuple[str, int, int]]:
    """Returns the spans of BIO tags. An I- that continues no span begins one."""
    spans, start = set(), None
    for i, tag in enumerate([*tags, "O"]):
        goes_on = start is not None and tag == f"I-{tags[start][2:]}"
        if start is not None and not goes_on:
            spans.add((tags[start][2:], start, i))
            start = None
        if tag != "O" and not goes_on:
            start = i
    return spans


def score(metric: str, gold: list, predicted: list) -> float:
    if metric == "entity_f1":
        pairs = [(entities(a), entities(b)) for a, b in zip(gold, predicted, strict=True)]
        right = sum(len(a & b) for a, b in pairs)
        return 2 * right / max(sum(len(a) + len(b) for a, b in pairs), 1)
    if metric == "macro_f1":
        labels = sorted(set(gold))
        return float(f1_score(gold, predicted, labels=labels, average="macro", zero_division=0))
    if metric.startswith("f1_of_"):
        of_label = metric.removeprefix("f1_of_")
        return float(f1_score(gold, predicted, labels=[of_label], average="macro"))
    if metric == "word_accuracy":
        gold, predicted = sum(gold, []), sum(predicted, [])
    return float(accuracy_score(gold, predicted))


# Models -------------------------------------------------------------------------------------------


class Classifier(torch.nn.Module):
    """A backbone, and a linear layer over the states of words or of a text."""

    def __init__(self, backbone: torch.nn.Module, num_labels: int, pooling: str) -> None:
        super().__init__()
        self.backbone, self.pooling = backbone, pooling
        self.dropout = torch.nn.Dropout(DROPOUT)
        self.head = torch.nn.Linear(backbone.config.hidden_size, num_labels)
        torch.nn.init.normal_(self.head.weight, std=0.02)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.pooling == "mean":
            weights = mask[..., None].to(states.dtype)
            states = (states * weights).sum(1) / weights.sum(1)
        elif self.pooling == "last":
            states = states[torch.arange(len(states)), mask.sum(1) - 1]
        elif self.pooling == "first":
            states = states[:, 0]
        return self.head(self.dropout(states))


def is_causal(folder: Path) -> bool:
    return AutoConfig.from_pretrained(folder).architectures[0].endswith("ForCausalLM")


def backbone(folder: Path, start: str, seed: int) -> torch.nn.Module:
    """Returns a model whose weights, by ``start``, are the export's or drawn by transformers."""
    config = AutoConfig.from_pretrained(folder)
    without = {} if is_causal(folder) else {"add_pooling_layer": False}
    if start == "exported":
        return AutoModel.from_pretrained(folder, **without)
    torch.manual_seed(1000 + seed)
    return AutoModel.from_config(config, **without)


def encoded(
    rows: list[dict], tokenizer, labels: list[str], *, subword: str, max_tokens: int
) -> list[tuple]:
    """Returns for each row its tokens, its label or the labels of its tokens, and, for rows of
    words, the place of each word's first or last token, as ``subword`` says."""
    examples = []
    # BERT's tokenizer has other names for them.
    ends = [tokenizer.bos_token_id], [tokenizer.eos_token_id]
    if tokenizer.bos_token_id is None:
        ends = [tokenizer.cls_token_id], [tokenizer.sep_token_id]
    for row in rows:
        begin, end = ends
        if "words" not in row:
            ids = begin + tokenizer.encode(row["text"], add_special_tokens=False)
            if "text_pair" in row:
                ids += end + tokenizer.encode(row["text_pair"], add_special_tokens=False)
            examples.append((ids[: max_tokens - 1] + end, labels.index(row["label"]), None))
            continue
        ids, places = begin, []
        for word in row["words"]:
            of_word = tokenizer.encode(word, add_special_tokens=False) or [tokenizer.unk_token_id]
            places.append(len(ids) + (0 if subword == "first" else len(of_word) - 1))
            ids = ids + of_word
        ids = ids[: max_tokens - 1] + end
        places = [place if place < len(ids) - 1 else None for place in places]
        of_tokens = [IGNORED] * len(ids)
        for place, tag in zip(places, row["tags"], strict=True):
            if place is not None:
                of_tokens[place] = labels.index(tag)
        examples.append((ids, of_tokens, places))
    return examples


def batch(examples: list[tuple]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    length = max(len(ids) for ids, _, _ in examples)
    pad = [length - len(ids) for ids, _, _ in examples]
    ids = torch.tensor([ids + [0] * n for (ids, _, _), n in zip(examples, pad, strict=True)])
    mask = torch.tensor(
        [[1] * len(ids) + [0] * n for (ids, _, _), n in zip(examples, pad, strict=True)]
    )
    targets = [
        target + [IGNORED] * n if isinstance(target, list) else target
        for (_, target, _), n in zip(examples, pad, strict=True)
    ]
    return ids, mask, torch.tensor(targets)


@torch.no_grad()
def predictions(model: Classifier, examples: list[tuple], labels: list[str]) -> list:
    model.eval()
    answers: list = [None] * len(examples)
    by_length = sorted(range(len(examples)), key=lambda i: len(examples[i][0]))
    for at in range(0, len(by_length), 64):
        some = by_length[at : at + 64]
        ids, mask, _ = batch([examples[i] for i in some])
        best = model(ids, mask).argmax(-1)
        for row, i in zip(best, some, strict=True):
            places = examples[i][2]
            if places is None:
                answers[i] = labels[int(row)]
            else:
                answers[i] = ["O" if p is None else labels[int(row[p])] for p in places]
    model.train()
    return answers


# Training -----------------------------------------------------------------------------------------


def train(model: Classifier, examples: list[tuple], *, settings: dict, seed: int) -> Iterator[int]:
    """Yields the number of each epoch that is done."""
    per_epoch = math.ceil(len(examples) / settings["batch_examples"])
    epochs = max(settings["num_epochs"], math.ceil(settings["min_steps"] / per_epoch))
    steps = epochs * per_epoch
    warmup = round(settings["warmup_fraction"] * steps)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings["weight_decay"]},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings["lr"],
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / (warmup + 1), (steps - step) / max(steps - warmup, 1)),
    )
    order = random.Random(seed)
    model.train()
    for epoch in range(1, epochs + 1):
        order.shuffle(examples)
        for at in range(0, len(examples), settings["batch_examples"]):
            ids, mask, targets = batch(examples[at : at + settings["batch_examples"]])
            logits = model(ids, mask)
            loss = cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"])
            optimizer.step()
            schedule.step()
        yield epoch


def trained(task: str, rows: dict, folder: Path, *, asked: dict, plan: dict) -> dict:
    """Returns one training with its test score at the epoch that was best on validation."""
    begun = time.monotonic()
    seed = asked["seed"]
    is_tagging = "words" in rows["train"][0]
    metric = asked["metric"]
    of_row = (lambda row: row["tags"]) if is_tagging else (lambda row: row["label"])
    labels = sorted({t for r in rows["train"] for t in (r["tags"] if is_tagging else [r["label"]])})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    examples = {
        split: encoded(
            some,
            tokenizer,
            labels,
            subword=asked["subword"],
            max_tokens=plan["finetune"]["max_tokens"],
        )
        for split, some in rows.items()
    }
    drawn = random.Random(f"labels {task} {seed}").sample(examples["train"], asked["labels"])
    weights = backbone(folder, asked["start"], seed)
    torch.manual_seed(7 * seed)
    model = Classifier(weights, len(labels), asked["pooling"])
    gold = {split: [of_row(row) for row in rows[split]] for split in ("validation", "test")}
    best, epoch_of_best, state = -1.0, 0, {}
    method = plan["finetune"]["methods"]["full"]
    settings = method["training"] | method["runs"].get(asked["run"], {})
    for epoch in train(model, drawn, settings=settings, seed=seed):
        predicted = predictions(model, examples["validation"], labels)
        value = score(metric, gold["validation"], predicted)
        if value > best:
            best, epoch_of_best = value, epoch
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    test = score(metric, gold["test"], predictions(model, examples["test"], labels))
    return {
        **asked,
        "task": task,
        "validation": best,
        "test": test,
        "epoch": epoch_of_best,
        "seconds": round(time.monotonic() - begun, 1),
    }


def tries(run: str, folder: Path, seed: int, *, is_tagging: bool, is_scratch: bool) -> list[dict]:
    causal = is_causal(folder)
    poolings = ["words"] if is_tagging else ["mean", "last" if causal else "first"]
    starts = ["exported", "transformers"] if is_scratch else ["exported"]
    subword = "last" if causal else "first"
    return [
        {"run": run, "seed": seed, "pooling": pooling, "start": start, "subword": subword}
        for pooling, start in product(poolings, starts)
    ]


# Table --------------------------------------------------------------------------------------------


def points(values: list[float]) -> str:
    """``52.2 (54.7, 57.8, 44.1)``: the mean and each value, times 100."""
    if not values:
        return "–"
    shown = ", ".join(f"{100 * value:.1f}" for value in values)
    return f"{100 * sum(values) / len(values):.1f} ({shown})"


def read_trials(path: Path, labels: int) -> dict[tuple[str, str, int], dict]:
    """Returns full fine-tunings with ``labels`` labels by task, run and pretraining seed."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["task"], row["run"], int(row["pretrain_seed"])): row
            for row in csv.DictReader(file)
            if row["method"] == "full" and row["label_budget"] == str(labels)
        }


def table(rows: list[dict], trials: dict[tuple[str, str, int], dict]) -> Iterator[str]:
    """Yields a Markdown table: the scores of each run by seed, with the choice of validation and
    with each choice for all seeds, compared with those of the study's own trainer."""
    yield "| task | run | study | second way | each choice |"
    yield "|---|---|---|---|---|"
    for task, run in dict.fromkeys((row["task"], row["run"]) for row in rows):
        here = [row for row in rows if (row["task"], row["run"]) == (task, run)]
        seeds = sorted({row["seed"] for row in here})
        chosen = [
            max((r for r in here if r["seed"] == seed), key=lambda r: r["validation"])["test"]
            for seed in seeds
        ]
        choices = dict.fromkeys((row["pooling"], row["start"]) for row in here)
        scores_of = {
            choice: [r["test"] for r in here if (r["pooling"], r["start"]) == choice]
            for choice in choices
        }
        listed = "; ".join(f"{', '.join(choice)}: {points(v)}" for choice, v in scores_of.items())
        study_scores = points([float(trials[task, run, seed]["value"]) for seed in seeds])
        yield f"| {task} | `{run}` | {study_scores} | {points(chosen)} | {listed} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("exported", type=Path, help="a folder with an export of each run")
    parser.add_argument("study", type=Path, help="the folder of a study that has run")
    parser.add_argument("--trials", type=Path, help="its trials, if not STUDY/reports/trials.csv")
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--labels", type=int, default=200, help="a label budget of the study")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    trials = read_trials(options.trials or options.study / "reports/trials.csv", options.labels)
    earlier = read_jsonl(options.out) if options.out.exists() else []
    identity = ("task", "run", "seed", "pooling", "start")
    done = {tuple(row[name] for name in identity) for row in earlier}
    for task in options.tasks:
        rows = read_rows(options.study, task)
        plan = json.loads((options.study / f"data/plans/finetune/{task}.json").read_text())
        for folder in sorted(options.exported.glob("*/*")):
            run, seed = folder.parent.name, int(folder.name)
            entry = plan["runs"][run]
            is_scratch = (
                entry["objective"]["name"] == "none" and entry["architecture"]["name"] != "hub"
            )
            is_tagging = "words" in rows["train"][0]
            for one in tries(run, folder, seed, is_tagging=is_tagging, is_scratch=is_scratch):
                if (task, run, seed, one["pooling"], one["start"]) in done:
                    continue
                one["metric"] = trials[task, run, seed]["metric"]
                one["labels"] = options.labels
                row = trained(task, rows, folder, asked=one, plan=plan)
                with options.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
                print(json.dumps(row), file=sys.stderr, flush=True)
    print(*table(read_jsonl(options.out), trials), sep="\n")


if __name__ == "__main__":
    main()
