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
from deeprc.specificity.databases import COLUMNS, normalise_calls, trim_conserved_residues

__all__ = ["ADDED_COLUMNS", "Annotation", "annotate_sequences"]

ADDED_COLUMNS = ("specificity_match", "antigen_organism", "antigen", "epitope", "n_database_entries")
"""Columns that an annotated table has besides its own."""

_SEQUENCE_COLUMNS = ("junction_aa", "cdr3_aa")
_MATCHES = ("exact, same V", "exact", "one substitution, same V", "one substitution")
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
            return [
                *lines,
                "No p-values, because they need the cohort: it says how many would match by chance",
            ]
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
    column = next((name for name in _SEQUENCE_COLUMNS if name in table), None)
    if column is None:
        found = join_names([str(name) for name in table], _MAX_SHOWN_COLUMNS)
        raise InputError(f"expected the column {' or '.join(_SEQUENCE_COLUMNS)}, found {found}")
    taken = [name for name in ADDED_COLUMNS if name in table]
    if taken:
        raise InputError(f"has a column {taken[0]!r} already; was it annotated before?")
    texts = trim_conserved_residues(table[column].fillna("").astype(str))
    v_calls = (
        normalise_calls(table["v_call"].fillna("").astype(str))
        if "v_call" in table
        else pd.Series("", index=table.index)
    )
    different = pd.DataFrame({"text": texts.to_numpy(), "v_call": v_calls.to_numpy(), "own": table[column].to_numpy()})
    different = different[different["text"] != ""].drop_duplicates(["text", "v_call"], ignore_index=True)
    pairs = _match_entries(Sequences.encode(different["text"].tolist()), different["v_call"], database)
    described = _describe_matches(pairs, different, database)
    keys = pd.DataFrame({"text": texts.to_numpy(), "v_call": v_calls.to_numpy()})
    added = keys.merge(described, on=["text", "v_call"], how="left").set_index(table.index)
    result = table.assign(**{name: added[name].fillna("") for name in ADDED_COLUMNS[:-1]})
    result[ADDED_COLUMNS[-1]] = pd.to_numeric(added[ADDED_COLUMNS[-1]]).fillna(0).astype(np.int64)
    index, names = pd.factorize(different["text"])  # a sequence counts once, whatever its V genes
    by_text = pairs._replace(rows=index[pairs.rows])
    organisms = _count_organisms(by_text, len(names), database)
    if cohort is not None and len(names):
        organisms = _compare_with_chance(
            organisms, different.drop_duplicates("text", ignore_index=True), database, cohort
        )
    return Annotation(result, organisms, len(np.unique(by_text.rows)), len(names))


def _match_entries(sequences: Sequences, v_calls: pd.Series, database: pd.DataFrame) -> _Pairs:
    """Return all pairs of sequences, (n,), and entries that differ in at most one residue."""
    texts, first = np.unique(database["cdr3_aa"].to_numpy(str), return_inverse=True)
    search = NeighbourSearch(CloneSet(Sequences.encode(texts.tolist())))
    table = search.make_table(search.clones.sequences.arrays([]), np.ones(len(texts), bool))
    matches = search.find(sequences.arrays([]), table, 0, len(sequences))
    by_text = np.argsort(first, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=len(texts)))])
    sizes = np.diff(bounds)[matches.clones]
    found_index = np.repeat(np.arange(len(matches.rows)), sizes)
    index_in_clone = np.arange(len(found_index)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    entries = by_text[bounds[matches.clones][found_index] + index_in_clone]
    rows = matches.rows[found_index]
    v_own, v_other = v_calls.to_numpy(object)[rows], database["v_call"].to_numpy(object)[entries]
    has_same_v = (v_own == v_other) & (v_own != "")
    return _Pairs(rows, entries, 2 * matches.mismatches[found_index] + ~has_same_v)


def _describe_matches(pairs: _Pairs, different: pd.DataFrame, database: pd.DataFrame) -> pd.DataFrame:
    """Return `text`, `v_call` and `ADDED_COLUMNS` of the sequences that match, from their best matches."""
    frame = pd.DataFrame({"row": pairs.rows, "match": pairs.matches, "entry": pairs.entries})
    frame = frame[frame["match"] == frame.groupby("row")["match"].transform("min")]
    frame = frame.join(database[list(COLUMNS[2:])], on="entry")
    descriptions = []
    for row, matches in frame.groupby("row", sort=True):
        names = {name: _join_names(matches[name]) for name in ADDED_COLUMNS[1:-1]}
        match = _MATCHES[int(matches["match"].iloc[0])]
        sequence = different.iloc[int(str(row))]
        key = {"text": sequence["text"], "v_call": sequence["v_call"]}
        descriptions.append({**key, "specificity_match": match, **names, ADDED_COLUMNS[-1]: len(matches)})
    return pd.DataFrame(descriptions, columns=["text", "v_call", *ADDED_COLUMNS])


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
    organisms: pd.DataFrame, different: pd.DataFrame, database: pd.DataFrame, cohort: RepertoireDataset
) -> pd.DataFrame:
    """Return the organisms with the number expected by chance, p-values and q-values; the smallest p-values first."""
    junctions = _list_possible_junctions(different)
    background = draw_clone_background(cohort, without=list(junctions))
    names = organisms["antigen_organism"].tolist()
    pairs = _match_junctions(background.sequences, database)
    organism_of = pd.Index(names).get_indexer(database["antigen_organism"].to_numpy(object))[pairs.entries]
    table_strata, background_strata = _make_strata(different, junctions, background, cohort)
    n_tests = max(int((database["antigen_organism"].drop_duplicates() != "").sum()), 1)
    result = organisms
    for level, largest in _LEVELS.items():
        counts = (pairs.matches <= largest) & (organism_of >= 0)
        hits = np.zeros((len(background.publicity), len(names)), np.bool_)
        hits[pairs.rows[counts], organism_of[counts]] = True
        rates = estimate_match_rates(table_strata, background_strata, hits)
        n_found = organisms[f"n_{level}"].tolist()
        p_values = np.array([compute_upper_tail(n, rates[:, i]) for i, n in enumerate(n_found)])
        q_values = adjust_by_benjamini_hochberg(p_values, n_tests)
        columns = {"expected": rates.sum(axis=0), "p": p_values, "q": q_values}
        result = result.assign(**{f"{name}_{level}": values for name, values in columns.items()})
    return result.sort_values([f"p_{level}" for level in _LEVELS], ignore_index=True)


def _make_strata(
    different: pd.DataFrame, junctions: Mapping[str, int], background: BackgroundClones, cohort: RepertoireDataset
) -> tuple[Strata, Strata]:
    """Return the strata of the sequences of the table and of the clones of the background."""
    owners = np.array(list(junctions.values()), np.int64)
    # of the whole container, as for the clones of the background
    n_carriers = count_carrying_repertoires(cohort.whole(), CloneSet(Sequences.encode(list(junctions))), owners)
    calls = background.sequences.genes.get("v_call")
    background_genes = [""] * len(background.publicity) if calls is None else list(calls.names())
    table_genes = different["v_call"].tolist() if calls is not None else [""] * len(different)
    codes = pd.factorize(np.array([*table_genes, *background_genes], object))[0].astype(np.int64)
    lengths = np.asarray(different["text"].str.len(), np.int64)
    return (
        Strata(codes[: len(table_genes)], lengths, classify_publicity(n_carriers)),
        Strata(codes[len(table_genes) :], background.sequences.lengths - 2, background.publicity),
    )


def _list_possible_junctions(table: pd.DataFrame) -> dict[str, int]:
    """Return every junction that a sequence of the table may have in a container, with the sequence's index.

    The text of a sequence lacks the conserved residues at both ends, C and F or W, so its junction may end in F or W.
    """
    row_of: dict[str, int] = {}
    for row, (text, original) in enumerate(zip(table["text"], table["own"].astype(str), strict=True)):
        row_of |= {f"C{text}F": row, f"C{text}W": row}
        as_given = original.strip().upper()
        if as_given[1:-1] == text:
            row_of[as_given] = row
    return row_of


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
