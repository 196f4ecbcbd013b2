"""Weights of the residues at the gaps of motifs, which are positions where any residue may be.

For example, witnesses have the motif `SF.N` with each residue at the gap equally often. Tryptophan (W) is rare in other
sequences. So few other sequences have `SFWN`, and a sequence with it is more probably a witness than one with `SFAN`.
The kernel of the motif should match it better: W gets a larger weight than A.

Letters: B repertoires, W residues that a motif spans, G gaps of all motifs, M motifs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from deeprc.arrays import Flags, Floats, Integers
from deeprc.compilation import njit, run_in_parts
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import open_step
from deeprc.rank_calls import compute_parts, divide_repertoires
from deeprc.tasks import Task
from deeprc.training.enriched_motif import EnrichedMotif
from deeprc.training.kmer_frequencies import BlockSequences, iterate_blocks
from deeprc.training.kmer_sets import ANY
from deeprc.training.labelled_repertoires import LabelledRepertoires
from deeprc.training.search_outputs import SearchOutputs, make_search_output

__all__ = ["describe_gaps", "weigh_gaps"]

_N_LETTERS = len(AMINO_ACIDS)
_LEVEL = 0.01  # largest p-value of equal residues, if there is one gap; with several it is divided among them
_EQUAL = 1e-6  # relative difference of frequencies that are all equal
_MIN_NAMED = 0.5  # smallest weight of a residue that is named to the user


class _Gap(NamedTuple):
    """A gap of a motif: the index of the motif, and the offset of the gap from the motif's first residue."""

    motif: int
    offset: int


@dataclass(frozen=True)
class _ResidueSlopes:
    """The association of a motif with the label, for each of the 20 residues at one of its gaps.

    Attributes
    ----------
    slopes
        Slope of the motif's frequency over the label, divided by the mean frequency, (20,); NaN for a residue that
        never occurs.
    variances
        Variance of each slope if all 20 are equal, (20,).
    frequencies
        Mean frequency, (20,).
    """

    slopes: Floats
    variances: Floats
    frequencies: Floats


def describe_gaps(motif: EnrichedMotif) -> str:
    """Return the residues that count at least half as much as the best one, for example "3: M W K"; empty if none is.

    Gaps are given by their positions in the motif, from 1.
    """
    gap_texts = []
    for gap, weights in zip(motif.gaps, motif.gap_weights, strict=False):
        if weights:
            best_first = np.argsort(-np.array(weights), kind="stable").tolist()
            named = [AMINO_ACIDS[letter] for letter in best_first if weights[letter] >= _MIN_NAMED]
            gap_texts.append(f"{gap + 1}: {' '.join(named)}")
    return "; ".join(gap_texts)


def weigh_gaps(
    motifs: Sequence[EnrichedMotif], repertoires: LabelledRepertoires, tasks: Sequence[Task]
) -> list[EnrichedMotif]:
    """Return the motifs with their `gap_weights`.

    1. **Measure.** The slope of the motif's frequency over the label, divided by its mean frequency, is computed for
       each of the 20 residues at a gap. Sequences with an earlier motif of the same output are left out, as in the
       search.
    2. **Test.** If the slopes of the 20 residues may be equal, the gap has no weights.
    3. **Shrink.** Otherwise each slope is drawn towards the slope that is expected of it, and an uncertain slope is
       drawn more (DerSimonian and Laird 1986). The expected slope is the mean of all slopes or, if they depend on the
       frequency of the residue, a line in 1 / frequency.
    4. **Scale.** The largest slope becomes the weight 1. A residue with which the motif is associated in the other
       direction has the weight 0.

    Parameters
    ----------
    motifs
        Motifs in the order in which they were found; those of one output in the order in which they were chosen.
    repertoires, tasks
        Training repertoires with their labels and donors, and the tasks of the labels.
    """
    gaps = [_Gap(m, offset) for m, motif in enumerate(motifs) for offset in motif.gaps]
    if not gaps:
        return list(motifs)
    counts, n_excluded = _count_letters(repertoires.dataset, motifs, gaps)
    weights_of: list[list[tuple[float, ...]]] = [[] for _ in motifs]
    for g, gap in enumerate(gaps):
        motif = motifs[gap.motif]
        search_output, labelled = make_search_output(repertoires, tasks, motif.output)
        sizes = search_output.dataset.n_sequences - n_excluded[labelled, gap.motif]
        direction = float(np.sign(motif.correlation))
        weights = _weigh_residues(counts[labelled, g], sizes, search_output, direction, _LEVEL / len(gaps))
        weights_of[gap.motif].append(weights)
    return [replace(motif, gap_weights=tuple(weights)) for motif, weights in zip(motifs, weights_of, strict=True)]


def _weigh_residues(
    counts: Integers, sizes: Integers, search_output: SearchOutputs, direction: float, level: float
) -> tuple[float, ...]:
    """Return the weight of each of the 20 residues at a gap of a motif; () if they may be equal.

    Parameters
    ----------
    counts, sizes
        How often the motif occurs in each repertoire with each residue, (B, 20), and in how many sequences it was
        counted, (B,).
    search_output
        Output of the motif, with its B repertoires.
    direction
        1 if the motif is more frequent where the label is higher, else -1.
    level
        Largest p-value of equal slopes.
    """
    if not sizes.any():
        return ()
    fitted = _fit_slopes(
        counts / np.maximum(sizes, 1)[:, None],
        sizes,
        search_output.labels[:, 0],
        search_output.compute_weights(sizes),
        search_output.donors,
    )
    weights = _shrink_slopes(replace(fitted, slopes=fitted.slopes * direction), level)
    return () if weights is None else tuple(weights.tolist())


def _fit_slopes(
    frequencies: Floats, sizes: Integers, labels: Floats, weights: Floats, donors: Integers
) -> _ResidueSlopes:
    """Return the slope of each column of frequencies over the labels, with its variance and the mean frequency.

    The variances hold if all columns have the slope of their sum, which is what the test assumes. They come from the
    donors' deviations from the line with this slope, and are at least those of counting.

    Parameters
    ----------
    frequencies
        Frequency of the motif with each residue at the gap, (B, 20).
    sizes, labels, weights, donors
        Number of sequences, label, weight and donor of each repertoire, (B,) each.
    """
    weights = weights / weights.sum()
    centred = labels - weights @ labels
    mean = weights @ frequencies  # (20,)
    with np.errstate(invalid="ignore", divide="ignore"):
        influence = weights * centred / (weights @ centred**2)  # of a repertoire on a slope, (B,); NaN if labels equal
        common_slope = influence @ frequencies.sum(1) / mean.sum()
        on_line = 1 + common_slope * centred  # frequency on the common line, divided by the mean frequency, (B,)
        slopes = influence @ frequencies / mean
        residuals = influence[:, None] * (frequencies - mean * on_line[:, None]) / mean  # (B, 20)
        by_donor = np.zeros((int(donors.max()) + 1, frequencies.shape[1]))
        np.add.at(by_donor, donors, residuals)
        counting_variance = (influence**2 * np.maximum(on_line, 0) / np.maximum(sizes, 1)).sum() / mean
        return _ResidueSlopes(slopes, np.maximum((by_donor**2).sum(0), counting_variance), mean)


def _shrink_slopes(fitted: _ResidueSlopes, level: float) -> Floats | None:
    """Return the slopes drawn towards their expectation, divided by the largest, (20,); None if all may be equal.

    The expectation is that of `_choose_design`. A residue that never occurs has the expected slope of the rarest one.

    Parameters
    ----------
    fitted
        Slopes, of which those above 0 have the direction of the motif.
    level
        Largest p-value of equal slopes.
    """
    occurs = np.isfinite(fitted.slopes)
    if occurs.sum() < 2:
        return None
    slopes, variances, frequencies = fitted.slopes[occurs], fitted.variances[occurs], fitted.frequencies[occurs]
    design = _choose_design(slopes, variances, frequencies, level)
    if design is None:
        return None
    fit = _fit_design(slopes, 1 / variances, design)
    excess = fit.q - len(slopes) + design.shape[1]  # over the degrees of freedom
    between_residues = max(0.0, excess / fit.trace)  # variance of the slopes of residues
    precision = 1 / (between_residues + variances)
    expected = _fit_design(slopes, precision, design).expected
    shrunk = np.full(len(fitted.slopes), expected[frequencies.argmin()])
    shrunk[occurs] = expected + (slopes - expected) * between_residues * precision
    return None if shrunk.max() <= 0 else np.asarray(np.maximum(shrunk, 0) / shrunk.max())


def _choose_design(slopes: Floats, variances: Floats, frequencies: Floats, level: float) -> Floats | None:
    """Return the columns by which n slopes are fitted, (n, 1) or (n, 2); None if all slopes may be equal.

    If witnesses have each residue equally often, the slopes are a line in 1 / frequency. They are fitted by a line if
    it rises or falls significantly (a meta-regression with one covariate). Otherwise they are fitted by their mean, if
    they differ from it (Cochran's Q). Each of the two tests has half of the level.
    """
    precision = 1 / variances
    constant = np.ones((len(slopes), 1))
    line = np.column_stack([constant, frequencies.min() / frequencies])
    if len(slopes) > 2 and _test_line(slopes, precision, line) <= level / 2:
        return line
    differ = chi2.sf(_fit_design(slopes, precision, constant).q, len(slopes) - 1) <= level / 2
    return constant if differ else None


class _Regression(NamedTuple):
    """A weighted regression of n slopes on the k columns of a design.

    Attributes
    ----------
    expected
        Fitted slopes, (n,).
    coefficients, covariance
        Coefficients of the columns, (k,), and their covariance, (k, k).
    q
        Weighted sum of squared deviations from the fit.
    trace
        Factor of the variance between residues in the expectation of q (DerSimonian and Laird).
    """

    expected: Floats
    coefficients: Floats
    covariance: Floats
    q: float
    trace: float


def _fit_design(slopes: Floats, precision: Floats, design: Floats) -> _Regression:
    """Fit slopes, (n,), with these precisions by the columns of a design, (n, k)."""
    weighted = precision[:, None] * design  # (n, k)
    covariance = np.linalg.inv(weighted.T @ design).astype(np.float64)
    coefficients: Floats = covariance @ (weighted.T @ slopes)
    expected: Floats = design @ coefficients
    trace = precision.sum() - np.trace(covariance @ (weighted.T @ weighted))
    return _Regression(expected, coefficients, covariance, float(precision @ (slopes - expected) ** 2), float(trace))


def _test_line(slopes: Floats, precision: Floats, line: Floats) -> float:
    """Return the p-value of no rise and no fall; the line has the columns 1 and a covariate."""
    if np.ptp(line[:, 1]) < _EQUAL:
        return 1.0
    fit = _fit_design(slopes, precision, line)
    return float(chi2.sf(fit.coefficients[1] ** 2 / fit.covariance[1, 1], 1))


def _count_letters(
    dataset: RepertoireDataset, motifs: Sequence[EnrichedMotif], gaps: Sequence[_Gap]
) -> tuple[Integers, Integers]:
    """Count the residues at gaps, in sequences without an earlier motif of the same output.

    Parameters
    ----------
    dataset, motifs, gaps
        Repertoires, motifs, and all gaps, motif by motif.

    Returns
    -------
    How often a motif occurs in each repertoire with each residue at one of its gaps, (B, G, 20); and the numbers of
    sequences that are left out for each motif, (B, M).
    """
    function = partial(_count_part, [motif.letters for motif in motifs], [motif.output for motif in motifs], gaps)
    counts, n_excluded = zip(*compute_parts(function, divide_repertoires(dataset)), strict=True)
    return np.concatenate(counts), np.concatenate(n_excluded)


def _count_part(
    motifs: Sequence[Sequence[int]], outputs: Sequence[int], gaps: Sequence[_Gap], dataset: RepertoireDataset
) -> tuple[Integers, Integers]:
    """Return what `_count_letters` returns, for some of the repertoires: those that one process counts."""
    tables = _make_tables(motifs, outputs, gaps)
    counts = np.zeros((len(dataset), len(gaps), _N_LETTERS), np.int64)
    n_excluded = np.zeros((len(dataset), len(motifs)), np.int64)
    with open_step("residues at the gaps of motifs", int(dataset.n_sequences.sum())) as step:
        for repertoires, block in iterate_blocks(dataset, step):
            own_counts = counts[repertoires]
            run_in_parts(_add_letter_counts, len(own_counts), block, tables, own_counts, n_excluded[repertoires])
    return counts, n_excluded


class _MotifTables(NamedTuple):
    """M motifs as arrays for compiled code.

    Attributes
    ----------
    letters
        Letters of each motif, (M, W); after its end `ANY`.
    spans
        Number of positions of each motif, (M,).
    output_index
        Index of each motif's output among those that have motifs, (M,).
    gap_bounds, gap_offsets
        The gaps of motif m are gap_bounds[m] to gap_bounds[m + 1] - 1, (M + 1,); offset of each gap in its motif, (G,).
    by_first_letter, first_letter_bounds
        The motifs that begin with letter l are by_first_letter[first_letter_bounds[l] : first_letter_bounds[l + 1]],
        (M,) and (21,).
    """

    letters: Integers
    spans: Integers
    output_index: Integers
    gap_bounds: Integers
    gap_offsets: Integers
    by_first_letter: Integers
    first_letter_bounds: Integers


def _make_tables(motifs: Sequence[Sequence[int]], outputs: Sequence[int], gaps: Sequence[_Gap]) -> _MotifTables:
    """Return motifs, by their letters, with their outputs and with the gaps of `_count_letters` as arrays."""
    spans = np.array([len(motif) for motif in motifs])
    letters = np.full((len(motifs), spans.max()), ANY)
    for motif_letters, motif in zip(letters, motifs, strict=True):
        motif_letters[: len(motif)] = motif
    motif_of_gap, offset = np.array(gaps).T
    gap_bounds = np.searchsorted(motif_of_gap, np.arange(len(motifs) + 1))
    output_index = np.unique(outputs, return_inverse=True)[1]
    by_first_letter = np.argsort(letters[:, 0], kind="stable")
    first_letter_bounds = np.searchsorted(letters[by_first_letter, 0], np.arange(_N_LETTERS + 1))
    return _MotifTables(letters, spans, output_index, gap_bounds, offset.copy(), by_first_letter, first_letter_bounds)


@njit(nogil=True)
def _add_letter_counts(
    first: int,
    stop: int,
    block: BlockSequences,
    motifs: _MotifTables,
    counts: Integers,
    n_excluded: Integers,
) -> None:
    """Add what `_count_letters` counts in some of b repertoires to `counts`, (b, G, 20), and `n_excluded`."""
    residues, offsets, repertoire_offsets = block
    n = len(motifs.spans)
    is_motif_here, has_motif = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for b in range(first, stop):
        for s in range(repertoire_offsets[b], repertoire_offsets[b + 1]):
            if not _find_motifs(residues, offsets[s], offsets[s + 1], motifs, is_motif_here):
                continue
            has_motif[:] = False
            for m in range(n):
                if has_motif[motifs.output_index[m]]:
                    n_excluded[b, m] += 1
                elif is_motif_here[m]:
                    has_motif[motifs.output_index[m]] = True
                    _count_at_gaps(residues, offsets[s], offsets[s + 1], motifs, m, counts[b])
            is_motif_here[:] = False


@njit(nogil=True)
def _count_at_gaps(
    residues: NDArray[np.uint8], start: int, stop: int, motifs: _MotifTables, m: int, counts: Integers
) -> None:
    """Add the residues at the gaps of motif m in the sequence from `start` to `stop` to `counts`, (G, 20)."""
    for at in range(start, stop - motifs.spans[m] + 1):
        if _is_match(residues, at, motifs.letters[m], motifs.spans[m]):
            for g in range(motifs.gap_bounds[m], motifs.gap_bounds[m + 1]):
                counts[g, residues[at + motifs.gap_offsets[g]]] += 1


@njit(nogil=True)
def _find_motifs(
    residues: NDArray[np.uint8], start: int, stop: int, motifs: _MotifTables, is_motif_here: Flags
) -> bool:
    """Flag the motifs that occur in the sequence from `start` to `stop`, (M,); return whether there is one."""
    has_any = False
    for at in range(start, stop):
        letter = residues[at]
        for i in range(motifs.first_letter_bounds[letter], motifs.first_letter_bounds[letter + 1]):
            m = motifs.by_first_letter[i]
            if at + motifs.spans[m] <= stop and _is_match(residues, at, motifs.letters[m], motifs.spans[m]):
                is_motif_here[m] = has_any = True
    return has_any


@njit(nogil=True)
def _is_match(residues: NDArray[np.uint8], start: int, letters: Integers, span: int) -> bool:
    """Return whether the residues from `start` on have the letters of a motif; `ANY` accepts each residue."""
    offset = 0
    while offset < span and (letters[offset] == ANY or letters[offset] == residues[start + offset]):
        offset += 1
    return offset == span
