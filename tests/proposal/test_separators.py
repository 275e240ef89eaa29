import pytest

from stages.proposal.separators import joint_of, separator_of


@pytest.mark.parametrize(
    ("cells", "sign"),
    [
        (["C#, Java", "F#, SQL", "Java"], ","),
        (["std::map, std::set", "std::map"], ","),
        (["joy#fear", "fear#joy", "anger"], "#"),
        (["Music > Pop, Rock", "Music > Jazz"], ">"),
        (["<c#><java>", "<sql>"], "><"),
        (["joy;fear, odd", "joy"], ";"),
        (["very good", "very bad"], None),
    ],
)
def test_separator_of_leaves_signs_in_names(cells: list[str], sign: str | None) -> None:
    assert separator_of(cells, joint_of(cells)) == sign
