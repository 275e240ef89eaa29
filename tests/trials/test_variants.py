"""The variants that a trial tries."""

from typing import Any

import pytest

from stages.core.params import Params
from stages.models._backbone import Backbone
from stages.trials.variants import Variant, variants
from tests.small import small_model
from tests.synthetic_study import raw_params

WHERE = "tasks.section.task"


def tried(
    backbone: Backbone,
    task: dict[str, Any],
    method: dict[str, Any] | None = None,
    *,
    has_prefix: bool = False,
    from_scratch: bool = False,
    **finetune: Any,
) -> list[Variant]:
    raw = raw_params()
    raw["finetune"] |= finetune
    raw["finetune"]["methods"]["full"]["method"] = method or {"name": "full"}
    settings = Params(**raw).finetune
    return variants(
        settings,
        "full",
        task,
        backbone,
        has_prefix=has_prefix,
        from_scratch=from_scratch,
        where=WHERE,
    )


def read_outs(*arguments: Any, **settings: Any) -> list[str]:
    return [each.read_out for each in tried(*arguments, **settings)]


def classification(**settings: Any) -> dict[str, Any]:
    return {"name": "classification", **settings}


def test_variants_are_the_product_of_the_lists_in_their_order() -> None:
    encoder = small_model("encoder")
    listed = classification(pooling=["first", "mean"], dropout=[0.0, 0.1])
    assert read_outs(encoder, listed) == [
        f"pooling={pooling}, dropout={dropout}"
        for pooling in ("first", "mean")
        for dropout in (0.0, 0.1)
    ]
    probe = {"name": "linear_probe", "layers": ["mix", "last"]}  # uses no dropout
    assert read_outs(encoder, listed, probe) == [
        f"pooling={pooling}, layers={layers}"
        for layers in ("mix", "last")
        for pooling in ("first", "mean")
    ]


def test_variants_of_one_value_have_nothing_to_say_and_are_fixed() -> None:
    fixed = "pooling=mean, dropout=0.1, class_weights=none"
    for pooling in ("mean", ["mean"]):
        (variant,) = tried(small_model("encoder"), classification(pooling=pooling))
        assert (variant.read_out, variant.fixed_values) == ("", fixed)
        assert variant.task == {"pooling": "mean", "dropout": 0.1, "class_weights": "none"}


@pytest.mark.parametrize(
    ("architecture", "custom"),
    [("encoder", "first"), ("encoder_decoder", "first"), ("decoder", "last"), ("bilstm", "last")],
)
def test_variants_by_default_are_the_mean_and_the_custom(architecture, custom) -> None:
    listed = read_outs(small_model(architecture), classification())
    assert listed == ["pooling=mean", f"pooling={custom}"]


def test_variants_of_a_decoder_never_read_the_first_state() -> None:
    decoder = small_model("decoder")
    listed = classification(pooling=["first", "mean", "last"])
    assert read_outs(decoder, listed) == ["pooling=mean", "pooling=last"]
    (only,) = tried(decoder, classification(pooling=["first", "mean"]))
    assert (only.read_out, only.task["pooling"]) == ("", "mean")
    with pytest.raises(ValueError, match=rf"^{WHERE}\.pooling: the first state of a causal model"):
        tried(decoder, classification(pooling=["first"]))
    assert len(tried(decoder, listed, has_prefix=True)) == 3


def test_variants_repeat_no_value_that_auto_stands_for() -> None:
    listed = classification(pooling=["auto", "first", "last"])
    expected = ["pooling=mean", "pooling=first", "pooling=last"]
    assert read_outs(small_model("encoder"), listed) == expected


def test_variants_from_scratch_start_from_both_initial_weights() -> None:
    one = classification(pooling="mean")

    def starts(backbone: Backbone, **finetune: Any) -> list[str | None]:
        listed = tried(backbone, one, from_scratch=True, **finetune)
        return [variant.initial_weights for variant in listed]

    assert starts(small_model("encoder")) == ["as_pretrained", "usual"]
    assert starts(small_model("encoder"), initial_weights=["usual"]) == ["usual"]
    for same in (
        small_model("encoder", locality=0.0),
        small_model("encoder", positions="learned"),
        small_model("decoder", bias=False),
        small_model("bilstm"),
    ):
        assert starts(same) == ["as_pretrained"]
    (pretrained,) = tried(small_model("encoder"), one)
    assert pretrained.initial_weights is None
    (alone,) = tried(small_model("encoder"), one, from_scratch=True, initial_weights=["usual"])
    assert alone.columns == {"read_out": "", "initial_weights": "usual"}
    assert "initial_weights=usual" in alone.fixed_values


def test_variants_of_what_has_no_head_or_trains_nothing_are_one() -> None:
    decoder = small_model("decoder")
    raw = raw_params()
    full = raw["finetune"]["methods"]["full"]
    as_text = {"full": {**full, "text_to_text": True}}
    assert read_outs(decoder, classification(), methods=as_text) == [""]
    prompts = {"name": "in_context", "num_shots": 1}
    assert len(tried(decoder, classification(), prompts, from_scratch=True)) == 1
    text = {"name": "language_modelling"}
    (untrained,) = tried(decoder, text, {"name": "none"}, from_scratch=True)
    assert untrained.columns == {"read_out": "", "initial_weights": "as_pretrained"}
