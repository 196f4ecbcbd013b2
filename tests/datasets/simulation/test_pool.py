import gzip
import pickle
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets, decode_many, encode_many
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.container_writer import ContainerWriter
from deeprc.datasets.random_numbers import derive_key
from deeprc.datasets.sequences import Sequences
from deeprc.datasets.simulation.pool import SequencePool
from deeprc.datasets.simulation.source import read_source
from deeprc.errors import InputError

DISTINCT = ["".join(letters) for letters in product(AMINO_ACIDS, repeat=3)]


def texts(drawn: Sequences) -> list[str]:
    return decode_many(drawn.residues, compute_offsets(drawn.lengths))


def write_list(path: Path, sequences: list[str]) -> SequencePool:
    path.write_text("".join(f"{sequence}\n" for sequence in sequences))
    return SequencePool(path)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000])
def test_every_sequence_is_drawn_once_before_any_is_drawn_again(tmp_path: Path, n: int) -> None:
    pool = write_list(tmp_path / "list.txt", DISTINCT[:n])
    assert len(pool) == n
    drawn = texts(pool.draw(derive_key(3), np.arange(3 * n)))
    shuffles = [drawn[start : start + n] for start in (0, n, 2 * n)]
    assert all(sorted(shuffle) == sorted(DISTINCT[:n]) for shuffle in shuffles)
    if n > 60:
        assert len({tuple(shuffle) for shuffle in (*shuffles, DISTINCT[:n])}) == 4


def test_all_orders_are_equally_likely(tmp_path: Path) -> None:
    pool = write_list(tmp_path / "list.txt", ["A", "C", "D"])
    found = ["".join(texts(pool.draw(derive_key(key), np.arange(3)))) for key in range(3000)]
    counts = [found.count("".join(order)) for order in permutations("ACD")]
    assert sum(counts) == 3000
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("n", [5, 20])
def test_all_pairs_of_neighbours_are_equally_likely(tmp_path: Path, n: int) -> None:
    pool = write_list(tmp_path / "list.txt", list(AMINO_ACIDS[:n]))
    counts = np.zeros((n, n))
    for key in range(4000):
        first, second = pool.draw(derive_key(1, key), np.arange(2)).residues
        counts[first, second] += 1
    assert not counts.diagonal().any()
    assert stats.chisquare(counts[~np.eye(n, dtype=bool)]).pvalue > 1e-6


def test_shuffles_of_one_repertoire_are_independent(tmp_path: Path) -> None:
    pool = write_list(tmp_path / "list.txt", DISTINCT)
    places = {text: place for place, text in enumerate(DISTINCT)}
    drawn = np.array([places[text] for text in texts(pool.draw(derive_key(1), np.arange(2 * len(DISTINCT))))])
    shuffles = drawn.reshape(2, -1)
    table = np.histogram2d(*shuffles, bins=10)[0]
    assert stats.chisquare(table.ravel()).pvalue > 1e-6
    for shuffle in shuffles:
        assert stats.chisquare(np.histogram2d(np.arange(8000), shuffle, bins=10)[0].ravel()).pvalue > 1e-6


@given(st.lists(st.integers(0, 10**6), max_size=40))
@settings(deadline=None, max_examples=20)
def test_rows_drawn_alone_are_those_drawn_together(tmp_path_factory: pytest.TempPathFactory, rows: list[int]) -> None:
    pool = write_list(tmp_path_factory.mktemp("pool") / "list.txt", DISTINCT[:100])
    together = texts(pool.draw(derive_key(4), np.array(rows, np.int64)))
    assert together == [texts(pool.draw(derive_key(4), np.array([row])))[0] for row in rows]


def test_a_container_is_pooled_with_its_genes(tmp_path: Path) -> None:
    path = tmp_path / "c.h5"
    of = {"CAF": "TRBV1", "CASSF": "TRBV2", "CW": "", "CASSLF": "TRBV1"}
    with ContainerWriter(path) as writer:
        for number, sequences in enumerate((["CAF", "CASSF"], ["CW", "A" * 41, "CASSLF"])):
            residues, offsets = encode_many(sequences)
            vocabulary = tuple(sorted({of.get(text, "TRBV3") for text in sequences}))
            codes = np.array([vocabulary.index(of.get(text, "TRBV3")) for text in sequences], np.uint16)
            counts = np.full(len(sequences), 9, np.uint32)
            writer.append(f"r{number}", Sequences(residues, offsets, counts, Categorical(codes, vocabulary), None))
        writer.finish(pd.DataFrame({"repertoire_id": ["r0", "r1"]}), source="")
    drawn = SequencePool(path).draw(derive_key(2), np.arange(12))
    assert sorted(texts(drawn)) == sorted([*of] * 3)  # what is longer than 40 residues is left out
    assert drawn.v_call is not None
    assert drawn.v_call.names().tolist() == [of[text] for text in texts(drawn)]
    assert drawn.j_call is None


def test_only_productive_rows_of_a_table_are_taken(tmp_path: Path) -> None:
    rows = [
        ("CASSF", "T", "TRBV19", "TRBJ2-7"),
        ("CAS*F", "F", "TRBV19", "TRBJ2-7"),
        ("CASSF", "T", "TRBV19", "TRBJ2-7"),  # twice in the table, twice in the pool
        ("CAWF", "T", "TRBV28", "TRBJ1-1"),
        ("C" + "A" * 40, "T", "TRBV28", "TRBJ1-1"),
    ]
    table = pd.DataFrame(rows, columns=["junction_aa", "productive", "v_call", "j_call"])
    table.insert(0, "sequence_id", [f"s{row}" for row in range(len(table))])
    table.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    drawn = SequencePool(tmp_path / "a.tsv").draw(derive_key(2), np.arange(3))
    assert sorted(texts(drawn)) == ["CASSF", "CASSF", "CAWF"]
    assert drawn.v_call is not None
    assert drawn.j_call is not None
    of = {"CASSF": ("TRBV19", "TRBJ2-7"), "CAWF": ("TRBV28", "TRBJ1-1")}
    pairs = list(zip(drawn.v_call.names(), drawn.j_call.names(), strict=True))
    assert pairs == [of[text] for text in texts(drawn)]


@pytest.mark.parametrize("packed", [False, True])
def test_a_list_without_a_header(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "list.txt.gz" if packed else tmp_path / "list.txt"
    content = b"CASSF\ncawf\nCAR\n"
    path.write_bytes(gzip.compress(content) if packed else content)
    drawn = SequencePool(path).draw(derive_key(2), np.arange(3))
    assert sorted(texts(drawn)) == ["CAR", "CASSF", "CAWF"]
    assert drawn.v_call is drawn.j_call is None


def test_the_first_and_the_last_line_of_a_list_are_read(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("CAF\r\nCASSF\r\nCW")
    assert sorted(texts(SequencePool(tmp_path / "list.txt").sequences)) == ["CAF", "CASSF", "CW"]
    assert texts(write_list(tmp_path / "one.txt", ["CASSF"]).draw(derive_key(1), np.arange(2))) == ["CASSF"] * 2


@pytest.mark.parametrize("heading", ["SEQ", "Seq", "seq", "CDR", "cdr3", "PEPTIDE"])
def test_a_heading_above_a_list_is_no_sequence(tmp_path: Path, heading: str) -> None:
    pool = write_list(tmp_path / "list.txt", [heading, "CASSF", "CAR"])
    assert texts(pool.sequences) == ["CASSF", "CAR"]


def test_sequences_of_a_list_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    pool = write_list(tmp_path / "list.txt", ["A" * 41, "C" * 40, "D" * 41, "E"])
    assert texts(pool.sequences) == ["C" * 40, "E"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("CASSF\nCAF\nCA*F\n", r"list.txt: row 3: expected an amino-acid sequence, found 'CA\*F'"),
        ("CASSF\nCAXF\nCAF\n", "list.txt: row 2: expected an amino-acid sequence, found 'CAXF'"),
        ("A" * 41 + "\n", "list.txt: holds no sequence"),
        ("", "list.txt"),
        ("CA*F\nCASSF\n", "list.txt"),
        ("name\tvalue\n1\t2\n", "list.txt"),
    ],
)
def test_an_invalid_list_of_sequences_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "list.txt").write_text(content)
    with pytest.raises(InputError, match=message):
        SequencePool(tmp_path / "list.txt").draw(1, np.arange(2))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.tsv"):
        SequencePool(tmp_path / "none.tsv").draw(1, np.arange(2))
    with pytest.raises(InputError, match=str(tmp_path)):
        SequencePool(tmp_path).draw(1, np.arange(2))


def test_a_pool_is_sent_to_other_processes_as_its_path(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("CASSF\n" * 1000)
    pool = SequencePool(path)
    assert len(pool) == 1000
    assert len(pickle.dumps(pool)) < 500
    assert pickle.loads(pickle.dumps(pool)) == pool


def test_a_background_of_several_chains_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cells.tsv"
    path.write_text("junction_aa\tv_call\nCASSF\tTRBV9\nCAVF\tTRAV21\n")
    with pytest.raises(InputError, match="expected sequences of one chain as the background, found TRA, TRB"):
        read_source(path, longest=30)
