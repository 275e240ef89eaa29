from stages.tracking.names import short_names


def test_long_names_keep_their_last_word_and_short_ones_all() -> None:
    names = ["encoder_mlm", "encoder_decoder_denoising", "encoder_mlm_deep_learning"]
    assert [*short_names(names).values()] == [
        "encoder_mlm",
        "enc_dec_denoising",
        "enc_mlm_dee_learning",
    ]


def test_no_two_names_become_equal() -> None:
    names = ["encoder_decoder_denoising", "encoding_decoding_denoising", "enc_dec_denoising"]
    assert len({*short_names(names).values()}) == 3
    long = "x" * 80
    assert short_names([long]) == {long: long}
