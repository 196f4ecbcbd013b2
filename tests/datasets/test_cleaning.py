"""What is kept and what is dropped, that every row has exactly one reason, and which rows are one sequence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.cleaning import Cleaning, clean, examine_file, split_by_repertoire
from deeprc.datasets.drop_reasons import DROP_REASONS
from deeprc.datasets.raw_texts import RawTexts
from deeprc.datasets.readers import RawRows, SequenceKind, Status
from deeprc.errors import InputError


def coded(names):
    vocabulary = sorted(set(names))
    return Categorical(np.array([vocabulary.index(name) for name in names], np.int32), tuple(vocabulary))


def rows_of(texts, status=Status.UNKNOWN, counts=None, kind=SequenceKind.JUNCTION_AA, **columns):
    n = len(texts)
    encoded = [text.encode("latin-1", "replace") for text in texts]
    return RawRows(
        RawTexts(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)])),
        kinds=np.full(n, kind, np.uint8),
        counts=np.ones(n, np.uint32) if counts is None else np.asarray(counts, np.uint32),
        count_sources=("templates", "reads", "(one)"),
        count_source=np.zeros(n, np.int8),
        count_rounded=np.zeros(n, bool),
        status=np.broadcast_to(np.asarray(status, np.uint8), n),
        **{name: coded(values) for name, values in columns.items()},
    )


def kept(cleaned):
    sequences = cleaned.sequences
    return sequences.decode()


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("CASSF", Status.IN_FRAME, None),
        ("CASSF", Status.UNKNOWN, None),
        ("cassf", Status.UNKNOWN, None),
        ("C" * 50, Status.UNKNOWN, None),
        ("C", Status.UNKNOWN, None),
        ("CASSF", Status.OUT_OF_FRAME, "out_of_frame"),
        ("CASSF", Status.STOP_CODON, "stop_codon"),
        ("CASSF", Status.UNPRODUCTIVE, "unproductive"),
        ("CA*F", Status.UNPRODUCTIVE, "stop_codon"),
        ("CA_F", Status.UNPRODUCTIVE, "out_of_frame"),
        ("CAXF", Status.UNPRODUCTIVE, "unproductive"),
        ("", Status.OUT_OF_FRAME, "out_of_frame"),
        ("", Status.IN_FRAME, "empty"),
        ("CA*F", Status.IN_FRAME, "stop_codon"),
        ("CA_F", Status.UNKNOWN, "out_of_frame"),
        ("CA~F", Status.UNKNOWN, "out_of_frame"),
        ("CA#F", Status.UNKNOWN, "out_of_frame"),
        ("CA*_F", Status.UNKNOWN, "out_of_frame"),
        ("CAXF", Status.UNKNOWN, "ambiguous_residue"),
        ("CA?F", Status.UNKNOWN, "ambiguous_residue"),
        ("CAßF", Status.UNKNOWN, "ambiguous_residue"),
        ("CA*X", Status.UNKNOWN, "stop_codon"),
        ("C" * 51, Status.UNKNOWN, "too_long"),
        ("X" * 51, Status.UNKNOWN, "ambiguous_residue"),
    ],
)
def test_one_row_has_one_reason(text, status, reason):
    cleaned = clean(rows_of(["CW", text, "CY"], [Status.UNKNOWN, status, Status.UNKNOWN]))
    assert kept(cleaned) == (["CW", "CY"] if reason else ["CW", text.upper(), "CY"])
    assert cleaned.dropped == {name: int(name == reason) for name in DROP_REASONS}


def test_length_limits_can_be_chosen():
    cleaned = clean(rows_of(["C", "CA", "CAF", "CASF"]), Cleaning(min_length=2, max_length=3))
    assert kept(cleaned) == ["CA", "CAF"]
    assert cleaned.dropped["too_short"] == cleaned.dropped["too_long"] == 1


MERGED = {
    "texts": ["CW", "CA*", "CA", "cw", "CA", "CW"],
    "counts": [5, 9, 3, 4, 2, 1],
    "v_call": ["TRBV2", "TRBV9", "", "TRBV2*01", "TRBV3-1", "TRBV2"],
    "j_call": ["TRBJ1-1", "", "", "TRBJ1-1", "", "TRBJ2-7"],
}


@pytest.mark.parametrize(
    ("merge", "sequences", "counts", "v_call", "j_call"),
    [
        ("genes", ["CW", "CA", "CA", "CW"], [9, 3, 2, 1], ["TRBV2", "", "TRBV3-1", "TRBV2"], ["1-1", "", "", "2-7"]),
        ("junction", ["CW", "CA"], [10, 5], ["TRBV2", ""], ["1-1", ""]),
        (
            "none",
            ["CW", "CA", "CW", "CA", "CW"],
            [5, 3, 4, 2, 1],
            ["TRBV2", "", "TRBV2", "TRBV3-1", "TRBV2"],
            ["1-1", "", "1-1", "", "2-7"],
        ),
    ],
)
def test_rows_of_one_sequence_are_merged_at_the_first_and_counts_added(merge, sequences, counts, v_call, j_call):
    cleaned = clean(rows_of(**MERGED), Cleaning(merge=merge))
    assert kept(cleaned) == sequences
    assert cleaned.sequences.counts.tolist() == counts
    assert cleaned.sequences.v_call.names().tolist() == v_call
    assert cleaned.sequences.j_call.names().tolist() == [name and f"TRBJ{name}" for name in j_call]
    assert "TRBV9" not in cleaned.sequences.v_call.vocabulary
    assert cleaned.merged == 5 - len(sequences)


def test_without_genes_there_is_nothing_to_store():
    cleaned = clean(rows_of(["CW", "CA"], v_call=["", ""]))
    assert cleaned.sequences.v_call is None
    assert cleaned.sequences.j_call is None


def test_counts_that_add_up_to_too_much_stop_at_the_largest():
    cleaned = clean(rows_of(["CW", "CW"], counts=[2**32 - 1, 2**32 - 1]))
    assert cleaned.sequences.counts.tolist() == [2**32 - 1]


def test_cells_are_counted_once_for_each_sequence():
    cleaned = clean(
        rows_of(["CW", "CW", "CW", "CA", "CW"], counts=[9, 9, 9, 9, 9], cell=["a", "a", "b", "a", ""]),
    )
    assert kept(cleaned) == ["CW", "CA"]
    assert cleaned.sequences.counts.tolist() == [3, 1]


def test_the_sources_of_the_kept_counts_are_reported():
    rows = rows_of(["CW", "CA", "C*", "CY"])
    rows.count_source[:] = [0, 1, 1, 2]
    rows.count_rounded[:] = [True, False, True, True]
    cleaned = clean(rows)
    assert cleaned.counts_from == {"templates": 1, "reads": 1, "(one)": 1}
    assert cleaned.counts_rounded == 2


def test_cdr3s_become_junctions():
    rows = rows_of(
        ["ASSL", "AVRD", "ARDY", "ASS", "", "AS*", "AST", "AVLH"],
        kind=SequenceKind.CDR3_AA,
        j_call=["TRBJ1-1", "TRAJ33*01", "IGHJ4", "", "TRBJ1-1", "TRBJ1-1", "TRBJ1-1", "TRAJ35"],
    )
    cleaned = clean(rows)
    assert kept(cleaned) == ["CASSLF", "CAVRDW", "CARDYW", "CASSF", "CASTF", "CAVLHC"]
    assert cleaned.dropped["empty"] == cleaned.dropped["stop_codon"] == 1
    assert cleaned.sequences_from == {"cdr3_aa": 6}


def test_a_column_of_cdr3s_that_holds_junctions_is_taken_as_it_is():
    texts, status = ["CASSF"] * 8 + ["CARW", "ASSL", "G*", "AAG"], [Status.UNKNOWN] * 11 + [Status.UNPRODUCTIVE]
    rows = rows_of(texts, status, kind=SequenceKind.CDR3_AA)
    facts = examine_file(rows)
    assert facts.cdr3s_are_junctions  # what is not productive has no voice
    cleaned = clean(rows, facts=facts)
    assert kept(cleaned) == ["CASSF", "CARW", "ASSL"]
    assert cleaned.sequences_from == {"cdr3_aa as junction_aa": 10}
    assert not examine_file(rows_of(["ASSL"] * 10 + ["CSVGDF"], kind=SequenceKind.CDR3_AA)).cdr3s_are_junctions
    assert not examine_file(rows_of(["CSVGDF"], kind=SequenceKind.CDR3_AA)).cdr3s_are_junctions  # too few to tell
    with pytest.raises(InputError, match=r"r\.tsv: the column of CDR3s holds 6 that look like junctions .* and 5 that"):
        examine_file(rows_of(["CASSF"] * 6 + ["ASSL"] * 5, kind=SequenceKind.CDR3_AA), "r.tsv")


@pytest.mark.parametrize("n", [10, 70, 110])
def test_a_tenth_of_the_other_kind_is_no_mixture(n):
    tenth = n // 10
    for n_junctions, are_junctions in ((tenth, False), (n - tenth, True)):
        texts = ["CASSF"] * n_junctions + ["ASSL"] * (n - n_junctions)
        assert examine_file(rows_of(texts, kind=SequenceKind.CDR3_AA)).cdr3s_are_junctions == are_junctions
    for n_junctions in (tenth + 1, n - tenth - 1):
        texts = ["CASSF"] * n_junctions + ["ASSL"] * (n - n_junctions)
        with pytest.raises(InputError, match=f"holds {n_junctions} that look like junctions"):
            examine_file(rows_of(texts, kind=SequenceKind.CDR3_AA))


def test_another_chain_is_dropped_when_one_is_chosen():
    rows = rows_of(
        ["CA", "CW", "CY", "CF", "CD"],
        locus=["TRA", "", "", "TRB", ""],
        v_call=["TRBV2", "TRBV2", "TRAV29DV5", "", ""],
        j_call=["", "", "TRDJ1", "", ""],
    )
    everything = clean(rows)
    assert everything.kept == 5
    assert everything.loci == {"TRA": 1, "TRB": 2, "TRD": 1, "": 1}
    cleaned = clean(rows, Cleaning(locus="TRB"))
    assert kept(cleaned) == ["CW", "CF", "CD"]  # one of an unknown chain stays
    assert cleaned.dropped["other_locus"] == 2
    assert cleaned.loci == everything.loci


def test_another_chain_is_the_first_reason_to_drop_a_row():
    status = [Status.UNPRODUCTIVE, Status.LOW_CONFIDENCE, *[Status.IN_FRAME] * 4, Status.UNPRODUCTIVE]
    locus = ["TRA"] * 5 + ["TRB", "TRB"]
    cleaned = clean(rows_of(["CA", "CA", "", "C*A", "CW", "CA", "CA"], status, locus=locus), Cleaning(locus="TRB"))
    assert {reason: n for reason, n in cleaned.dropped.items() if n} == {"other_locus": 5, "unproductive": 1}
    assert cleaned.loci == {"TRA": 1, "TRB": 1}  # of productive rows, as without a choice
    assert kept(cleaned) == ["CA"]


def test_gene_names_are_those_of_imgt():
    rows = rows_of(["CA", "CW"], v_call=["TCRBV06-02*01", "TCRBV06-02/06-03*01"])
    cleaned = clean(rows)
    assert cleaned.sequences.v_call.names().tolist() == ["TRBV6-2", "TRBV6-2,TRBV6-3"]
    assert cleaned.genes["v_call"].renamed == {
        "TCRBV06-02*01": "TRBV6-2",
        "TCRBV06-02/06-03*01": "TRBV6-2,TRBV6-3",
    }


def test_a_file_is_split_by_its_repertoires():
    rows = rows_of(["CY", "CAA", "", "CW"], counts=[1, 2, 3, 4], repertoire=["y", "x", "y", "y"], v_call=list("abcd"))
    parts = dict(split_by_repertoire(rows))
    assert list(parts) == ["y", "x"]
    assert [len(part) for part in parts.values()] == [3, 1]
    cleaned = clean(parts["y"])
    assert kept(cleaned) == ["CY", "CW"]
    assert cleaned.sequences.counts.tolist() == [1, 4]
    assert cleaned.sequences.v_call.names().tolist() == ["a", "d"]
    assert kept(clean(parts["x"])) == ["CAA"]
    assert [name for name, _ in split_by_repertoire(rows_of(["CA"]))] == [""]


def test_no_rows():
    cleaned = clean(rows_of([], [], v_call=[], cell=[]))
    assert cleaned.rows_read == cleaned.kept == sum(cleaned.dropped.values()) == 0


LISTS = st.lists(
    st.tuples(st.text(AMINO_ACIDS + "acd*_~XBZ.ß", max_size=12), st.sampled_from(list(Status))), max_size=30
)


@given(LISTS, st.sampled_from(["junction", "none"]))
def test_read_is_kept_merged_or_dropped_and_kept_is_what_a_loop_keeps(rows, merge):
    how = Cleaning(max_length=8, merge=merge)
    cleaned = clean(rows_of([text for text, _ in rows], [status for _, status in rows]), how)
    assert cleaned.rows_read == len(rows) == cleaned.kept + cleaned.merged + sum(cleaned.dropped.values())
    expected = [
        text.upper()
        for text, status in rows
        if status in (Status.UNKNOWN, Status.IN_FRAME)
        and 1 <= len(text) <= 8
        and all(letter in AMINO_ACIDS + "acd" for letter in text)
    ]
    assert kept(cleaned) == (expected if merge == "none" else list(dict.fromkeys(expected)))
    assert cleaned.sequences.counts.sum() == len(expected)
