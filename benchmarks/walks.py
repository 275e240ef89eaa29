"""Walks from a labelled file to predictions, as a newcomer does, and times each command.

    python -m benchmarks.walks tickets FOLDER --datasets DATASETS

FOLDER becomes a fresh clone of this repository with the file; `make new`, `make repro` and `make
predict` are run in it. What they print goes to FOLDER.log, and the last lines are wall and
processor seconds, the latter without those of trainings in jobs side by side. The e-mails and
tickets are made of phrases; all other files are written from public data sets in the folder
DATASETS (sst2, wnut17, qa, multi30k; trec.csv has TREC's 5,452 training questions with the columns
question and label).
"""

import argparse
import csv
import gzip
import io
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
MINUTES = {"translation": 5, "squad": 5}
USUAL_MINUTES = 3

TICKETS = {  # queue: subjects, sentences
    "billing": (
        ("Invoice", "Charged twice", "Refund", "Question", "Payment failed"),
        (
            "I was charged twice for {product} this month.",
            "Please send me the invoice for {product} again.",
            "The refund for {product} has not reached my account.",
            "My card was declined although there is enough money on it.",
            "The amount on the bill is higher than what we agreed.",
        ),
    ),
    "technical": (
        ("Crash", "Error message", "Question", "Cannot log in", "Slow since the update"),
        (
            "{product} crashes when I open a large file.",
            "Since the update {product} takes minutes to start.",
            "I cannot log in, the page only says that something went wrong.",
            "The export to PDF from {product} ends with error 502.",
            "Notifications of {product} no longer arrive on my phone.",
        ),
    ),
    "shipping": (
        ("Where is my parcel", "Delivery", "Wrong address", "Question", "Damaged box"),
        (
            "The parcel with {product} should have been here on Monday.",
            "Tracking has not changed for a week.",
            "The courier left {product} with a neighbour whom I do not know.",
            "The box was open and the manual of {product} is missing.",
            "Can you send the order to my office instead?",
        ),
    ),
    "sales": (
        ("Offer", "Discount", "Question", "Upgrade", "Trial"),
        (
            "What does {product} cost for a team of twelve?",
            "Is there a discount on {product} for schools?",
            "We would like to try {product} for a month before we decide.",
            "Can I move from the small plan to the large one in May?",
            "Please send an offer for {product} with support included.",
        ),
    ),
}
PRODUCTS = ("the desktop app", "the scanner", "Planner Pro", "the camera", "the web shop")
GREETINGS = ("Hello,", "Hi there,", "Dear team,", "Good morning,", "")
ENDINGS = ("Thanks, Anna", "Regards", "This is the second time I write.", "Please help.", "")

EMAILS = {  # category: subjects, sentences
    "Rechnung": (
        ("Rechnung", "Doppelte Abbuchung", "Frage", "Rückerstattung"),
        (
            "der Betrag für {product} wurde zweimal abgebucht.",
            "bitte schicken Sie mir die Rechnung über {product} noch einmal zu.",
            "auf die Rückzahlung von 49,90 € für {product} warte ich seit Wochen.",
            "auf der Rechnung steht eine falsche Umsatzsteuernummer.",
        ),
    ),
    "Technik": (
        ("Störung", "Fehlermeldung", "Frage", "Anmeldung geht nicht"),
        (
            "{product} stürzt beim Öffnen größerer Dateien ab.",
            "seit dem Update lässt sich {product} nicht mehr starten.",
            "ich kann mich nicht anmelden, das Passwort wird nicht angenommen.",
            "die Übertragung auf {product} bricht nach wenigen Sekunden ab.",
        ),
    ),
    "Kündigung": (
        ("Kündigung", "Vertrag", "Frage", "Widerruf"),
        (
            "hiermit kündige ich den Vertrag über {product} zum nächsten Termin.",
            "bitte bestätigen Sie mir das Ende der Laufzeit schriftlich.",
            "ich möchte {product} nicht verlängern und bitte um Löschung meiner Daten.",
            "von der Bestellung trete ich innerhalb der Frist zurück.",
        ),
    ),
}
GERMAN_PRODUCTS = ("den Drucker", "die Büro-App", "das Jahresabo", "die Kamera", "das Gerät")
GERMAN_GREETINGS = ("Sehr geehrte Damen und Herren,", "Guten Tag,", "Hallo,", "Grüß Gott,")
GERMAN_ENDINGS = ("Mit freundlichen Grüßen", "Viele Grüße, Jörg Müller", "Danke im Voraus!", "")

Files = dict[str, bytes]  # content by name; the file of new rows begins with `new.`


def table(rows: Iterable[Sequence[str]], *, delimiter: str = ",", encoding: str = "utf-8") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode(encoding)


def messages(
    phrases: dict[str, tuple[tuple[str, ...], tuple[str, ...]]],
    around: Sequence[Sequence[str]],
    num_rows: int,
) -> list[tuple[str, str, str]]:
    """Returns rows (subject, body, category). A tenth of the sentences are of another category."""
    rng, names, rows = np.random.default_rng(1), [*phrases], list[tuple[str, str, str]]()
    while len(rows) < num_rows:
        name = str(rng.choice(names, p=np.arange(len(names), 0, -1) / sum(range(len(names) + 1))))
        said = str(rng.choice(names)) if rng.random() < 0.1 else name
        products, greetings, endings = (str(rng.choice(words)) for words in around)
        sentences = rng.choice(phrases[said][1], 2, replace=False)
        body = " ".join(str(s).replace("{product}", products) for s in sentences)
        body = " ".join(part for part in (greetings, body, endings) if part)
        subject = f"{rng.choice(phrases[name][0])} {rng.choice(('', f'(no. {len(rows)})'))}"
        rows.append((subject.strip(), body, name))
    return rows


def tickets(datasets: Path) -> Files:
    rows = messages(TICKETS, (PRODUCTS, GREETINGS, ENDINGS), 300)
    new = [("Refund please", "I paid for the scanner twice."), ("", "My parcel has not arrived.")]
    return {
        "tickets.csv": table([("subject", "body", "queue"), *rows]),
        "new.csv": table([("subject", "body"), *new]),
    }


def emails(datasets: Path) -> Files:
    rows = messages(EMAILS, (GERMAN_PRODUCTS, GERMAN_GREETINGS, GERMAN_ENDINGS), 400)
    new = [("Kündigung", "Hiermit kündige ich das Abo."), ("Frage", "Die App stürzt ständig ab.")]
    as_excel = {"delimiter": ";", "encoding": "utf-8-sig"}
    return {
        "emails.csv": table([("Betreff", "Text", "Kategorie"), *rows], **as_excel),
        "new.csv": table([("Betreff", "Text"), *new], **as_excel),
    }


def trec(datasets: Path) -> Files:
    new = ["Who wrote Hamlet ?", "Where is Mount Everest ?", "How many legs does a spider have ?"]
    asked = table((cell,) for cell in ["question", *new, "What does NASA stand for ?"])
    return {"trec.csv": (datasets / "trec.csv").read_bytes(), "new.csv": asked}


def sst2(datasets: Path) -> Files:
    """Returns 2,000 sentences with a header, as many would cut a sample."""
    lines = (datasets / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()
    chosen = sorted(np.random.default_rng(1).choice(len(lines), 2000, replace=False))
    rows = [lines[i].split("\t") for i in chosen]
    new = [("sentence",), ("a dull and slow film",), ("one of the best films of the year",)]
    return {
        "sst2.tsv": table([("sentence", "label"), *rows], delimiter="\t"),
        "new.csv": table(new),
    }


def wnut(datasets: Path) -> Files:
    names = {"train": "wnut17train.conll", "dev": "emerging.dev.conll"}
    files = {f"wnut/{k}.conll": (datasets / "wnut17" / n).read_bytes() for k, n in names.items()}
    test = (datasets / "wnut17" / "emerging.test.annotated").read_bytes()
    words = "Angela\nMerkel\nvisits\nParis\n\nI\nlove\nmy\nNokia\n\n"
    return {**files, "wnut/test.conll": test, "new.conll": words.encode()}


def squad(datasets: Path) -> Files:
    context = "The tower was built in 1889 by the company of Gustave Eiffel. It is in Paris."
    new = [("Who built the tower?", context), ("Where is it?", context)]
    return {
        "squad.json": (datasets / "qa" / "xquad.en.json").read_bytes(),
        "new.csv": table([("question", "context"), *new]),
    }


def translation(datasets: Path) -> Files:
    """Returns two files line by line, with 5,000 pairs."""
    files: Files = {}
    for language in ("en", "de"):
        lines = gzip.decompress((datasets / "multi30k" / f"train.{language}.gz").read_bytes())
        files[f"flickr/train.{language}"] = b"".join(lines.splitlines(keepends=True)[:5000])
    return {**files, "new.csv": table([("text",), ("A man rides a bike.",), ("Two dogs play.",)])}


def multi_label(datasets: Path) -> Files:
    """Returns tweets with the types of the names in them, joined by |."""
    lines = (datasets / "wnut17" / "wnut17train.conll").read_text(encoding="utf-8").splitlines()
    rows = [("tweet", "names")]
    for is_word, block in groupby(lines, key=lambda line: bool(line.strip())):
        words = [line.split("\t") for line in block] if is_word else []
        types = sorted({tag.partition("-")[2] for _, tag in words} - {""})
        rows += [(" ".join(word for word, _ in words), "|".join(types))] if types else []
    new = [("tweet",), ("Off to London with Sarah tomorrow",), ("Watching Toy Story 3 again",)]
    return {"tweets.csv": table(rows), "new.csv": table(new)}


FLAGS = {
    "translation": ("--text", "en", "--set", "target=de"),
    "multi_label": ("--task", "multi_label"),
}
WALKS: dict[str, Callable[[Path], Files]] = {
    walk.__name__: walk
    for walk in (trec, sst2, wnut, squad, translation, multi_label, emails, tickets)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WALKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--datasets", type=Path, default=Path())
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
    files = WALKS[options.name](options.datasets)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    data, *_, new = (name.partition("/")[0] for name in files)
    minutes = str(MINUTES.get(options.name, USUAL_MINUTES))
    commands = {
        "new": ("--minutes", minutes, *FLAGS.get(options.name, ()), data),
        "repro": ("--jobs", "auto"),
        "summary": (),
        "predict": (new,),
    }
    environment = os.environ | {"COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{folder}/.venv/bin:{environment['PATH']}"
    took = list[str]()
    with folder.with_suffix(".log").open("wb") as log:
        for name, arguments in commands.items():
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            command = [folder / ".venv/bin/python", "-m", f"stages.commands.{name}", *arguments]
            status = subprocess.run(
                command, cwd=folder, env=environment, stdout=log, stderr=log
            ).returncode
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
            busy = sum(getattr(after, k) - getattr(before, k) for k in ("ru_utime", "ru_stime"))
            took.append(f"{name}: status {status}, {wall:.0f} s, {busy:.0f} s of processors")
            if status:
                break
        log.write("\n".join([*took, f"load {os.getloadavg()}", ""]).encode())
    print(folder.with_suffix(".log").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
