"""The cost of fine-tuning, from params.yaml and from the tasks that are prepared."""

from pathlib import Path

import pytest

from stages.core import paths
from stages.core.artifacts import read_json, read_jsonl, write_json, write_jsonl
from stages.core.keys import TrialKey
from stages.core.params import Params
from stages.planning.finetuning_costs import Finetuning, finetunings
from stages.planning.task_texts import SAMPLED_ROWS
from stages.tasks._pooled import Reading
from stages.tasks.classification import Classification
from stages.training.finetuning import BUCKET_BATCHES, FinetuningData
from tests.planning.studies import with_finetune, with_gpt2, with_run
from tests.small import small_tokenizer
from tests.small_study import SCRATCH, write_study
from tests.smoke import alone

WORK = ("num_steps", "tokens", "flops", "prediction_flops")


def costs(params: Params, **options: object) -> dict[tuple[str, str, str], Finetuning]:
    return {(c.run, c.task, c.method): c for c in finetunings(params, **options)}  # type: ignore[arg-type]


def test_finetunings_count_steps_and_tokens(fresh: Params) -> None:
    """Two trials learn 50 labels for 3 epochs in batches of 16, and every text is taken to have 64
    tokens, the maximum. A probe goes forward once, full fine-tuning forward and backward in each
    epoch."""
    of_study = costs(fresh)
    full, probe = (of_study["encoder_mlm", "tag", m] for m in ("full", "linear_probe"))
    assert (full.num_trials, full.num_steps, full.tokens) == (2, 2 * 3 * 4, 2 * 3 * 50 * 64)
    assert full.assumes_lengths and full.text_tokens == full.longest_text == 64
    assert full.flops is not None and full.flops == 9 * (probe.flops or 0)


def test_finetunings_count_the_trials_of_every_pretraining_seed(fresh: Params) -> None:
    one = costs(fresh)
    three = costs(with_run(with_run(fresh, "encoder_mlm", seeds=[1, 2, 3]), "encoder_scratch"))
    for method in ("full", "linear_probe"):
        before, after = (of["encoder_mlm", "tag", method] for of in (one, three))
        assert after.num_trials == 3 * before.num_trials == 6
        for name in (*WORK, "disk_bytes"):
            assert getattr(after, name) == (
                None if getattr(before, name) is None else 3 * getattr(before, name)
            )
        assert len(after.shares) == 3 * len(before.shares)
    assert three["decoder_causal", "tag", "full"] == one["decoder_causal", "tag", "full"]


def test_finetunings_have_the_runs_that_a_method_does_not_leave_out(fresh: Params) -> None:
    probe = fresh.finetune.methods["linear_probe"].model_copy(update={"only": ["encoder_mlm"]})
    methods = fresh.finetune.methods | {"linear_probe": probe}
    before, after = costs(fresh), costs(with_finetune(fresh, methods=methods))
    assert after == {
        key: cost
        for key, cost in before.items()
        if key[0] == "encoder_mlm" or key[2] != "linear_probe"
    }
    assert len(after) < len(before)


def test_finetunings_share_their_work_by_groups_of_trials(fresh: Params) -> None:
    """A trial that trains is a group. The probes of a checkpoint are one group, because they share
    its states; from scratch each seed has its own backbone, so its probes are a group."""
    of_study = costs(with_finetune(fresh, seeds=[1, 2, 3]))
    thirds = pytest.approx([1 / 3] * 3)
    assert of_study["encoder_mlm", "tag", "full"].shares == thirds
    probe, scratch = (
        of_study[run, "tag", "linear_probe"] for run in ("encoder_mlm", "encoder_scratch")
    )
    assert probe.shares == [1.0] and scratch.shares == thirds
    assert scratch.flops == probe.flops
    assert scratch.prediction_flops == pytest.approx(3 * (probe.prediction_flops or 0))


def test_finetunings_leave_out_the_work_of_stored_trials(fresh: Params) -> None:
    params = with_finetune(fresh, seeds=[1, 2, 3])
    stored = {
        TrialKey("encoder_mlm", 1, "tag", method, "50", seed)
        for method in ("full", "linear_probe")
        for seed in (1, 2)
    }
    before, after, alone = (
        costs(params),
        costs(params, stored=stored),
        costs(with_finetune(fresh, seeds=[3])),
    )
    for method in ("full", "linear_probe"):
        key = "encoder_mlm", "tag", method
        assert (after[key].num_trials, after[key].num_stored) == (3, 2)
        for name in WORK:
            assert getattr(after[key], name) == getattr(alone[key], name)
        assert after[key].prediction_flops_of_all == before[key].prediction_flops
    other = "encoder_mlm", "section", "full"
    assert after[other] == before[other]


def test_finetunings_count_all_variants_that_a_trial_tries(fresh: Params) -> None:
    """A probe computes the states of a backbone once, however they are read."""
    section = fresh.tasks["section"]
    entry = {"name": "classification", "pooling": ["mean", "last", "first"]}
    tasks = fresh.tasks | {"section": section.model_copy(update={"task": entry})}
    several = with_finetune(fresh, initial_weights=["as_pretrained", "usual"])
    one, all_of_them = costs(fresh), costs(several.model_copy(update={"tasks": tasks}))
    for run, states, starts in (
        ("encoder_mlm", 3, 1),
        ("decoder_causal", 2, 1),
        ("encoder_scratch", 3, 2),
    ):
        for task, tries in (("section", states * starts), ("tag", starts)):
            for method, times in (("full", tries), ("linear_probe", starts)):
                before, after = (of[run, task, method] for of in (one, all_of_them))
                for name in ("tokens", "flops", "prediction_flops"):
                    expected = times * getattr(before, name)
                    assert getattr(after, name) == pytest.approx(expected)
                assert after.num_steps in (None, tries * (before.num_steps or 0))
                assert after.shares == before.shares


def test_finetunings_have_the_disk_of_the_weights_that_are_kept(fresh: Params) -> None:
    kept = {
        keep: sum(c.disk_bytes or 0 for c in finetunings(with_finetune(fresh, keep_weights=keep)))
        for keep in ("none", "first_seed", "all")
    }
    assert kept["none"] == 0 < kept["first_seed"]
    assert kept["all"] == len(fresh.finetune.seeds) * kept["first_seed"]


def test_finetunings_have_no_numbers_where_rows_are_not_counted(fresh: Params) -> None:
    """Test rows that are not counted are left out; if training rows are not, nothing is known."""
    tag = fresh.tasks["tag"].model_copy(update={"num_train": "all", "num_test": "all"})
    params = fresh.model_copy(update={"tasks": {"tag": tag}})
    assert all(c.leaves_out_rows and c.flops for c in finetunings(params))
    all_labels = finetunings(with_finetune(params, label_budgets=["all"]))
    assert all(cost.flops is None and cost.num_steps is None for cost in all_labels)
    public = [cost for cost in finetunings(with_gpt2(fresh)) if cost.run == "gpt2"]
    assert len(public) == 4  # any method may fit it
    assert all(cost.architecture is None and cost.flops is None for cost in public)


# Tasks that are prepared.


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    monkeypatch.chdir(tmp_path)
    return alone(write_study(tmp_path, lr=1e-3), SCRATCH)


def test_finetunings_measure_the_texts_of_prepared_tasks(prepared: Params) -> None:
    for cost in finetunings(prepared):
        assert not cost.assumes_lengths
        assert cost.text_tokens is not None
        # A probe reads the texts in larger batches, padded to the longest.
        assert 3 < cost.text_tokens < (64 if cost.method == "full" else 65)
    long, short = (
        costs(with_finetune(prepared, max_tokens=number))[SCRATCH, "tag", "full"]
        for number in (200, 6)
    )
    assert long.rows_cut == long.tokens_cut == 0.0
    assert short.text_tokens == 6 and 0 < short.tokens_cut < 1 and 0 < short.rows_cut <= 1


def test_finetunings_count_more_labels_than_were_prepared(prepared: Params) -> None:
    """A study copied over params.yaml may ask for more labels than its tasks were prepared with."""
    key = SCRATCH, "tag", "full"
    few = costs(prepared)[key]
    tasks = {
        name: task.model_copy(update={"num_train": 9000}) for name, task in prepared.tasks.items()
    }
    larger = with_finetune(prepared.model_copy(update={"tasks": tasks}), label_budgets=[4500])
    many = costs(larger, changed=tasks)[key]
    assert few.num_steps is not None and many.num_steps is not None
    assert many.text_tokens == pytest.approx(few.text_tokens, rel=0.3)  # of the same texts
    assert many.num_steps > 10 * few.num_steps
    with pytest.raises(ValueError, match="4500 labels, but"):
        finetunings(larger)


def test_finetunings_count_the_tokens_of_all_windows_that_an_epoch_reads(prepared: Params) -> None:
    """Padding counts. All rows of train are in one bucket, so their order does not matter."""
    record = paths.examples("section") / "task.json"
    settings = {"name": "classification", "long_texts": "windows"}
    write_json(record, read_json(record) | {"task": settings})
    method = {"full": prepared.finetune.methods["full"]}
    params = with_finetune(prepared, max_tokens=8, label_budgets=["all"], methods=method)
    tasks = {"section": params.tasks["section"]}
    (cost,) = finetunings(params.model_copy(update={"tasks": tasks}))
    labels = read_json(record)["labels"]
    task = Classification(labels, small_tokenizer(), 8, Reading(long_texts="windows"))
    examples = task.encode(read_jsonl(record.with_name("train.jsonl")))
    training = params.finetune.methods["full"].training
    assert training is not None and cost.num_steps is not None and cost.text_tokens is not None
    number = training.batch_examples
    assert len(examples) <= min(SAMPLED_ROWS, BUCKET_BATCHES * number)
    data = FinetuningData(examples, task, batch_examples=number, seed=1)
    batches = [batch for step in range(data.steps_per_epoch) for batch in data.micro_batches(step)]
    num_epochs = cost.num_steps / data.steps_per_epoch
    assert cost.tokens == num_epochs * sum(batch.input_ids.numel() for batch in batches)
    assert sum(len(batch.input_ids) for batch in batches) > 1.5 * len(examples)
    assert cost.text_tokens <= 8 and cost.longest_text == 8 and cost.rows_cut == 0.0


# Tasks whose files can be read before they are prepared.


def with_task(params: Params, name: str, path: Path, **settings: object) -> Params:
    """Returns the study with one task, of a file, whose rows are all used."""
    section = params.tasks["section"]
    changes = {
        "task": {"name": name, **settings},
        "source": {"name": "files", "path": str(path)},
        **dict.fromkeys(("num_train", "num_validation", "num_test"), "all"),
    }
    return params.model_copy(update={"tasks": {"own": section.model_copy(update=changes)}})


def test_finetunings_count_the_windows_of_contexts_in_files(fresh: Params) -> None:
    """A context of 201 words has 442 tokens and its question 4. A window of 64 tokens has 57 of the
    context and shares 8 of them with the next window, so that there are nine."""
    context = " ".join(f"word{i}" for i in range(200))
    answers = [{"text": "word0", "answer_start": 0}]
    rows = [
        {"question": "Which word?", "context": f"{context} {i}", "answers": answers}
        for i in range(100)
    ]
    write_jsonl(Path("own.jsonl"), rows)
    settings = {"stride": 8, "max_question_tokens": 16}
    params = with_task(fresh, "span_qa", Path("own.jsonl"), **settings)
    cost = costs(params)["encoder_mlm", "own", "full"]
    short = costs(with_finetune(params, max_tokens=500))["encoder_mlm", "own", "full"]
    assert cost.assumes_lengths and not cost.leaves_out_rows and cost.longest_text == 64
    assert cost.rows_cut == 0
    assert cost.num_steps is not None and short.num_steps is not None
    training = params.finetune.methods["full"].training
    assert training is not None
    assert cost.num_steps == 2 * 3 * -(-50 * 9 // training.batch_examples)
    assert short.num_steps == 2 * 3 * -(-50 // training.batch_examples)
    assert (cost.tokens or 0) > (short.tokens or 0)  # windows repeat tokens and questions


def test_finetunings_count_the_windows_and_rows_of_texts_in_files(fresh: Params) -> None:
    """A text of 123 tokens is read in windows of 62. A script without blanks has tokens of
    letters."""
    words = " ".join(["word"] * 55)
    letters = "\u4e00" * 55
    for text, sign in ((words, " "), (letters, "\u4e01")):
        rows = [{"text": f"{text}{sign}{i}", "label": "ab"[i % 2]} for i in range(80)]
        write_jsonl(Path("own.jsonl"), rows)
        cut, read = (
            costs(with_task(fresh, "classification", Path("own.jsonl"), long_texts=how))
            for how in ("cut", "windows")
        )
        key = "encoder_mlm", "own", "full"
        assert cut[key].text_tokens == 64
        assert (read[key].tokens or 0) > 1.5 * (cut[key].tokens or 0)
        every = with_finetune(
            with_task(fresh, "classification", Path("own.jsonl")), label_budgets=["all"]
        )
        assert costs(every)[key].num_steps


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("tagging", {"words": ["He", "runs"], "tags": ["O", "B-X"]}),
        ("seq2seq", {"text": "one two", "target": "two one"}),
        ("regression", {"text": "one two", "target": 1.5}),
        ("multiple_choice", {"text": "one two", "choices": ["one", "two"], "label": 0}),
        ("language_modelling", {"text": "one two three"}),
    ],
)
def test_finetunings_estimate_the_lengths_of_every_kind_in_files(
    fresh: Params, name: str, row: dict[str, object]
) -> None:
    """Rows are short, so that their texts are far below the maximum."""
    first = "words" if name == "tagging" else "text"
    rows = [
        row
        | {first: [*row[first], f"x{i}"] if name == "tagging" else f"{row[first]} {i}"}  # type: ignore[misc]
        | ({"tags": [*row["tags"], "O"]} if name == "tagging" else {})  # type: ignore[misc]
        for i in range(80)
    ]
    write_jsonl(Path("own.jsonl"), rows)
    settings = {"max_target_tokens": 16} if name == "seq2seq" else {}
    of_study = costs(with_task(fresh, name, Path("own.jsonl"), **settings))
    assert of_study and all((cost.text_tokens or 64) < 32 for cost in of_study.values())
