"""Print the answer of the study's report."""

from rich.console import Console
from rich.text import Text

from stages.commands._shared import parser_of
from stages.core import paths
from stages.core.process import exit_on_mistake
from stages.core.study_file import PATH, read_yaml
from stages.evaluation.records import read_texts


def main() -> None:
    parser_of("summary", __doc__).parse_args()
    exit_on_mistake(lambda: show(Console()))


def show(console: Console) -> None:
    """Prints reports/answer.txt. Raises ValueError if there is no report."""
    path = paths.REPORTS / "answer.txt"
    if not path.exists():
        raise ValueError(f"{path}: no such file; `dvc repro` writes the report")
    question, answer, *others = path.read_text(encoding="utf-8").split("\n\n")
    text = Text("\n\n").join([Text(question), Text(answer, "bold"), *map(Text, others)])
    console.print(text, soft_wrap=True, end="")
    reported, declared = studies()
    if declared != reported:
        console.print(f"This is the study {reported}; params.yaml is {declared}.", highlight=False)


def studies() -> tuple[str | None, str]:
    """Returns the study of the report, None without a report, and that of params.yaml."""
    reported = next((row["study"] for row in read_texts(paths.REPORTS / "trials.csv")), None)
    return reported, str(read_yaml(PATH).get("study"))


if __name__ == "__main__":
    main()
