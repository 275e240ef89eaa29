"""Everything that can be wrong in params.yaml is refused before anything runs."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stages import check_params
from stages.checking.faults import find_faults
from stages.checking.lengths import writing_faults
from stages.core.params import Method, Params, PublishedTokenizer, load
from stages.matching.budget import plans, step_flops
from tests.core.test_params import STUDIES, edited
from tests.small import small_model, with_encoder_decoder
from tests.small_hub import MAX_POSITIONS, checkpoint, revision_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def in_project(monkeypatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)  # a source's path is relative to the project
    yield


def faults_of(params: Params) -> list[str]:
    return list(find_faults(params))


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_the_studies_that_are_shipped_have_no_fault(path, monkeypatch) -> None:
    if "../shared/datasets" in path.read_text() and not (ROOT / "../shared/datasets").is_dir():
        pytest.skip("the published datasets are not beside the repository")
    monkeypatch.chdir(ROOT)
    assert faults_of(load(path)) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "corpus: prose\n    tok",
            "corpus: prsoe\n    tok",
            "pretrain.encoder_mlm.corpus: unknown",
        ),
        ("tokenizer: unigram", "tokenizer: bpe", "pretrain.encoder_mlm.tokenizer: unknown 'bpe'"),
        ("parent: none", "parent: bert", "pretrain.encoder_mlm.parent: unknown 'bert'"),
        (
            "parent: none",
            "parent: encoder_mlm",
            "parent: encoder_mlm -> encoder_mlm goes round in a circle",
        ),
        (
            "parent: none",
            "parent: decoder_causal",
            "parent: the weights of decoder_causal are of another model: name is decoder there",
        ),
        (
            "objective: {name: mlm}",
            "objective: {name: causal}",
            "causal does not fit encoder; it fits",
        ),
        ("objective: {name: mlm}", "objective: {name: mml}", "did you mean 'mlm'"),
        ("objective: {name: mlm}", "objective: {}", "pretrain.encoder_mlm.objective.name: unknown"),
        ("objective: {name: none}", "objective: {name: mlm}", "mlm needs a corpus, not none"),
        (
            "reference: encoder_mlm",
            "reference: encoder",
            "budget.reference: unknown 'encoder'; did you mean",
        ),
        (
            "reference: encoder_mlm",
            "reference: encoder_scratch",
            "budget.reference: encoder_scratch trains nothing",
        ),
        ("num_heads: 2", "num_heads: 5", "model: num_heads 5 must divide d_model 64"),
        ("d_ff: 256", "d_f: 256", "pretrain.encoder_mlm.model.d_f: unknown 'd_f'"),
        (
            "encoder, d_model: 64, num_layers: 2, num_heads: 2,",
            "encoder, d_model: 100, num_layers: 2,",
            "pretrain.encoder_mlm.model: num_heads is d_model / 64 if it is left out, and 100 is",
        ),
        (
            "num_layers: 2, num_heads: 2",
            "num_layers: 2, aspect_ratio: 32, num_heads: 2",
            "pretrain.encoder_mlm.model: num_layers and aspect_ratio say the same; leave one of",
        ),
        ("num_layers: 2,", "aspect_ratio: low,", "aspect_ratio: input should be a valid integer"),
        (
            "d_ff: 256",
            "d_ff: 256, positions: learned, max_positions: 32",
            "pretrain.encoder_mlm.training.max_tokens: 64 is more than",
        ),
        (
            "d_ff: 256}\n    objective: {name: mlm}",
            "d_ff: 256, num_segments: 1}\n    objective: {name: mlm, next_sentence: nsp}",
            "pretrain.encoder_mlm.model.num_segments: must be 2 for the pairs of next_sentence",
        ),
        (
            "objective: {name: mlm}",
            "objective: {name: mlm, next_sentence: next}",
            "pretrain.encoder_mlm.objective.next_sentence: input should be 'nsp', 'sop' or 'none'",
        ),
        (
            "encoder, d_model: 64, num_layers: 2, num_heads: 2, d_ff: 256}",
            "bilstm, d_model: 64, num_layers: 2, d_cell: 256, positions: learned}",
            "pretrain.encoder_mlm.model.positions: unknown 'positions'",
        ),
        (
            "encoder, d_model: 64, num_layers: 2, num_heads: 2, d_ff: 256}",
            "bilstm, d_model: 64, num_layers: 2, d_cell: 256}",
            "mlm does not fit bilstm; it fits encoder",
        ),
        (
            "micro_batch_rows: 16",
            "micro_batch_rows: 3",
            "micro_batch_rows: 3 must divide batch_rows",
        ),
        (
            "num_validations: 4",
            "num_validations: 99",
            "num_validations: must be at most num_steps 40",
        ),
        (
            "vocab_size: 2048",
            "vocab_size: 300",
            "tokenizers.unigram.vocab_size: must be more than 361",
        ),
        ("corpus: prose, alg", "corpus: pros, alg", "tokenizers.unigram.corpus: unknown 'pros'"),
        ("path: requirements.lock", "path: nowhere.txt", "no such file or folder: nowhere.txt"),
        ("name: installed_docs", "name: installed", "corpora.prose.source.name: unknown"),
        ("{name: tagging", "{name: taging", "tasks.tag.task.name: unknown 'taging'"),
        (
            "{name: tagging, label_subwords: first}",
            "{name: span_qa, stride: 500}",
            "tasks.tag.task: stride 500 and max_question_tokens 64 leave no room",
        ),
        ("label_subwords: first", "label_subwords: some", "tasks.tag.task.label_subwords: input"),
        ("label_budgets: [50]", "label_budgets: [500]", "500 is more than tasks.tag.num_train"),
        ("label_budgets: [50]", "label_budgets: [50, 50]", "label_budgets: must not repeat"),
        ("{name: full}", "{name: ful}", "finetune.methods.full.method.name: unknown 'ful'"),
        ("{name: tfidf}", "{name: tfidf, x: 1}", "baselines.tfidf.x: unknown 'x'"),
        ("packages: &packages [mlflow, pandas]", "packages: &packages [pandsa]", "pandsa"),
    ],
)
def test_a_fault_is_named_with_its_path(tmp_path, old, new, message) -> None:
    path = edited(tmp_path, old, new)
    try:
        faults = faults_of(load(path))
    except ValueError as error:
        faults = [str(error)]
    assert any(message in fault for fault in faults), faults


def test_an_architecture_that_is_no_transformer_has_no_fault(tmp_path) -> None:
    path = edited(
        tmp_path,
        "decoder, d_model: 64, num_layers: 2, num_heads: 2, d_ff: 256}\n"
        "    objective: {name: causal}",
        "bilstm, d_model: 64, num_layers: 2, d_cell: 128}\n    objective: {name: bidirectional_lm}",
    )
    assert faults_of(load(path)) == []


def test_matched_parameters_need_an_encoder_of_a_bilstm_s_width(tmp_path) -> None:
    path = edited(
        tmp_path,
        "decoder, d_model: 64, num_layers: 2, num_heads: 2, d_ff: 256}\n"
        "    objective: {name: causal}",
        "bilstm, d_model: 100}\n    objective: {name: bidirectional_lm}",
    )
    params = load(path)
    assert faults_of(params) == []
    budget = params.budget.model_copy(update={"matched": "parameters"})
    [fault] = faults_of(params.model_copy(update={"budget": budget}))
    assert fault.startswith("pretrain.decoder_causal.model.d_model: must be a multiple of 64")


BILSTM = "{name: bilstm, d_model: 64, num_layers: 2, d_cell: 128}"


def with_method(tmp_path: Path, method: str) -> Path:
    return edited(tmp_path, "{name: full}", method)


def test_a_method_need_not_fit_every_run(tmp_path) -> None:
    text = with_method(tmp_path, "{name: lora, rank: 2}").read_text()
    old = "{name: decoder, d_model: 64, num_layers: 2, num_heads: 2, d_ff: 256}"
    objective = ("objective: {name: causal}", "objective: {name: bidirectional_lm}")
    (tmp_path / "params.yaml").write_text(text.replace(old, BILSTM).replace(*objective))
    assert faults_of(load(tmp_path / "params.yaml")) == []


def test_a_method_that_fits_no_run_and_a_run_that_no_method_fits_are_refused(tmp_path) -> None:
    path = with_method(tmp_path, "{name: bitfit}")
    path.write_text(path.read_text().replace("d_ff: 256}", "d_ff: 256, bias: false}"))
    (fault,) = faults_of(load(path))
    where = "finetune.methods.full.method: bitfit fits no run and task: it trains biases"
    assert fault.startswith(where) and "model.bias" in fault
    path.write_text(path.read_text().replace("{name: linear_probe}", "{name: bitfit}"))
    faults = faults_of(load(path))
    runs = [fault for fault in faults if fault.startswith("pretrain.")]
    tasks = [fault for fault in faults if fault.startswith("tasks.")]
    assert len(faults) == 2 + len(runs) + len(tasks) and (len(runs), len(tasks)) == (3, 2)
    assert runs[0].startswith("pretrain.encoder_mlm.model: no method fits it: full trains biases")


def test_a_prompt_must_have_positions(tmp_path) -> None:
    path = with_method(tmp_path, "{name: prompt, num_prompt_tokens: 5}")
    assert faults_of(load(path)) == []
    learned = "d_ff: 256, positions: learned, max_positions: 68}"
    path.write_text(path.read_text().replace("d_ff: 256}", learned, 1))
    faults = faults_of(load(path))
    assert faults[0] == (
        "finetune.methods.full.method: adds 5 tokens to the 64 of finetune.max_tokens, which is "
        "more than the 68 positions of pretrain.encoder_mlm.model"
    )


COMMIT = "0123456789abcdef0123456789abcdef01234567"
BERT = f"{{name: hub, path: google-bert/bert-base-uncased, revision: {COMMIT}}}"


def with_public(tmp_path: Path, model: str = BERT, **changed: str) -> Params:
    """The smoke study, its run from scratch made a public checkpoint."""
    settings = {"corpus": "none", "tokenizer": "none", "objective": "{name: none}"} | changed
    old = """corpus: none
    tokenizer: unigram
    parent: none
    model: *encoder
    objective: {name: none}"""
    new = f"""corpus: {settings["corpus"]}
    tokenizer: {settings["tokenizer"]}
    parent: {settings.get("parent", "none")}
    model: {model}
    objective: {settings["objective"]}"""
    return load(edited(tmp_path, old, new))


def test_a_public_checkpoint_pinned_by_its_commit_has_no_fault(tmp_path) -> None:
    """Without a network: what it holds is not asked for."""
    assert faults_of(with_public(tmp_path)) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokenizer": "unigram"}, "tokenizer: must be none, not unigram: a public checkpoint"),
        (
            {"corpus": "prose", "objective": "{name: mlm}"},
            "tokenizer: must be that of the checkpoint, an entry of tokenizers with algorithm hub",
        ),
        ({"objective": "{name: mlm}"}, "corpus: unknown 'none'"),
        ({"objective": "{name: mlm, mask_porb: 0.2}"}, "objective.mask_porb: unknown"),
        ({"objective": "{name: distillation}"}, "objective: distillation has a teacher"),
        ({"objective": "{name: prefix_lm}"}, "objective: prefix_lm shows a prefix in both"),
        ({"corpus": "prose"}, "corpus: must be none, not prose"),
        ({"parent": "encoder_mlm"}, "parent: must be none, not encoder_mlm"),
        ({"model": BERT.replace(COMMIT, "main")}, "model.revision: must be the hash of a commit"),
        ({"model": BERT.replace("google-bert/", "here/or/")}, "model.path: no such folder"),
        ({"model": "{name: hub, path: gpt2}"}, "model.revision: missing"),
        ({"model": "{name: hub, path: gpt2, revision: 607}"}, "model.revision: input should be"),
        ({"model": BERT[:-1] + ", trust_remote_code: true}"}, "model.trust_remote_code: unknown"),
    ],
)
def test_a_fault_of_a_public_checkpoint_is_named_with_its_path(tmp_path, changed, message) -> None:
    faults = faults_of(with_public(tmp_path, **changed))
    assert any(f.startswith(f"pretrain.encoder_scratch.{message}") for f in faults), faults


def test_of_a_local_checkpoint_everything_is_known_before(tmp_path) -> None:
    folder = shutil.copytree(checkpoint("bert"), tmp_path / "mine")

    def faults(revision: str, max_tokens: int = MAX_POSITIONS) -> list[str]:
        model = f"{{name: hub, path: {folder}, revision: {revision!r}}}"
        params = with_public(tmp_path, model)
        finetune = params.finetune.model_copy(update={"max_tokens": max_tokens})
        return faults_of(params.model_copy(update={"finetune": finetune}))

    assert faults(revision_of(folder)) == []
    (fault,) = faults(revision_of(folder), MAX_POSITIONS + 1)
    assert fault.startswith(f"finetune.max_tokens: {MAX_POSITIONS + 1} is more than pretrain.enc")
    (fault,) = faults("0" * 12)
    where = "pretrain.encoder_scratch.model"
    assert fault.startswith(f"{where}.revision: the folder's content is '{revision_of(folder)}'")
    (folder / "config.json").write_text("{}")
    (fault,) = faults("0" * 12)
    assert fault.startswith(f"{where}.path: {folder} is no model of transformers")


def with_further(tmp_path: Path, family: str, objective: str, **changed: Any) -> Params:
    """The smoke study, its run from scratch made a small checkpoint that is pretrained further, and
    the checkpoint's tokenizer an entry."""
    pinned = {"path": str(checkpoint(family)), "revision": revision_of(checkpoint(family))}
    model = f"{{name: hub, path: {pinned['path']}, revision: {pinned['revision']!r}}}"
    params = with_public(tmp_path, model, corpus="prose", objective=f"{{name: {objective}}}")
    tokenizer = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    run = params.pretrain["encoder_scratch"].model_copy(update={"tokenizer": "own"} | changed)
    return params.model_copy(
        update={
            "tokenizers": params.tokenizers | {"own": tokenizer},
            "pretrain": params.pretrain | {"encoder_scratch": run},
        }
    )


FITTING = {
    "mlm": ("bert", "roberta"),
    "span_mlm": ("roberta",),
    "causal": ("gpt2",),
    "span_corruption": ("t5",),
    "denoising": ("bart",),
    "multi_task": ("gpt2", "t5"),
}


@pytest.mark.parametrize(("objective", "families"), FITTING.items())
def test_a_checkpoint_is_pretrained_further_by_what_fits_its_kind(
    tmp_path, objective, families
) -> None:
    for family in families:
        params = with_further(tmp_path, family, objective)
        for matched in ("tokens", "flops"):
            budget = params.budget.model_copy(update={"matched": matched})
            params = params.model_copy(update={"budget": budget})
            assert faults_of(params) == []
            reference, run = (params.pretrain[k] for k in ("encoder_mlm", "encoder_scratch"))
            steps = plans(params)["encoder_scratch"].num_steps
            assert steps == run.training.num_steps or matched == "flops"
            if matched == "flops":
                whole = reference.training.num_steps * step_flops(params, reference)
                assert steps == max(1, round(whole / step_flops(params, run)))


@pytest.mark.parametrize(
    ("family", "objective", "message"),
    [
        ("bert", "causal", "objective: causal does not fit encoder; it fits decoder"),
        ("gpt2", "mlm", "objective: masks tokens, and the tokenizer has no token for that"),
        ("t5", "mlm", "objective: masks tokens, and the tokenizer has no token for that"),
        ("bart", "mlm", "objective: mlm does not fit encoder_decoder; it fits encoder"),
        ("bart", "span_corruption", "objective: needs sentinels (T5's <extra_id_0>, ...)"),
        ("t5", "denoising", "objective: needs a mask"),
        ("roberta", "mlm, next_sentence: nsp", "objective: next_sentence nsp needs a tokenizer"),
    ],
)
def test_what_does_not_fit_a_checkpoint_is_said(tmp_path, family, objective, message) -> None:
    (fault,) = faults_of(with_further(tmp_path, family, objective))
    assert fault.startswith(f"pretrain.encoder_scratch.{message}")


def test_a_tokenizer_belongs_to_its_checkpoint(tmp_path) -> None:
    def one_fault(params: Params) -> str:
        (fault,) = faults_of(params)
        return fault

    where = "pretrain.encoder_scratch"
    params = with_further(tmp_path, "bert", "mlm", tokenizer="unigram")
    assert one_fault(params).endswith("not unigram; that is own")
    other = with_further(tmp_path, "roberta", "mlm").tokenizers["own"]
    params = with_further(tmp_path, "bert", "mlm")
    params = params.model_copy(update={"tokenizers": params.tokenizers | {"own": other}})
    assert one_fault(params).startswith(f"{where}.tokenizer: must be that of the checkpoint")

    params = with_further(tmp_path, "bert", "mlm")
    own = params.pretrain["encoder_mlm"].model_copy(update={"tokenizer": "own"})
    params = params.model_copy(update={"pretrain": params.pretrain | {"encoder_mlm": own}})
    faults = faults_of(params)
    assert faults[0].startswith("pretrain.encoder_mlm.tokenizer: own is of a public checkpoint")

    params = with_further(tmp_path, "bert", "mlm")
    long = params.pretrain["encoder_scratch"].training.model_copy(update={"max_tokens": 65})
    params = with_further(tmp_path, "bert", "mlm", training=long)
    assert one_fault(params) == (
        f"{where}.training.max_tokens: 65 is more than {where}.model.max_positions, 64"
    )
    moved = params.tokenizers["own"].model_copy(update={"revision": "0" * 12})
    params = with_further(tmp_path, "bert", "mlm")
    params = params.model_copy(update={"tokenizers": params.tokenizers | {"own": moved}})
    assert "tokenizers.own.revision: the folder's content is" in faults_of(params)[0]


def test_what_a_step_takes_is_not_known_of_what_only_the_hub_has(tmp_path) -> None:
    """Its objective is checked as far as it can be; operations cannot be matched."""
    params = with_public(tmp_path, corpus="prose", tokenizer="own", objective="{name: mlm}")
    model = params.pretrain["encoder_scratch"].model
    pinned = {key: model[key] for key in ("path", "revision")}
    own = PublishedTokenizer(corpus="none", algorithm="hub", **pinned)
    params = params.model_copy(update={"tokenizers": params.tokenizers | {"own": own}})
    assert faults_of(params) == []
    assert plans(params)["encoder_scratch"].num_steps > 1
    budget = params.budget.model_copy(update={"matched": "flops"})
    (fault,) = faults_of(params.model_copy(update={"budget": budget}))
    assert fault.startswith("budget.matched: what a step of encoder_scratch takes is not known")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{corpus: prose, algorithm: hub, path: a, revision: b}", "corpus: input should be 'none'"),
        ("{corpus: none, algorithm: hub, path: a}", "revision: missing"),
        ("{corpus: none, algorithm: hub, path: a, revison: b}", "revison: unknown 'revison'"),
        ("{corpus: prose, algorithm: wordpiece, vocab_size: 9}", "algorithm: input should be"),
    ],
)
def test_a_fault_of_a_tokenizer_is_that_of_its_kind(tmp_path, entry, message) -> None:
    old = "{corpus: prose, algorithm: unigram, vocab_size: 2048, max_sentences: 20000}"
    with pytest.raises(ValueError) as error:
        load(edited(tmp_path, old, entry))
    assert f"tokenizers.unigram.{message}" in str(error.value)


def test_no_run_goes_on_from_a_public_checkpoint(tmp_path) -> None:
    params = with_public(tmp_path)
    child = params.pretrain["encoder_mlm"].model_copy(update={"parent": "encoder_scratch"})
    params = params.model_copy(update={"pretrain": {**params.pretrain, "encoder_mlm": child}})
    assert any("pretrain.encoder_mlm.parent:" in fault for fault in faults_of(params))


def test_a_baseline_that_fits_no_task_is_refused() -> None:
    params = load(ROOT / "studies" / "smoke.yaml")
    only = params.model_copy(update={"tasks": {"tag": params.tasks["tag"]}})
    assert any("baselines.tfidf: fits" in fault for fault in faults_of(only))


def with_prompts(**settings: Any) -> Params:
    """The smoke study's decoder without its tagging, one method in place of its own."""
    params = load(ROOT / "studies" / "smoke.yaml")
    entry = Method(method={"name": "in_context"} | settings.pop("method", {}), **settings)
    finetune = params.finetune.model_copy(update={"methods": {"prompted": entry}})
    tasks, baselines = {"section": params.tasks["section"]}, {"tfidf": params.baselines["tfidf"]}
    update: dict[str, Any] = {"finetune": finetune, "tasks": tasks, "baselines": baselines}
    update["pretrain"] = {"decoder_causal": params.pretrain["decoder_causal"]}
    update["budget"] = params.budget.model_copy(update={"reference": "decoder_causal"})
    return params.model_copy(update=update)


def test_a_method_says_how_it_trains_if_it_does_and_not_if_it_does_not() -> None:
    smoke = load(ROOT / "studies" / "smoke.yaml")
    training = smoke.finetune.methods["full"].training
    assert faults_of(with_prompts(method={"num_shots": 4})) == []
    assert faults_of(with_prompts(training=training)) == [
        "finetune.methods.prompted.training: in_context trains nothing; leave it out"
    ]
    full = {"full": Method(method={"name": "full"})}
    finetune = smoke.finetune.model_copy(update={"methods": full})
    assert faults_of(smoke.model_copy(update={"finetune": finetune})) == [
        "finetune.methods.full.training: missing; say how full trains"
    ]


def test_prompts_that_cannot_be_written_are_refused() -> None:
    assert faults_of(with_prompts(method={"num_shots": 60})) == [
        "finetune.methods.prompted.method.num_shots: 60 is more than the label budget 50"
    ]
    [fault] = faults_of(with_prompts(method={"template": "{text}"}))
    assert fault.startswith("finetune.methods.prompted.method: template: {label} must stand once")
    tagging = {"tasks": load(ROOT / "studies" / "smoke.yaml").tasks}
    tag = with_prompts().model_copy(update={"tasks": {"tag": tagging["tasks"]["tag"]}})
    assert (
        "finetune.methods.prompted.method: in_context fits no run and task: it fits "
        "classification, not tagging"
    ) in faults_of(tag)


def test_a_method_without_training_fits_what_adds_no_head() -> None:
    none = {"name": "none"}
    assert faults_of(with_prompts(method=none, text_to_text=True)) == []
    assert faults_of(with_prompts(text_to_text=True)) == [
        "finetune.methods.prompted.text_to_text: in_context has prompts of its own; leave it out"
    ]
    faults = faults_of(with_prompts(method=none))
    assert (
        "finetune.methods.prompted.method: none fits no run and task: it trains nothing, and "
        "classification has a head to learn; text_to_text has none"
    ) in faults
    text = with_prompts(method=none, text_to_text=True)
    writing = {"name": "seq2seq", "max_target_tokens": 8}
    tasks = {"write": text.tasks["section"].model_copy(update={"task": writing})}
    faults = faults_of(text.model_copy(update={"tasks": tasks, "baselines": {}}))
    assert any("it turns a task into text, which seq2seq is" in fault for fault in faults)
    encoder = {"encoder_scratch": load(ROOT / "studies/smoke.yaml").pretrain["encoder_scratch"]}
    faults = faults_of(text.model_copy(update={"pretrain": encoder}))
    assert any("has a text to write, and encoder models write none" in fault for fault in faults)


def test_tasks_that_are_a_corpus_are_those_of_the_study_and_have_answers_to_write() -> None:
    params = load(ROOT / "studies" / "smoke.yaml")

    def of(**source: Any) -> list[str]:
        entry = {"name": "tasks", "path": "data/tasks"} | source
        (corpus,) = params.corpora.values()
        mixture = corpus.model_copy(update={"source": entry})
        return faults_of(params.model_copy(update={"corpora": params.corpora | {"mix": mixture}}))

    assert of(tasks=["tag", "section"]) == []
    where = "corpora.mix.source"
    assert of(tasks=["tagg"]) == [
        f"{where}.tasks: unknown 'tagg'; did you mean 'tag'? Valid: {', '.join(params.tasks)}"
    ]
    (fault,) = of(tasks=["tag"], temperature=0.0)
    assert fault == f"{where}: temperature: must be at least 1, not 0.0"
    (fault,) = of(tasks=["tag"], path="data/labels")
    assert fault.startswith(f"{where}.path: input should be 'data/tasks'")
    text = params.tasks["section"].model_copy(update={"task": {"name": "language_modelling"}})
    params = params.model_copy(update={"tasks": params.tasks | {"text": text}})
    assert f"{where}.tasks: text is language_modelling, which has no answer to write" in of(
        tasks=["tag", "text"]
    )


def test_what_is_listed_no_more_goes_from_what_stages_depend_on_as_a_whole(
    tmp_path, monkeypatch
) -> None:
    """Else a clone that never had it would run them again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.lock").write_text("")
    params = load(ROOT / "studies" / "smoke.yaml")
    kept = ("tasks/tag/examples", "contamination/prose/unigram.json")
    old = ("tasks/old/examples", "contamination/old/unigram.json", "contamination/prose/bpe.json")
    for name in (*kept, *old):
        Path("data", name).mkdir(parents=True)
    check_params.main(params)
    assert all(Path("data", name).exists() for name in kept)
    assert not any(Path("data", name).exists() for name in old)
    assert sorted(path.name for path in Path("data/contamination").iterdir()) == ["none", "prose"]
    assert not Path("data/contamination/old").exists() and not Path("data/tasks/old").exists()


def test_a_corpus_is_decontaminated_against_tasks_or_nothing(tmp_path) -> None:
    assert faults_of(load(edited(tmp_path, "against: none", "against: tasks"))) == []
    with pytest.raises(ValueError, match=r"corpora\.prose\.decontaminate_against: .*'tasks'"):
        load(edited(tmp_path, "against: none", "against: [tag]"))
    with pytest.raises(ValueError, match=r"corpora\.prose\.decontaminate_against: .*'tasks'"):
        load(edited(tmp_path, "against: none", "against: tag"))
    with pytest.raises(ValueError, match=r"corpora\.prose\.decontaminate_against: missing"):
        load(edited(tmp_path, "    decontaminate_against: none\n", ""))
    params = load(ROOT / "studies" / "smoke.yaml")
    (corpus,) = params.corpora.values()
    source = {"name": "tasks", "path": "data/tasks", "tasks": ["tag"]}
    update = {"source": source, "decontaminate_against": "tasks"}
    mixture = {"mix": corpus.model_copy(update=update)}
    (fault,) = faults_of(params.model_copy(update={"corpora": params.corpora | mixture}))
    assert fault.startswith("corpora.mix.decontaminate_against: must be none for a corpus of tasks")


def test_a_task_without_a_head_needs_a_model_and_methods_that_need_none() -> None:
    params = load(ROOT / "studies" / "smoke.yaml")
    text = params.tasks["section"].model_copy(update={"task": {"name": "language_modelling"}})
    update = {"tasks": {"text": text}, "baselines": {"ngram": {"name": "ngram"}}}
    update["budget"] = params.budget.model_copy(update={"reference": "decoder_causal"})
    faults = faults_of(params.model_copy(update=update))
    assert faults[0] == (
        "finetune.methods.linear_probe.method: linear_probe fits no run and task: it has "
        "language_modelling to learn, which fits decoder, not encoder; adapts the states that a "
        "head reads, where there is none"
    )
    assert [fault.partition(":")[0] for fault in faults[1:]] == [
        "pretrain.encoder_mlm.model",
        "pretrain.encoder_scratch.model",
    ]
    update["pretrain"] = {"decoder_causal": params.pretrain["decoder_causal"]}
    update["finetune"] = with_prompts(method={"name": "none"}).finetune
    assert faults_of(params.model_copy(update=update)) == []


def writing(runs: tuple[str, ...], methods: tuple[str, ...], **settings: Any) -> list[str]:
    """Faults of the smoke study with a task of writing, some of its runs and methods."""
    params = with_encoder_decoder(load(ROOT / "studies" / "smoke.yaml"))
    entry = {"name": "seq2seq", "max_target_tokens": 32} | settings
    finetune = params.finetune.model_copy(
        update={"methods": {name: params.finetune.methods[name] for name in methods}}
    )
    update = {
        "tasks": {"write": params.tasks["tag"].model_copy(update={"task": entry})},
        "pretrain": {name: params.pretrain[name] for name in runs},
        "budget": params.budget.model_copy(update={"matched": "none", "reference": runs[-1]}),
        "baselines": {"copy": {"name": "copy"}},
        "finetune": finetune,
    }
    return faults_of(params.model_copy(update=update))


def test_text_is_written_by_models_with_a_decoder_and_learnt_without_a_head() -> None:
    writers = ("decoder_causal", "encoder_decoder_span")
    assert writing(writers, ("full",)) == []
    (fault,) = writing(("encoder_mlm", *writers), ("full",))
    assert fault.startswith("pretrain.encoder_mlm.model: no method fits it: full has a text to")
    assert fault.endswith("and encoder models write none")
    (fault,) = writing(writers, ("full", "linear_probe"))
    assert fault.startswith("finetune.methods.linear_probe.method: linear_probe fits no run and")
    assert fault.endswith("head reads, where there is none")
    (fault,) = writing(writers, ("full",), num_beams=0)
    assert fault == "tasks.write.task: num_beams must be at least 1, not 0"
    (fault,) = writing(writers, ("full",), num_beems=2)
    assert fault.startswith("tasks.write.task.num_beems: unknown 'num_beems'; did you mean")


def test_a_decoder_needs_positions_for_what_it_writes_too() -> None:
    params = load(ROOT / "studies" / "smoke.yaml")
    longest = params.finetune.max_tokens
    entry = {"name": "seq2seq", "max_target_tokens": 20}
    task = params.tasks["tag"].model_copy(update={"task": entry})
    params = params.model_copy(update={"tasks": {"write": task}})
    for architecture, needed in (("decoder", longest + 19), ("encoder_decoder", longest)):
        for there in (needed - 1, needed):
            model = small_model(architecture, positions="learned", max_positions=there)
            faults = list(writing_faults(params, model, "pretrain.mine"))
            assert (faults == []) == (there == needed)
            assert all(f.startswith("tasks.write.task.max_target_tokens: 20") for f in faults)


SMALL = {"name": "encoder", "d_model": 64, "num_heads": 2, "d_ff": 256}
AFTER = {  # what may follow a run of the smoke study, besides its own objective
    "encoder_mlm": "span_mlm",
    "decoder_causal": "prefix_lm",
    "encoder_decoder_span": "denoising",
}


def with_child(parent: str, **settings: Any) -> Params:
    """The smoke study and a run ``child`` that differs from its parent in ``settings``."""
    params = with_encoder_decoder(load(ROOT / "studies" / "smoke.yaml"))
    child = params.pretrain[parent if parent != "none" else "encoder_mlm"]
    child = child.model_copy(update={"parent": parent, "seed": 2} | settings)
    return params.model_copy(update={"pretrain": params.pretrain | {"child": child}})


def distilled(parent: str, model: dict[str, Any], **settings: Any) -> Params:
    objective = {"name": "distillation"} | settings
    return with_child(parent, model=SMALL | model, objective=objective)


def test_baselines_have_names_of_their_own() -> None:
    params = load(ROOT / "studies" / "smoke.yaml")
    baselines = params.baselines | {"encoder_mlm": {"name": "majority"}}
    methods = params.finetune.methods
    finetune = params.finetune.model_copy(
        update={"methods": methods | {"classical": methods["full"]}}
    )
    update = {"baselines": baselines, "finetune": finetune}
    assert faults_of(params.model_copy(update=update)) == [
        "baselines.encoder_mlm: is also the name of a run; rename one of them",
        "finetune.methods.classical: is what reports call baselines; rename it",
    ]


@pytest.mark.parametrize("parent", AFTER)
def test_every_architecture_may_go_on_from_a_parent(parent) -> None:
    """With another objective of its architecture; what is a default may be written out."""
    child = with_child(parent).pretrain["child"]
    model = child.model | {"num_segments": 0}
    for name in (child.objective["name"], AFTER[parent]):
        assert faults_of(with_child(parent, objective={"name": name}, model=model)) == []
    [fault] = faults_of(with_child(parent, objective={"name": "none"}, model=model))
    assert fault.startswith(f"pretrain.child.objective: none leaves {parent} as it is")


def test_a_parent_s_size_may_be_left_to_its_width() -> None:
    model = {"name": "encoder", "d_model": 64, "aspect_ratio": 32, "num_heads": 2}
    assert faults_of(with_child("encoder_mlm", model=model)) == []
    [fault] = faults_of(with_child("encoder_mlm", model=model | {"aspect_ratio": 64}))
    assert fault.endswith("of another model: num_layers is 2 there and 1 here")


@pytest.mark.parametrize(
    ("setting", "value"), [("d_ff", 128), ("num_segments", 2), ("positions", "none")]
)
def test_the_weights_of_another_model_are_refused(setting, value) -> None:
    params = with_child("encoder_mlm")
    model = params.pretrain["child"].model | {setting: value}
    [fault] = faults_of(with_child("encoder_mlm", model=model))
    assert fault.startswith(
        "pretrain.child.parent: the weights of encoder_mlm are of another model"
    )
    assert f"{setting} is " in fault and fault.endswith(f" there and {value} here")


def test_a_parent_with_another_tokenizer_is_refused() -> None:
    for objective in ({"name": "mlm"}, {"name": "distillation"}):
        params = with_child("encoder_mlm", objective=objective, tokenizer="other")
        tokenizers = params.tokenizers | {"other": params.tokenizers["unigram"]}
        assert faults_of(params.model_copy(update={"tokenizers": tokenizers})) == [
            "pretrain.child.parent: encoder_mlm has the tokenizer unigram, not other"
        ]


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        ({"num_layers": 1}, {}),
        ({"num_layers": 1, "dropout": 0.1}, {}),
        ({"num_layers": 3}, {"student_init": "random"}),
        (
            {"num_layers": 1, "d_model": 32, "positions": "none"},
            {"student_init": "random", "cosine_weight": 0.0},
        ),
    ],
)
def test_a_student_need_not_be_its_teacher_in_small(model, objective) -> None:
    assert faults_of(distilled("encoder_mlm", model, **objective)) == []


@pytest.mark.parametrize(
    ("parent", "model", "objective", "message"),
    [
        ("none", {"num_layers": 1}, {}, "parent: distillation needs a teacher, not none"),
        ("child", {"num_layers": 1}, {}, "parent: child -> child goes round in a circle"),
        ("encoder_scratch", {"num_layers": 1}, {}, "parent: encoder_scratch is not trained, so"),
        ("decoder_causal", {"num_layers": 1}, {}, "parent: decoder_causal is of architecture dec"),
        ("encoder_mlm", {"num_layers": 2}, {}, "every second of 2 layers: num_layers must be 1"),
        ("encoder_mlm", {"num_layers": 1, "num_heads": 4}, {}, "num_heads is 2 there and 4 here"),
        (
            "encoder_mlm",
            {"num_layers": 1, "d_model": 32},
            {"student_init": "random"},
            "parent: encoder_mlm cannot teach this run: cosine_weight compares states: d_model is",
        ),
        ("encoder_mlm", {"num_layers": 1}, {"soft_wieght": 1.0}, "objective.soft_wieght: unknown"),
        (
            "encoder_mlm",
            {"num_layers": 1},
            {"soft_weight": 0.0, "cosine_weight": 0.0},
            "objective: soft_weight and cosine_weight are 0",
        ),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(parent, model, objective, message) -> None:
    params = distilled("encoder_mlm", model, **objective)
    child = params.pretrain["child"].model_copy(update={"parent": parent})
    faults = faults_of(params.model_copy(update={"pretrain": params.pretrain | {"child": child}}))
    assert len(faults) == 1 and faults[0].startswith("pretrain.child.") and message in faults[0]


def test_rows_longer_than_the_teacher_knows_are_refused() -> None:
    params = distilled("encoder_mlm", {"num_layers": 1}, student_init="random")
    teacher, child = (params.pretrain[name] for name in ("encoder_mlm", "child"))
    short = teacher.training.model_copy(update={"max_tokens": 32})
    model = teacher.model | {"positions": "learned", "max_positions": 32}
    teacher = teacher.model_copy(update={"model": model, "training": short})
    params = params.model_copy(update={"pretrain": {"encoder_mlm": teacher, "child": child}})
    finetune = params.finetune.model_copy(update={"max_tokens": 32})
    assert faults_of(params.model_copy(update={"finetune": finetune})) == [
        "pretrain.child.training.max_tokens: 64 is more than "
        "pretrain.encoder_mlm.model.max_positions, 32"
    ]


def test_what_it_writes_is_the_same_whatever_is_valid(tmp_path, monkeypatch) -> None:
    params = load(ROOT / "studies" / "smoke.yaml")
    shutil.copyfile(ROOT / "requirements.lock", tmp_path / "requirements.lock")
    monkeypatch.chdir(tmp_path)
    check_params.main(params)
    written = {p.relative_to("data"): p.read_text() for p in Path("data").rglob("*") if p.is_file()}
    plans = {f"plans/{run}.json" for run in params.pretrain}
    code = {f"code/{stage}.json" for stage in check_params.code_by_stage(params)}
    assert {str(p) for p in written} == plans | code | {
        "none",
        "contamination/none",
        "corpora/none/train.jsonl",
        "pretrained/none",
        "tokenizers/none",
        "encoded/none/unigram",
        "encoded/none/none",
    }
    check_params.main(params.model_copy(update={"study": "other"}))
    assert {p: Path("data", p).read_text() for p in written} == written
