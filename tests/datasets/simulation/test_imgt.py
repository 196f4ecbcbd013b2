import pytest

from deeprc.datasets.simulation.imgt import find_imgt_index, list_imgt_positions

# The CDR3 of a junction by its length: IMGT's tables of gaps and of additional positions, written out.
CDR3 = {
    2: "",
    3: "105",
    4: "105 117",
    5: "105 106 117",
    6: "105 106 116 117",
    7: "105 106 107 116 117",
    8: "105 106 107 115 116 117",
    9: "105 106 107 108 115 116 117",
    10: "105 106 107 108 114 115 116 117",
    11: "105 106 107 108 109 114 115 116 117",
    12: "105 106 107 108 109 113 114 115 116 117",
    13: "105 106 107 108 109 110 113 114 115 116 117",
    14: "105 106 107 108 109 110 112 113 114 115 116 117",
    15: "105 106 107 108 109 110 111 112 113 114 115 116 117",
    16: "105 106 107 108 109 110 111 112.1 112 113 114 115 116 117",
    17: "105 106 107 108 109 110 111 111.1 112.1 112 113 114 115 116 117",
    18: "105 106 107 108 109 110 111 111.1 112.2 112.1 112 113 114 115 116 117",
    19: "105 106 107 108 109 110 111 111.1 111.2 112.2 112.1 112 113 114 115 116 117",
    20: "105 106 107 108 109 110 111 111.1 111.2 112.3 112.2 112.1 112 113 114 115 116 117",
}
GAPS = ["111", "112", "110", "113", "109", "114", "108", "115", "107", "116", "106", "117", "105"]


@pytest.mark.parametrize("length", CDR3)
def test_the_published_tables(length: int) -> None:
    assert list_imgt_positions(length) == ["104", *CDR3[length].split(), "118"]


def test_shorter_junctions_lack_positions_in_the_published_order() -> None:
    for n_gaps in range(len(GAPS) + 1):
        expected = [str(position) for position in range(104, 119) if str(position) not in GAPS[:n_gaps]]
        assert list_imgt_positions(15 - n_gaps) == expected


def test_each_longer_junction_has_one_more_position() -> None:
    for length in range(15, 80):
        shorter, longer = list_imgt_positions(length), list_imgt_positions(length + 1)
        (new,) = set(longer) - set(shorter)
        assert [position for position in longer if position != new] == shorter
        place = (length - 15) // 2 + 1
        assert new == (f"112.{place}" if length % 2 else f"111.{place}")


def test_the_index_of_each_position_finds_it_in_the_list() -> None:
    every = set(list_imgt_positions(60))
    for length in range(2, 61):
        positions = list_imgt_positions(length)
        assert len(set(positions)) == length
        assert [find_imgt_index(position, length) for position in positions] == list(range(length))
        assert all(find_imgt_index(position, length) is None for position in every - set(positions))


def test_texts_that_are_no_position_have_no_index() -> None:
    assert [find_imgt_index(text, 15) for text in ("103", "119", "111.1", "112.0", "", "CDR3")] == [None] * 6


@pytest.mark.parametrize("length", [1, 0, -3])
def test_a_junction_has_two_conserved_residues(length: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 residues, found {length}"):
        list_imgt_positions(length)
    with pytest.raises(ValueError, match="at least 2 residues"):
        find_imgt_index("105", length)
