"""What is kept and what is dropped, and that every row has exactly one reason."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeprc.datasets.alphabet import AMINO_ACIDS, decode_many
from deeprc.datasets.cleaning import DROP_REASONS, clean
from deeprc.datasets.readers import Status


def table_of(texts, status=Status.UNKNOWN, counts=None, **genes):
    n = len(texts)
    columns = {
        "junction_aa": pd.Series(texts, dtype=object),
        "duplicate_count": np.ones(n, np.uint32) if counts is None else np.asarray(counts, np.uint32),
        "count_source": pd.Categorical(["templates"] * n, categories=["templates", "one"]),
        "count_rounded": np.zeros(n, bool),
        "status": np.broadcast_to(np.asarray(status, np.uint8), n),
    }
    return pd.DataFrame(columns | {name: pd.Categorical(values) for name, values in genes.items()})


def kept(cleaned):
    sequences = cleaned.sequences
    return decode_many(sequences.residues, np.concatenate([[0], np.cumsum(sequences.lengths)]))


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
    cleaned = clean(table_of(["CW", text, "CY"], [Status.UNKNOWN, status, Status.UNKNOWN]))
    assert kept(cleaned) == (["CW", "CY"] if reason else ["CW", text.upper(), "CY"])
    assert cleaned.dropped == {name: int(name == reason) for name in DROP_REASONS}


def test_length_limits_can_be_chosen():
    cleaned = clean(table_of(["C", "CA", "CAF", "CASF"]), min_length=2, max_length=3)
    assert kept(cleaned) == ["CA", "CAF"]
    assert cleaned.dropped["too_short"] == cleaned.dropped["too_long"] == 1


def test_rows_are_not_merged_and_keep_their_order_counts_and_genes():
    table = table_of(
        ["CW", "CA*", "CA", "CW", "CA"],
        counts=[5, 9, 3, 5, 2],
        v_call=["V1", "V9", "", "V1", "V2"],
        j_call=[""] * 5,
    )
    cleaned = clean(table)
    assert kept(cleaned) == ["CW", "CA", "CW", "CA"]
    assert cleaned.sequences.counts.tolist() == [5, 3, 5, 2]
    assert cleaned.sequences.v_call.names().tolist() == ["V1", "", "V1", "V2"]
    assert "V9" not in cleaned.sequences.v_call.vocabulary
    assert cleaned.sequences.j_call is None


def test_the_sources_of_the_kept_counts_are_reported():
    table = table_of(["CW", "CA", "C*", "CY"])
    table["count_source"] = pd.Categorical(["templates", "reads", "reads", "one"], ["templates", "reads", "one"])
    table["count_rounded"] = [True, False, True, True]
    cleaned = clean(table)
    assert cleaned.counts_from == {"templates": 1, "reads": 1, "one": 1}
    assert cleaned.counts_rounded == 2


def test_no_rows():
    cleaned = clean(table_of([], []))
    assert cleaned.rows_read == cleaned.kept == sum(cleaned.dropped.values()) == 0


rows = st.lists(
    st.tuples(st.text(AMINO_ACIDS + "acd*_~XBZ.ß", max_size=12), st.sampled_from(list(Status))), max_size=30
)


@given(rows)
def test_read_is_kept_plus_dropped_and_kept_is_what_a_loop_keeps(rows):
    cleaned = clean(table_of([text for text, _ in rows], [status for _, status in rows]), max_length=8)
    assert cleaned.rows_read == len(rows) == cleaned.kept + sum(cleaned.dropped.values())
    assert kept(cleaned) == [
        text.upper()
        for text, status in rows
        if status in (Status.UNKNOWN, Status.IN_FRAME)
        and 1 <= len(text) <= 8
        and all(letter in AMINO_ACIDS + "acd" for letter in text)
    ]
