"""Find what is suspicious in the content of repertoires: chains, species, genes, counts, sizes, dropped rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.checks.findings import Finding, Severity, list_few, name_few
from deeprc.checks.profile import LARGEST_COUNT, RepertoireProfile, list_files
from deeprc.datasets.drop_reasons import DROP_REASONS
from deeprc.datasets.readers import COUNT_CELLS, COUNT_ONE
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.errors import cut_name, format_count

__all__ = ["find_content_problems"]

_MIN_ROWS = 20  # a share of fewer rows or sequences says nothing
_SOME, _MANY = 0.01, 0.05  # shares of sequences
_MOST = 0.9  # share of sequences with a gene in the median repertoire, from which a lack of genes is conspicuous
_HALF = 0.5  # share of sequences, or of counts
_TIMES_SMALLER = 10.0  # than the median repertoire
_DEVIATIONS = 3.5  # robust standard deviations from the median: Iglewicz and Hoaglin's rule
_FROM_MAD = 1.4826  # standard deviation divided by the median absolute deviation (MAD), for normal values
_DROP_DIFFERENCE = 0.2  # share of rows


def find_content_problems(profiles: Sequence[RepertoireProfile], *, allow_empty: bool) -> list[Finding]:
    """Return findings about the content of each repertoire, by itself and compared with the others."""
    filled = [profile for profile in profiles if profile.kept]
    findings = [
        *_find_empty(profiles, allow_empty),
        *_find_mixed_chains(filled),
        *_find_contradictions(filled),
        *_find_mixed_species(filled),
        *_find_gene_problems(filled),
    ]
    return [
        *findings,
        *_find_mixed_count_columns(filled),
        *_find_odd_counts(filled),
        *_find_small_repertoires(filled),
        *_find_odd_drop_rates(profiles),
        *_find_mixed_junctions(filled),
    ]


def _list_ids(profiles: Iterable[RepertoireProfile]) -> tuple[str, ...]:
    return tuple(profile.repertoire_id for profile in profiles)


def _name_repertoires(profiles: Sequence[RepertoireProfile]) -> str:
    return name_few(_list_ids(profiles), "repertoire", "repertoires")


def _describe_sources(profiles: Mapping[str, Sequence[RepertoireProfile]]) -> str:
    """Return the repertoires of each source as text, the source with most repertoires first."""
    sources = sorted(profiles, key=lambda name: -len(profiles[name]))
    more = f"; and {len(sources) - 3} more" if len(sources) > 3 else ""
    return "; ".join(f"{name} in {_name_repertoires(profiles[name])}" for name in sources[:3]) + more


def _group_by_main_source(
    counted: Iterable[tuple[Mapping[str, int], RepertoireProfile]], default: str
) -> dict[str, list[RepertoireProfile]]:
    """Return repertoires by the source of most of their rows, from the number of rows of each source."""
    groups: dict[str, list[RepertoireProfile]] = {}
    for n_rows, profile in counted:
        groups.setdefault(max(n_rows, key=n_rows.__getitem__, default=default), []).append(profile)
    return groups


def _make_finding(
    affected: Sequence[RepertoireProfile],
    severity: Severity,
    code: str,
    problem: str,
    advice: str,
    *,
    column: str | None = None,
) -> Finding:
    """Return a finding about some repertoires, whose names are put after the problem."""
    message = f"{problem} in {_name_repertoires(affected)}"
    return Finding(severity, code, message, advice, list_files(affected), _list_ids(affected), column)


def _find_empty(profiles: Sequence[RepertoireProfile], allow_empty: bool) -> Iterator[Finding]:
    """Yield findings about repertoires without a kept sequence."""
    empty = [profile for profile in profiles if not profile.kept]
    if not empty:
        return
    dropped: Counter[str] = Counter()
    for profile in empty:
        dropped.update(profile.report.dropped)
    rows = sum(profile.report.rows_read for profile in empty)
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in dropped.items() if n)
    problem = f"none of the {rows:,} rows is kept{f' ({reasons})' if reasons else ''},"
    advice = "Leave such repertoires out with `allow_missing`."
    if allow_empty:
        advice = "`deeprc preprocess` with `allow_missing` leaves such repertoires out."
    if any(profile.report.has_only_empty_rows for profile in empty):
        advice = "If the sequences are in a different column, name it with `sequence_column`. " + advice
    yield _make_finding(empty, "warning" if allow_empty else "error", "empty-repertoire", problem, advice)


def _find_mixed_chains(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield findings about repertoires with sequences of several chains."""
    holders: dict[str, list[RepertoireProfile]] = {}
    rows: Counter[str] = Counter()
    for profile in profiles:
        for locus, n in profile.report.loci.items():
            if locus and profile.report.locus is None:
                holders.setdefault(locus, []).append(profile)
                rows[locus] += n
    if len(holders) > 1:
        frequent = rows.most_common()
        shown = "; ".join(
            f"{locus} in {format_count(rows[locus], 'row')} of {_name_repertoires(holders[locus])}"
            for locus, _ in frequent
        )
        fewer = [holder for locus, _ in frequent[1:] for holder in holders[locus]]
        yield Finding(
            "error",
            "mixed-chains",
            f"the files hold several chains: {shown}",
            f"Choose one chain with `locus`, such as `locus={frequent[0][0]}`.",
            list_files(fewer),
            tuple(dict.fromkeys(_list_ids(fewer))),
        )


def _find_contradictions(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield findings about sequences whose genes belong to a different chain than the file says."""
    contradicting = [profile for profile in profiles if profile.contradicting > max(_SOME * profile.kept, 1)]
    mostly_contradicting = [profile for profile in contradicting if profile.contradicting > _MANY * profile.kept]
    others = [profile for profile in contradicting if profile not in mostly_contradicting]
    severities: tuple[Severity, Severity] = ("error", "warning")
    for severity, affected in zip(severities, (mostly_contradicting, others), strict=True):
        if affected:
            n, kept = sum(profile.contradicting for profile in affected), sum(profile.kept for profile in affected)
            yield _make_finding(
                affected,
                severity,
                "chain-contradiction",
                f"{n:,} of {kept:,} sequences have a V or J gene of a different chain than the locus column, `locus` "
                "or the other gene says,",
                "Find out whether the locus column or the gene columns are right. Correct these files, or leave them "
                "out.",
            )


def _find_mixed_species(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield findings about genes that only mice have."""
    mouse_profiles = [profile for profile in profiles if sum(profile.of_mice.values()) > _MANY * profile.kept]
    others = [
        profile
        for profile in profiles
        if profile not in mouse_profiles and max(map(profile.count_named, GENE_FIELDS)) >= _MIN_ROWS
    ]
    with_few = [profile for profile in others if profile.of_mice]
    if mouse_profiles:
        names = sorted({name for profile in mouse_profiles for name in profile.of_mice})
        example = f"genes that only mice have, such as {', '.join(names[:3])}"
        if others:
            yield Finding(
                "error",
                "mixed-species",
                f"{example}, in {_name_repertoires(mouse_profiles)}; the other {len(others)} repertoires have few or "
                "none",
                "Use only one species in a container.",
                list_files(mouse_profiles),
                _list_ids(mouse_profiles),
            )
        else:
            advice = "Nothing, if these are mice. Their gene names are kept as they are, not translated to IMGT's."
            yield Finding("note", "mouse-genes", f"{example}, in {_name_repertoires(mouse_profiles)}", advice)
    if with_few:
        names = sorted({name for profile in with_few for name in profile.of_mice})
        n = sum(sum(profile.of_mice.values()) for profile in with_few)
        yield _make_finding(
            with_few,
            "warning",
            "mouse-genes",
            f"{n:,} sequences have genes that only mice have ({', '.join(names[:3])}),",
            "Check for contamination, and whether the annotation used the reference of the right species.",
        )


def _find_gene_problems(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield findings about unknown and missing gene names."""
    odd: Counter[str] = Counter()
    with_odd = []
    n_named = 0
    for profile in profiles:
        unread = {name: n for name, n in profile.unrecognised.items() if name not in profile.of_mice}
        if unread:
            with_odd.append(profile)
            odd.update(unread)
        n_named += sum(map(profile.count_named, GENE_FIELDS))
    if odd:
        n = odd.total()
        examples = ", ".join(repr(name) for name, _ in odd.most_common(3))
        yield _make_finding(
            with_odd,
            "warning" if n > _SOME * n_named else "note",
            "unknown-genes",
            f"{n:,} of {n_named:,} gene names are not recognised ({examples}),",
            "Check that these columns hold gene names. Each of these names is stored as it is, as a gene of its own.",
        )
    for column in GENE_FIELDS:
        shares = [profile.count_named(column) / profile.kept for profile in profiles]
        without = [profile for profile, share in zip(profiles, shares, strict=True) if share < _HALF]
        if without and float(np.median(shares)) > _MOST:
            yield _make_finding(
                without,
                "warning",
                "missing-genes",
                f"fewer than half of the sequences have a {column}, unlike in the other repertoires,",
                "Export these files with their genes. Otherwise a model that uses genes can recognise these "
                "repertoires by the missing genes.",
                column=column,
            )


def _find_mixed_count_columns(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield findings about the columns that counts are from."""
    sources = _group_by_main_source([(profile.report.counts_from, profile) for profile in profiles], COUNT_ONE)
    without = sources.pop(COUNT_ONE, [])
    if without and not sources:
        advice = "Nothing, if you need no counts. Otherwise name the column with `sequence_column` and `count_column`."
        yield Finding("note", "no-counts", "no file has counts, so each sequence gets the count 1", advice)
    partly = [
        profile for profile in profiles if profile not in without and profile.report.counts_from.get(COUNT_ONE, 0)
    ]
    if sources and (without or partly):
        n = sum(profile.report.counts_from.get(COUNT_ONE, 0) for profile in [*without, *partly])
        yield _make_finding(
            [*without, *partly],
            "warning",
            "missing-counts",
            f"{n:,} rows have no count (empty, or -1), so each of them gets the count 1,",
            "Export them with counts, or train with `composition_counts: false`, which reads none.",
        )
    if len(sources) > 1:
        shown = _describe_sources({repr(name): profiles_with for name, profiles_with in sources.items()})
        yield Finding(
            "warning",
            "different-count-columns",
            f"counts are from different columns: {shown}",
            "Make sure that they count the same thing. Reads, templates and cells differ by orders of magnitude.",
        )


def _find_odd_counts(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield findings about the values of counts."""
    counted = [
        profile
        for profile in profiles
        if set(profile.report.counts_from) - {COUNT_ONE, COUNT_CELLS} and profile.kept >= _MIN_ROWS
    ]
    yield from _find_counts_of_one(counted)
    yield from _find_rounded_counts(profiles)
    saturated = [profile for profile in profiles if profile.largest_count == LARGEST_COUNT]
    if saturated:
        yield _make_finding(
            saturated,
            "warning",
            "saturated-counts",
            f"a count is {LARGEST_COUNT:,} or more, the largest that can be stored,",
            "Check this file. Such a large count is unlikely to be real.",
        )
    dominated = [profile for profile in counted if profile.largest_count > _HALF * profile.total_count]
    if dominated:
        yield _make_finding(
            dominated,
            "warning",
            "dominant-sequence",
            "one sequence has more than half of all counts",
            "Check for a spike-in, a leukaemic clone or a failed sample. A strong immune response can look the same.",
        )


def _find_counts_of_one(counted: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield a finding about repertoires whose counts are all 1, among those that have a column of counts."""
    ones = [profile for profile in counted if profile.largest_count == 1]
    if ones:
        are_all = len(ones) == len(counted)
        yield _make_finding(
            ones,
            "note" if are_all else "warning",
            "counts-all-one",
            f"all counts are 1{'' if are_all else ', unlike in the others'},",
            "Check whether the export lost the counts, for example because it has one row per cell, or no duplicates.",
        )


def _find_rounded_counts(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield a finding about counts that were no whole numbers of at least 1."""
    rounded = [profile for profile in profiles if profile.report.counts_rounded]
    if rounded:
        n = sum(profile.report.counts_rounded for profile in rounded)
        rows = sum(profile.report.rows_read for profile in rounded)
        yield _make_finding(
            rounded,
            "warning" if n > _MANY * rows else "note",
            "rounded-counts",
            f"{n:,} counts are fractions or 0, and were rounded to a whole number of at least 1,",
            "Check that the column holds counts, not frequencies.",
        )


def _find_small_repertoires(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield a finding about repertoires that are much smaller than the median, on a logarithmic scale."""
    if len(profiles) < 3:
        return
    logs = np.log10([profile.kept for profile in profiles])
    median = float(np.median(logs))
    spread = _FROM_MAD * float(np.median(np.abs(logs - median)))
    limit = min(median - np.log10(_TIMES_SMALLER), median - _DEVIATIONS * spread)
    small = [profile for profile, size in zip(profiles, logs, strict=True) if size < limit]
    if small:
        sizes = [f"{cut_name(profile.repertoire_id)} ({profile.kept:,})" for profile in small]
        shown = list_few(sizes, "repertoire", "repertoires")
        yield Finding(
            "warning",
            "small-repertoire",
            f"far fewer sequences than the median of {10**median:,.0f}: {shown}",
            "Check whether the sample or its sequencing failed. If so, empty its label in the sheet.",
            list_files(small),
            _list_ids(small),
        )


def _find_odd_drop_rates(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield findings about repertoires of which an unusual share of the rows was dropped for a reason."""
    for reason in DROP_REASONS:
        read = [profile for profile in profiles if _count_candidates(profile, reason) >= _MIN_ROWS]
        if len(read) < 3:
            continue
        shares = np.array(
            [profile.report.dropped.get(reason, 0) / _count_candidates(profile, reason) for profile in read]
        )
        odd = [profile for profile, is_odd in zip(read, _find_outliers(shares), strict=True) if is_odd]
        if odd:
            share_of = {profile.repertoire_id: share for profile, share in zip(read, shares, strict=True)}
            with_shares = [
                f"{cut_name(profile.repertoire_id)} ({share_of[profile.repertoire_id]:.0%})" for profile in odd
            ]
            yield Finding(
                "warning",
                "odd-drop-rate",
                f"rows dropped as {reason!r}: {float(np.median(shares)):.0%} in the median repertoire, but a very "
                f"different share in {list_few(with_shares, 'repertoire', 'repertoires')}",
                "Check that these files are complete and were exported with the same filters as the others.",
                list_files(odd),
                _list_ids(odd),
            )


def _count_candidates(profile: RepertoireProfile, reason: str) -> int:
    """Return the number of rows that the reason could apply to: only the chain of a row is looked at in all rows."""
    return profile.report.rows_read if reason == "other_locus" else profile.report.rows_of_chain


def _find_outliers(shares: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each share of dropped rows, (n,), is far from the median: by `_DROP_DIFFERENCE` at least."""
    distance = np.abs(shares - np.median(shares))
    far: NDArray[np.bool_] = distance > max(_DROP_DIFFERENCE, _DEVIATIONS * _FROM_MAD * float(np.median(distance)))
    return far


def _find_mixed_junctions(profiles: Sequence[RepertoireProfile]) -> Iterator[Finding]:
    """Yield a finding if junctions come from different columns."""
    sources = _group_by_main_source([(profile.report.sequences_from, profile) for profile in profiles], "")
    if len(sources) > 1:
        shown = _describe_sources(sources)
        yield Finding(
            "note",
            "different-junctions",
            f"junctions are from different columns: {shown}",
            "Compare a few sequences. All must begin with the conserved C and end with F or W.",
        )
