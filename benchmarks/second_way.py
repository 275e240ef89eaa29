"""Fine-tunes a study's models again, with code that shares nothing with the project.

Run in the folder of a finished study. Weights are read as transformers reads any folder, rows from
the study's files. A plain loop of torch trains on labels that are drawn here, in float32; scores
are those of scikit-learn, and entity F1 by the definition of CoNLL 2000.

    python benchmarks/second_way.py --models encoder minilm --tasks section --out second.jsonl

A row of the output is one training, which is not repeated if its row exists; a table of all rows
is printed at the end. To see what a default that all models share decides, vary it: `--pooling
first`, `--lr 3e-4`, or `--start usual`, which draws the weights of models from scratch by
transformers' own rule. `--method probe` fits scikit-learn's logistic regression to frozen states,
`--method lora`, `adapter`, `prompt` and `bitfit` train what is written out here and leave the rest
of the model as it is, and with `--method text` an encoder-decoder writes the labels as transformers
trains it to. On one core a training takes about ten seconds with the default study's own models,
and a minute with the published one.
"""

import argparse
import csv
import json
import math
import random
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy, gelu
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

DROPOUT = 0.1
IGNORED = -100
PRETRAINED = Path("data/pretrained")
# In the study text_to_text, `head` and `text` are full fine-tuning with a head and as text.
METHODS = ("full", "lora", "adapter", "prompt", "bitfit", "probe", "head", "text")
IN_STUDIES = {"probe": "linear_probe"}  # the name in studies, if it is another one
MOST_WRITTEN = 192  # tokens


# Rows ---------------------------------------------------------------------------------------------


def read_jsonl(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_rows(task: str) -> dict[str, list[dict]]:
    folder = Path("data/tasks") / task
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

    def states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.pooling == "mean":
            weights = mask[..., None].to(states.dtype)
            states = (states * weights).sum(1) / weights.sum(1)
        elif self.pooling == "last":
            states = states[torch.arange(len(states)), mask.sum(1) - 1]
        elif self.pooling == "first":
            states = states[:, 0]
        return states

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.states(ids, mask)))


class LowRank(torch.nn.Module):
    """A frozen linear layer plus a product of two thin matrices (Hu et al. 2022)."""

    def __init__(self, layer: torch.nn.Linear, rank: int = 8, scale: float = 2.0) -> None:
        super().__init__()
        self.layer, self.scale = layer, scale
        self.down = torch.nn.Parameter(torch.empty(rank, layer.in_features))
        self.up = torch.nn.Parameter(torch.zeros(layer.out_features, rank))
        torch.nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.layer(states) + self.scale * (states @ self.down.T @ self.up.T)


class Bottleneck(torch.nn.Module):
    """A frozen linear layer, and after it an adapter (Houlsby et al. 2019)."""

    def __init__(self, layer: torch.nn.Linear, width: int = 64) -> None:
        super().__init__()
        self.layer = layer
        self.down = torch.nn.Linear(layer.out_features, width)
        self.up = torch.nn.Linear(width, layer.out_features)
        torch.nn.init.normal_(self.down.weight, std=0.01)
        for weight in (self.down.bias, self.up.weight, self.up.bias):
            torch.nn.init.zeros_(weight)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = self.layer(states)
        return states + self.up(gelu(self.down(states)))


class Prompted(torch.nn.Module):
    """A frozen encoder that reads learnt vectors before each text (Lester et al. 2021). Its states
    are those of the text."""

    def __init__(self, encoder: torch.nn.Module, number: int = 20) -> None:
        super().__init__()
        self.encoder, self.config = encoder, encoder.config
        table = encoder.get_input_embeddings().weight
        self.vectors = torch.nn.Parameter(table[torch.randperm(len(table))[:number]].clone())

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        rows, number = len(input_ids), len(self.vectors)
        words = self.encoder.get_input_embeddings()(input_ids)
        states = self.encoder(
            inputs_embeds=torch.cat([self.vectors.expand(rows, -1, -1), words], 1),
            attention_mask=torch.cat([torch.ones(rows, number).long(), attention_mask], 1),
        ).last_hidden_state
        return SimpleNamespace(last_hidden_state=states[:, number:])


class Lstms(torch.nn.Module):
    """ELMo: a stack of LSTMs reads a text forwards, another backwards. A token's state is a mean of
    all layers with learnt weights."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        vocab_size, width = weights["embedding.weight"].shape
        num_cells = weights["forward_lm.0.weight_hh_l0"].shape[0] // 4
        num_layers = len({n.split(".")[1] for n in weights if n.startswith("forward_lm.")})
        self.config = SimpleNamespace(hidden_size=2 * width)
        self.embedding = torch.nn.Embedding(vocab_size, width)
        self.forward_lm, self.backward_lm = (
            torch.nn.ModuleList(
                torch.nn.LSTM(width, num_cells, proj_size=width, batch_first=True)
                for _ in range(num_layers)
            )
            for _ in range(2)
        )
        self.mix = torch.nn.ParameterDict(
            {"s": torch.zeros(num_layers + 1), "gamma": torch.ones(())}
        )
        self.load_state_dict({n: w for n, w in weights.items() if n != "output_bias"})

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        lengths, places = attention_mask.sum(1, keepdim=True), torch.arange(input_ids.shape[1])
        # The last token first; padding stays at the end, where no token has read it.
        mirrored = torch.where(places < lengths, lengths - 1 - places, places)[..., None]
        words = self.embedding(input_ids)
        forwards = self.layers(self.forward_lm, words)
        backwards = self.layers(self.backward_lm, words.take_along_dim(mirrored, 1))
        backwards = [states.take_along_dim(mirrored, 1) for states in backwards]
        shares = self.mix["gamma"] * self.mix["s"].softmax(0)
        both = (torch.cat(pair, -1) for pair in zip(forwards, backwards, strict=True))
        mixed = sum(share * states for share, states in zip(shares, both, strict=True))
        return SimpleNamespace(last_hidden_state=mixed)

    @staticmethod
    def layers(lstms: torch.nn.ModuleList, states: torch.Tensor) -> list[torch.Tensor]:
        """Returns the embeddings and what each LSTM makes of the layer before, to which all but the
        first add theirs."""
        found = [states]
        for number, lstm in enumerate(lstms):
            change, _ = lstm(states)
            states = states + change if number else change
            found.append(states)
        return found


def with_method(backbone: torch.nn.Module, method: str) -> torch.nn.Module:
    """Returns the model with what a method adds to it; what the method does not train is frozen."""
    if method not in ("lora", "adapter", "prompt", "bitfit"):
        return backbone
    backbone.requires_grad_(False)
    if method == "prompt":
        return Prompted(backbone)
    if method == "bitfit":
        for name, weight in backbone.named_parameters():
            weight.requires_grad_(name.endswith("bias"))
        return backbone
    for name, module in [*backbone.named_modules()]:
        if method == "adapter" and isinstance(module, torch.nn.LayerNorm):
            module.requires_grad_(True)
        if not isinstance(module, torch.nn.Linear):
            continue
        parent, _, own = name.rpartition(".")
        if method == "lora":
            setattr(backbone.get_submodule(parent), own, LowRank(module))
        elif name.endswith("output.dense"):  # the last of a sub-layer of BERT
            setattr(backbone.get_submodule(parent), own, Bottleneck(module))
    return backbone


def backbone(folder: Path, start: str, seed: int) -> torch.nn.Module:
    """Returns the model in a folder, of an encoder-decoder the encoder. With the usual start its
    weights are drawn anew."""
    if not (folder / "config.json").exists():
        return Lstms(load_file(folder / "model.safetensors"))
    config = AutoConfig.from_pretrained(folder)
    without = {"add_pooling_layer": False} if config.model_type == "bert" else {}
    if start == "usual":
        torch.manual_seed(1000 + seed)
        model = AutoModel.from_config(config, **without)
    else:
        model = AutoModel.from_pretrained(folder, dtype=torch.float32, **without)
    return model.get_encoder() if config.is_encoder_decoder else model


def reads_backwards(folder: Path) -> bool:
    """Whether a token's state knows nothing of what follows it, so that a word's last token is
    read."""
    if not (folder / "config.json").exists():  # LSTMs
        return False
    kind = AutoConfig.from_pretrained(folder).architectures[0]
    return kind.endswith(("ForCausalLM", "LMHeadModel"))


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
    # Byte-level tokenizers write the blank before a word as a part of it.
    blank = " " if "\u0120a" in tokenizer.tokenize(" a") else ""
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
            of_word = tokenizer.encode(blank + word, add_special_tokens=False)
            of_word = of_word or [tokenizer.unk_token_id]
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
def frozen(model: Classifier, examples: list[tuple]) -> tuple[np.ndarray, list, list[int]]:
    """Returns the states of texts or of words, their labels, and how many each example has."""
    model.eval()
    rows, targets, numbers = [], [], []
    for example in examples:
        ids, mask, _ = batch([example])
        states, places = model.states(ids, mask)[0], example[2]
        at = [place for place in places or () if place is not None]
        rows.append((states[at] if places is not None else states[None]).float().numpy())
        targets += [example[1][place] for place in at] if places is not None else [example[1]]
        numbers.append(len(at) if places is not None else 1)
    return np.concatenate(rows), targets, numbers


def probed(
    model: Classifier, train: list[tuple], others: dict[str, list[tuple]], labels: list[str], best
) -> dict[str, list]:
    """Returns the predictions of logistic regression on frozen states; ``best`` scores those of the
    validation rows, by which the penalty is chosen."""
    states, targets, _ = frozen(model, train)
    scale = StandardScaler().fit(states)
    of_split = {split: frozen(model, examples) for split, examples in others.items()}

    def answers(fitted: LogisticRegression, split: str) -> list:
        states, _, numbers = of_split[split]
        names = [labels[i] for i in fitted.predict(scale.transform(states))]
        texts, at = [], 0
        for example, number in zip(others[split], numbers, strict=True):
            here, at = iter(names[at : at + number]), at + number
            places = example[2]
            texts.append(
                next(here) if places is None else ["O" if p is None else next(here) for p in places]
            )
        return texts

    fits = [
        LogisticRegression(C=c, max_iter=1000).fit(scale.transform(states), targets)
        for c in (1e-3, 1e-2, 0.1, 1.0, 10.0)
    ]
    chosen = max(fits, key=lambda fitted: best(answers(fitted, "validation")))
    return {split: answers(chosen, split) for split in others}


def by_length(texts: list[list[int]], size: int = 64) -> Iterator[list[int]]:
    """Yields the indices of batches of texts of similar length."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for at in range(0, len(order), size):
        yield order[at : at + size]


@torch.no_grad()
def predictions(model: Classifier, examples: list[tuple], labels: list[str]) -> list:
    model.eval()
    answers: list = [None] * len(examples)
    for some in by_length([ids for ids, _, _ in examples]):
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


def classified(model: Classifier, examples: list[tuple]) -> torch.Tensor:
    ids, mask, targets = batch(examples)
    logits = model(ids, mask)
    return cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def train(
    model: torch.nn.Module, examples: list, *, settings: dict, seed: int, loss_of=classified
) -> None:
    per_epoch = math.ceil(len(examples) / settings["batch_examples"])
    epochs = max(settings["num_epochs"], math.ceil(settings["min_steps"] / per_epoch))
    steps = epochs * per_epoch
    warmup = round(settings["warmup_fraction"] * steps)
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.dim() > 1]
    others = [p for p in trained if p.dim() <= 1]
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
    for _ in range(epochs):
        order.shuffle(examples)
        for at in range(0, len(examples), settings["batch_examples"]):
            loss = loss_of(model, examples[at : at + settings["batch_examples"]])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, settings["max_grad_norm"])
            optimizer.step()
            schedule.step()


def padded(rows: list[list[int]], value: int) -> torch.Tensor:
    length = max(map(len, rows))
    return torch.tensor([row + [value] * (length - len(row)) for row in rows])


def written_loss(model: torch.nn.Module, rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    texts, targets = zip(*rows, strict=True)
    ids = padded([*texts], -1)
    return model(
        input_ids=ids.clamp(min=0),
        attention_mask=(ids >= 0).long(),
        labels=padded([*targets], IGNORED),
    ).loss


@torch.no_grad()
def written(model: torch.nn.Module, texts: list[list[int]], tokenizer) -> list[str]:
    """Returns what the model writes for each text, decoded greedily."""
    model.eval()
    answers = [""] * len(texts)
    for some in by_length(texts):
        ids = padded([texts[i] for i in some], -1)
        rows = model.generate(
            input_ids=ids.clamp(min=0),
            attention_mask=(ids >= 0).long(),
            max_new_tokens=MOST_WRITTEN,
        )
        decoded = tokenizer.batch_decode(rows, skip_special_tokens=True)
        for i, text in zip(some, decoded, strict=True):
            answers[i] = text.strip()
    return answers


def as_text(
    asked: dict, rows: dict[str, list[dict]], folder: Path, settings: dict, tags: list[str]
) -> dict:
    """Returns what an encoder-decoder writes for the rows of validation and test, after training on
    the labels of train as text: a row's label, or the tags of its words."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    begin, end = [tokenizer.bos_token_id], [tokenizer.eos_token_id]

    def read(row: dict) -> list[int]:
        text = " ".join(row["words"]) if "words" in row else row["text"]
        ids = tokenizer.encode(f"{asked['task']}: {text}", add_special_tokens=False)
        return begin + ids[: settings["max_tokens"] - 2] + end

    def target(row: dict) -> list[int]:
        text = " ".join(row["tags"]) if "words" in row else row["label"]
        return tokenizer.encode(text, add_special_tokens=False) + end

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    start = model.generation_config.decoder_start_token_id or tokenizer.bos_token_id
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = start
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.use_cache = True
    torch.manual_seed(7 * asked["seed"])
    of_training = settings | {"lr": asked["lr"]}
    examples = [(read(row), target(row)) for row in rows["train"]]
    train(model, examples, settings=of_training, seed=asked["seed"], loss_of=written_loss)
    answers = {}
    for split in ("validation", "test"):
        texts = written(model, [read(row) for row in rows[split]], tokenizer)
        answers[split] = [
            [
                *(tag if tag in tags else "O" for tag in text.split()),
                *["O"] * len(row["words"]),
            ][: len(row["words"])]
            if "words" in row
            else text
            for row, text in zip(rows[split], texts, strict=True)
        ]
    return answers


def by_head(
    asked: dict, rows: dict[str, list[dict]], folder: Path, settings: dict, labels: list[str]
) -> dict:
    """Returns the predictions of a linear layer for the rows of validation and test."""
    seed, tokenizer = asked["seed"], AutoTokenizer.from_pretrained(folder)
    subword = "last" if reads_backwards(folder) else "first"
    examples = {
        split: encoded(some, tokenizer, labels, subword=subword, max_tokens=settings["max_tokens"])
        for split, some in rows.items()
    }
    learnt = examples.pop("train")
    weights = backbone(folder, asked["start"], seed)
    torch.manual_seed(7 * seed)
    is_tagging = "words" in rows["train"][0]
    weights = with_method(weights, asked["method"])
    model = Classifier(weights, len(labels), "words" if is_tagging else asked["pooling"])
    if asked["method"] == "probe":
        metric, gold = scored(rows["validation"])
        return probed(model, learnt, examples, labels, lambda found: score(metric, gold, found))
    train(model, learnt, settings=settings | {"lr": asked["lr"]}, seed=seed)
    return {split: predictions(model, some, labels) for split, some in examples.items()}


def scored(rows: list[dict]) -> tuple[str, list]:
    """Returns the metric of rows of words or of texts, and their answers."""
    if "words" in rows[0]:
        return "entity_f1", [row["tags"] for row in rows]
    return "macro_f1", [row["label"] for row in rows]


def trained(asked: dict, *, settings: dict) -> dict:
    """Returns one training with its scores after the last epoch, as in the study."""
    begun, rows = time.monotonic(), read_rows(asked["task"])
    folder = PRETRAINED / asked["model"] / str(asked["seed"])
    labels = sorted({tag for row in rows["train"] for tag in row.get("tags", [row.get("label")])})
    number = len(rows["train"]) if asked["labels"] == "all" else asked["labels"]
    drawing = random.Random(f"labels {asked['task']} {asked['seed']}")
    rows["train"] = drawing.sample(rows["train"], number)
    predicted = as_text if asked["method"] == "text" else by_head
    answers = predicted(asked, rows, folder, settings, labels)
    scores = {}
    for split in ("validation", "test"):
        metric, gold = scored(rows[split])
        scores[split] = score(metric, gold, answers[split])
    return {**asked, **scores, "seconds": round(time.monotonic() - begun, 1)}


# Table --------------------------------------------------------------------------------------------


def points(values: list[float]) -> str:
    """``52.2 (54.7, 57.8, 44.1)``: the mean and each value, times 100."""
    if not values:
        return "–"
    shown = ", ".join(f"{100 * value:.1f}" for value in values)
    return f"{100 * sum(values) / len(values):.1f} ({shown})"


def study_scores(method: str, labels: int) -> dict[tuple[str, str], list[float]]:
    """Returns the test scores of trials with ``labels`` labels by task and model."""
    scores: dict[tuple[str, str], list[float]] = {}
    with (Path("reports") / "trials.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["method"] == method and row["label_budget"] == str(labels):
                scores.setdefault((row["task"], row["model"]), []).append(float(row["value"]))
    return scores


def table(rows: list[dict]) -> Iterator[str]:
    """Yields a Markdown table: the scores in the study, and here by what was varied."""
    yield "| task | model | pooling, start, rate, method, labels | study | second way |"
    yield "|---|---|---|---|---|"
    kinds = ("task", "model", "pooling", "start", "lr", "method", "labels")
    for kind in sorted({tuple(row[key] for key in kinds) for row in rows}):
        task, model, *varied = kind
        here = [row for row in rows if tuple(row[key] for key in kinds) == kind]
        method = IN_STUDIES.get(here[0]["method"], here[0]["method"])
        ours = study_scores(method, here[0]["labels"]).get((task, model), [])
        again = [row["test"] for row in sorted(here, key=lambda row: row["seed"])]
        shown = (task, model, ", ".join(map(str, varied)), points(ours), points(again))
        yield f"| {' | '.join(shown)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--pooling", choices=("mean", "first", "last"), default="mean")
    parser.add_argument("--start", choices=("study", "usual"), default="study")
    parser.add_argument("--method", choices=METHODS, default="full")
    parser.add_argument("--lr", type=float, help="of all models (default: that of the study)")
    parser.add_argument(
        "--labels", type=lambda value: value if value == "all" else int(value), default=200
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # The plan has the settings that the study's trials were trained with.
    plan = json.loads(Path(f"data/plans/finetune/{options.tasks[0]}.json").read_text())["finetune"]
    rows = read_jsonl(options.out) if options.out.exists() else []
    for model, task, seed in product(options.models, options.tasks, options.seeds):
        method = plan["methods"][IN_STUDIES.get(options.method, options.method)]
        settings = method.get("training", {}) | method.get("models", {}).get(model, {})
        rate = settings.get("lr", 0.0)
        asked = {
            "task": task,
            "model": model,
            "seed": seed,
            "pooling": options.pooling,
            "start": options.start,
            "lr": options.lr or (rate[0] if isinstance(rate, list) else rate),
            "labels": options.labels,
            "method": options.method,
        }
        if any(asked.items() <= row.items() for row in rows):
            continue
        row = trained(asked, settings=settings | {"max_tokens": plan["max_tokens"]})
        rows.append(row)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
