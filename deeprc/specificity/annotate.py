"""Annotate a table of sequences with the antigens of the same or nearly the same receptors in databases.

Letters: n sequences of the table, d chains of the databases, p pairs of both, A organisms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.baselines.association_tests import adjust_by_benjamini_hochberg
from deeprc.datasets.clones.clone_set import CloneSet
from deeprc.datasets.clones.neighbours import NeighbourSearch
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import Sequences
from deeprc.errors import InputError, join_names
from deeprc.specificity.background import (
    BackgroundClones,
    Strata,
    classify_publicity,
    count_carrying_repertoires,
    draw_clone_background,
    estimate_match_rates,
)
from deeprc.specificity.databases import normalise_calls, trim_conserved_residues

__all__ = ["ADDED_COLUMNS", "Annotation", "annotate_sequences"]

_ANTIGEN_COLUMNS = ("antigen_organism", "antigen", "epitope")

ADDED_COLUMNS = ("specificity_match", *_ANTIGEN_COLUMNS, "n_database_entries")
"""Columns that an annotated table has besides its own."""

_SEQUENCE_COLUMNS = ("junction_aa", "cdr3_aa")
_MATCHES = ("exact, same V", "exact", "one substitution, same V", "one substitution")  # from the best to the worst
_LEVELS = {"exact": 1, "within_one": 3}
"""The largest index of `_MATCHES` that counts at each level at which organisms are compared."""

_MAX_NAMES = 5
_MAX_SHOWN_COLUMNS = 20  # of a table that lacks the one that is needed


@dataclass(frozen=True)
class Annotation:
    """A table of sequences with their known antigens.

    Attributes
    ----------
    table
        Table with `ADDED_COLUMNS`: how the best matches agree with the sequence, and what they are specific for.
    organisms
        One row for each organism of the databases that any sequence matches: `antigen_organism`; the number of
        different sequences of the table that match an entry exactly (`n_exact`) and with at most one substitution
        (`n_within_one`), of `n_tested`. With a cohort, both numbers also have the number that is expected by chance
        (`expected_exact`), `p_exact` and `q_exact`, and the smallest p-values are first.
    n_matched, n_tested
        Number of different sequences that match any entry, and of all different sequences.
    """

    table: pd.DataFrame
    organisms: pd.DataFrame
    n_matched: int
    n_tested: int

    def to_lines(self) -> list[str]:
        """Return the result as a few lines of text."""
        n = f"{self.n_matched:,} of {self.n_tested:,}"
        lines = [f"{n} different sequences match a database, with at most one substitution"]
        best = self.organisms.head(_MAX_NAMES).to_dict("records")
        if best and "p_exact" not in best[0]:
            lines += [f"exact matches of {row['antigen_organism']}: {row['n_exact']:,}" for row in best]
            return [*lines, "No p-values, because they need the cohort: it says how many would match by chance"]
        return lines + [
            f"exact matches of {row['antigen_organism']}: {row['n_exact']:,} "
            f"({row['expected_exact']:.1f} expected by chance, p = {row['p_exact']:.2g}, q = {row['q_exact']:.2g})"
            for row in best
        ]


class _Pairs(NamedTuple):
    """p pairs of a sequence of the table and a chain of a database, and the index of their match in `_MATCHES`."""

    rows: Integers
    entries: Integers
    matches: Integers


def annotate_sequences(
    table: pd.DataFrame, database: pd.DataFrame, *, cohort: RepertoireDataset | None = None
) -> Annotation:
    """Return the known antigens of the receptors in a table, and the organisms for which they are enriched.

    A sequence matches an entry if the residues between the conserved ones are the same, or differ in one place. The
    match says whether both have the same V gene.

    With a cohort, the number of matches is compared with that of clones of the cohort that have the same V gene, the
    same length, and about as many carriers. The sequences of the table are taken as independent; the p-value is the
    probability of at least as many matches.

    Parameters
    ----------
    table
        Table with a column `junction_aa` (or `cdr3_aa`) and, if known, `v_call`.
    database
        Receptors of one or more databases, see `read_database`.
    cohort
        Cohort from which the table comes.

    Raises
    ------
    InputError
        If the table has no such column, or if it has one of `ADDED_COLUMNS` already.
    """
    sequences = _read_sequence_column(table)
    is_valid = sequences["text"] != ""
    receptors = sequences[is_valid].drop_duplicates(["text", "v_call"], ignore_index=True)
    pairs = _match_entries(Sequences.encode(receptors["text"].tolist()), receptors["v_call"], database)
    annotated = _add_columns(table, sequences, _describe_matches(pairs, receptors, database))
    text_of_receptor, texts = pd.factorize(receptors["text"])  # a text counts once, whatever its V genes
    text_pairs = pairs._replace(rows=text_of_receptor[pairs.rows])
    organisms = _count_organisms(text_pairs, len(texts), database)
    if cohort is not None and len(texts):
        by_text = receptors.drop_duplicates("text", ignore_index=True)
        organisms = _compare_with_chance(organisms, by_text, database, cohort)
    return Annotation(annotated, organisms, len(np.unique(text_pairs.rows)), len(texts))


def _read_sequence_column(table: pd.DataFrame) -> pd.DataFrame:
    """Return the sequence of each row of the table, in the same order.

    The columns are `text`, without the conserved residues, `v_call` by IMGT's names, and `own`, the cell of the table.
    A text that is not valid, and a V gene that is not known, are "".
    """
    column = next((name for name in _SEQUENCE_COLUMNS if name in table), None)
    if column is None:
        found = join_names([str(name) for name in table], _MAX_SHOWN_COLUMNS)
        raise InputError(f"expected the column {' or '.join(_SEQUENCE_COLUMNS)}, found {found}")
    existing = [name for name in ADDED_COLUMNS if name in table]
    if existing:
        raise InputError(f"has a column {existing[0]!r} already; was it annotated before?")
    texts = trim_conserved_residues(table[column].fillna("").astype(str))
    calls = table["v_call"] if "v_call" in table else pd.Series("", index=table.index)
    v_calls = normalise_calls(calls.fillna("").astype(str))
    return pd.DataFrame({"text": texts.to_numpy(), "v_call": v_calls.to_numpy(), "own": table[column].to_numpy()})


def _match_entries(sequences: Sequences, v_calls: pd.Series, database: pd.DataFrame) -> _Pairs:
    """Return all pairs of sequences, (n,), and entries that differ in at most one residue."""
    texts, text_of_entry = np.unique(database["cdr3_aa"].to_numpy(str), return_inverse=True)
    search = NeighbourSearch(CloneSet(Sequences.encode(texts.tolist())))
    hash_table = search.make_table(search.clones.sequences.arrays([]), np.ones(len(texts), bool))
    neighbours = search.find(sequences.arrays([]), hash_table, 0, len(sequences))
    similar = pd.DataFrame({"row": neighbours.rows, "text": neighbours.clones, "mismatches": neighbours.mismatches})
    entries = pd.DataFrame({"text": text_of_entry.ravel(), "entry": np.arange(len(database))})
    pairs = similar.merge(entries, on="text")  # one pair for each entry with this text
    v_calls_of_pairs = v_calls.to_numpy(object)[pairs["row"]]
    has_same_v = (v_calls_of_pairs == database["v_call"].to_numpy(object)[pairs["entry"]]) & (v_calls_of_pairs != "")
    matches = 2 * pairs["mismatches"].to_numpy() + ~has_same_v  # indices of `_MATCHES`
    return _Pairs(pairs["row"].to_numpy(), pairs["entry"].to_numpy(), matches)


def _describe_matches(pairs: _Pairs, receptors: pd.DataFrame, database: pd.DataFrame) -> pd.DataFrame:
    """Return `text`, `v_call` and `ADDED_COLUMNS` of the receptors that match, from their best matches."""
    frame = pd.DataFrame({"row": pairs.rows, "match": pairs.matches, "entry": pairs.entries})
    frame = frame[frame["match"] == frame.groupby("row")["match"].transform("min")]
    frame = frame.join(database[list(_ANTIGEN_COLUMNS)], on="entry")
    descriptions = []
    for row, matches in frame.groupby("row", sort=True):
        receptor = receptors.iloc[int(str(row))]
        descriptions.append(
            {
                "text": receptor["text"],
                "v_call": receptor["v_call"],
                "specificity_match": _MATCHES[int(matches["match"].iloc[0])],
                **{name: _join_names(matches[name]) for name in _ANTIGEN_COLUMNS},
                "n_database_entries": len(matches),
            }
        )
    return pd.DataFrame(descriptions, columns=["text", "v_call", *ADDED_COLUMNS])


def _add_columns(table: pd.DataFrame, sequences: pd.DataFrame, descriptions: pd.DataFrame) -> pd.DataFrame:
    """Return the table with `ADDED_COLUMNS`; they are "" and 0 for a row whose sequence matches nothing."""
    added = sequences[["text", "v_call"]].merge(descriptions, on=["text", "v_call"], how="left").set_index(table.index)
    texts = {name: added[name].fillna("") for name in ("specificity_match", *_ANTIGEN_COLUMNS)}
    n_entries = pd.to_numeric(added["n_database_entries"]).fillna(0).astype(np.int64)
    return table.assign(**texts, n_database_entries=n_entries)


def _join_names(names: pd.Series) -> str:
    """Return the different names, the most frequent first, as text."""
    by_frequency = names[names != ""].value_counts(sort=True).index.tolist()
    return "; ".join(by_frequency[:_MAX_NAMES]) + ("; ..." if len(by_frequency) > _MAX_NAMES else "")


def _count_organisms(pairs: _Pairs, n: int, database: pd.DataFrame) -> pd.DataFrame:
    """Return the number of n sequences that match an entry of each organism, the most frequent organisms first."""
    names = database["antigen_organism"].to_numpy(object)[pairs.entries]
    frame = pd.DataFrame({"row": pairs.rows, "antigen_organism": names, "match": pairs.matches})
    frame = frame[frame["antigen_organism"] != ""]
    columns = {}
    for level, largest in _LEVELS.items():
        organism_matches = frame[frame["match"] <= largest].drop_duplicates(["row", "antigen_organism"])
        columns[f"n_{level}"] = organism_matches["antigen_organism"].value_counts()
    counts = pd.DataFrame(columns, dtype=float).fillna(0).astype(np.int64)
    counts = counts.sort_values(list(columns), ascending=False, kind="stable").rename_axis("antigen_organism")
    return counts.reset_index().assign(n_tested=n)


def _compare_with_chance(
    organisms: pd.DataFrame, receptors: pd.DataFrame, database: pd.DataFrame, cohort: RepertoireDataset
) -> pd.DataFrame:
    """Return the organisms with the number expected by chance, p-values and q-values; the smallest p-values first.

    The receptors have different texts.
    """
    junctions = _list_possible_junctions(receptors)
    background = draw_clone_background(cohort, without=list(junctions))
    names = organisms["antigen_organism"].tolist()
    pairs = _match_junctions(background.sequences, database)
    organism_of_pair = pd.Index(names).get_indexer(database["antigen_organism"].to_numpy(object))[pairs.entries]
    receptor_strata, background_strata = _make_strata(receptors, junctions, background, cohort)
    n_tests = max(int((database["antigen_organism"].drop_duplicates() != "").sum()), 1)
    result = organisms
    for level, largest in _LEVELS.items():
        is_counted = (pairs.matches <= largest) & (organism_of_pair >= 0)
        hits = np.zeros((len(background.publicity), len(names)), np.bool_)
        hits[pairs.rows[is_counted], organism_of_pair[is_counted]] = True
        rates = estimate_match_rates(receptor_strata, background_strata, hits)
        n_found = organisms[f"n_{level}"].tolist()
        p_values = np.array([compute_upper_tail(n, rates[:, i]) for i, n in enumerate(n_found)])
        q_values = adjust_by_benjamini_hochberg(p_values, n_tests)
        columns = {"expected": rates.sum(axis=0), "p": p_values, "q": q_values}
        result = result.assign(**{f"{name}_{level}": values for name, values in columns.items()})
    return result.sort_values([f"p_{level}" for level in _LEVELS], ignore_index=True)


def _make_strata(
    receptors: pd.DataFrame, junctions: Mapping[str, int], background: BackgroundClones, cohort: RepertoireDataset
) -> tuple[Strata, Strata]:
    """Return the strata of the receptors of the table and of the clones of the background."""
    receptor_of_junction = np.array(list(junctions.values()), np.int64)
    clones = CloneSet(Sequences.encode(list(junctions)))
    # of the whole container, as for the clones of the background
    n_carriers = count_carrying_repertoires(cohort.whole(), clones, receptor_of_junction)
    calls = background.sequences.genes.get("v_call")
    if calls is None:
        codes = np.zeros(len(receptors) + len(background.publicity), np.int64)
    else:
        names = np.array([*receptors["v_call"], *calls.names()], object)
        codes = pd.factorize(names)[0].astype(np.int64)
    lengths = np.asarray(receptors["text"].str.len(), np.int64)
    return (
        Strata(codes[: len(receptors)], lengths, classify_publicity(n_carriers)),
        Strata(codes[len(receptors) :], background.sequences.lengths - 2, background.publicity),
    )


def _list_possible_junctions(receptors: pd.DataFrame) -> dict[str, int]:
    """Return every junction that a receptor of the table may have in a container, with the receptor's index.

    The text of a receptor lacks the conserved residues at both ends, C and F or W, so its junction may end in F or W.
    """
    index_of: dict[str, int] = {}
    for index, (text, cell) in enumerate(zip(receptors["text"], receptors["own"].astype(str), strict=True)):
        index_of |= {f"C{text}F": index, f"C{text}W": index}
        as_given = cell.strip().upper()
        if as_given[1:-1] == text:
            index_of[as_given] = index
    return index_of


def _match_junctions(sequences: Sequences, database: pd.DataFrame) -> _Pairs:
    """Return all pairs of junctions, (m,), and entries; V genes are not compared."""
    inner = pd.Series(sequences.decode(), dtype=object).str[1:-1]
    fits = np.flatnonzero(inner.str.len().to_numpy() > 0)
    pairs = _match_entries(Sequences.encode(inner.iloc[fits].tolist()), pd.Series("", index=range(len(fits))), database)
    return pairs._replace(rows=fits[pairs.rows])


def compute_upper_tail(n: int, rates: NDArray[np.float64]) -> float:
    """Return the probability that at least n of independent events with these probabilities happen."""
    fewer = np.zeros(n + 1)  # probabilities of 0, 1, ... n - 1 events, and of n or more
    fewer[0] = 1.0
    for rate in rates.tolist():
        moved = fewer[:-1] * rate
        fewer[-1] += moved[-1] if n else 0.0
        fewer[:-1] -= moved
        fewer[1:-1] += moved[:-1]
    return float(fewer[-1]) if n else 1.0
