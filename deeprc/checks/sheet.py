"""Recognise the columns of the sheet that hold labels and donors, and check them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.checks.findings import Finding, list_few, name_few
from deeprc.datasets.metadata import Metadata
from deeprc.errors import InputError, describe_missing_column, quote
from deeprc.evaluation.significance import FEW_IN_CLASS
from deeprc.evaluation.splits import N_FOLDS
from deeprc.groups import choose_donor_column, find_donor_columns
from deeprc.targets import UnknownColumnError
from deeprc.task_labels import encode_labels
from deeprc.tasks import Task, parse_tasks

__all__ = ["SheetDonors", "find_donor_problems", "find_label_problems", "find_targets", "is_technical"]

_LABEL_WORDS = frozenset(
    {
        "label",
        "status",
        "class",
        "condition",
        "disease",
        "diagnosis",
        "group",
        "phenotype",
        "outcome",
        "response",
        "responder",
        "case",
        "cmv",
        "infected",
        "infection",
        "positive",
        "target",
        "state",
        "severity",
    }
)
_TECHNICAL_WORDS = frozenset(
    {
        "batch",
        "plate",
        "run",
        "lane",
        "well",
        "center",
        "centre",
        "site",
        "lab",
        "laboratory",
        "hospital",
        "institute",
        "cohort",
        "study",
        "dataset",
        "project",
        "platform",
        "instrument",
        "sequencer",
        "machine",
        "kit",
        "protocol",
        "primer",
        "library",
        "operator",
        "date",
        "year",
        "replicate",
        "repeat",
        "index",
        "barcode",
        "file",
        "path",
        "format",
        "locus",
        "gene",
        "chain",
        "source",
        "upload",
        "release",
    }
)
_OTHER_WORDS = frozenset({"sex", "gender", "age", "race", "ethnicity", "ethnic", "hla"})
_CLASSES = range(2, 7)  # numbers of different values in a column that looks like a label
_MAX_TARGETS = 4
_MANY_MISSING = 0.5  # share of repertoires
_RARE = 2  # a label with at most so many repertoires may be a typo
_MIN_TYPO_LENGTH = 5  # letters of a label that may be a typo
_SYNONYMS = {"pos": "positive", "neg": "negative", "y": "yes", "n": "no", "f": "female", "m": "male", "ctrl": "control"}


class SheetDonors:
    """The donors of the repertoires, by every column that names donors.

    Attributes
    ----------
    columns
        The column that the user named, then those whose names say that they hold donors.
    column
        The column that the user named, else the one with the fewest donors; None without any.
    given
        Whether the user named a column.
    """

    def __init__(self, sheet: Metadata, group_by: str | None) -> None:
        if group_by is not None and group_by not in sheet.table:
            raise InputError(f"{sheet.path}: {describe_missing_column(group_by, sheet.table, 'for `group_by`')}")
        self.given = group_by is not None
        donor_columns = [name for name in find_donor_columns(sheet.table) if sheet.table[name].notna().any()]
        self.columns = [
            *([group_by] if group_by is not None else []),
            *(name for name in donor_columns if name != group_by),
        ]
        self._table = sheet.table[self.columns].set_axis(list(sheet.repertoire_ids))
        self.column = group_by or choose_donor_column(sheet.table)

    def list_donors(self) -> pd.Series:
        """Return the donor of each repertoire as text, indexed by repertoire; None where it is not known."""
        values = [None] * len(self._table) if self.column is None else self._table[self.column].tolist()
        # `pd.Series(None)` and columns of numbers hold NaN instead of None: all repertoires would have the donor NaN.
        texts = [None if pd.isna(value) else _format_donor_name(value) for value in values]
        return pd.Series(texts, index=self._table.index, dtype=object)

    def are_same(self, first: str, second: str) -> bool:
        """Return whether any column says that two repertoires are from one donor."""
        known = (self._table[name] for name in self.columns)  # missing values are None or NaN
        return any(values[first] is not None and bool(values[first] == values[second]) for values in known)


def _format_donor_name(value: object) -> str:
    """Return the name of a donor; a column of numbers with missing ones holds 7.0 if the sheet says 7."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def is_technical(column: str) -> bool:
    """Return whether the name of a column says how, when or where a sample was processed."""
    return not set(_split_words(column)).isdisjoint(_TECHNICAL_WORDS)


def find_targets(sheet: Metadata, targets: Sequence[str], donors: SheetDonors) -> tuple[list[Task], list[Finding]]:
    """Return the targets that can be checked: those that were asked for, else the columns that look like labels.

    Raises
    ------
    InputError
        If the column of a target does not exist.
    """
    tasks: list[Task] = []
    findings: list[Finding] = []
    if not targets:
        columns = _find_label_columns(sheet, donors)
        targets = [name if sheet.table[name].nunique() == 2 else f"{name}:multiclass" for name in columns]
        taken = ", ".join(columns)  # at most four
        message = f"columns used as labels: {taken}" if columns else "no column looks like a label"
        findings.append(Finding("note", "checked-targets", message, "Name what you want to predict with `targets`."))
    for target in targets:
        parsed = _parse_target(target, sheet)
        if isinstance(parsed, Finding):
            findings.append(parsed)
        else:
            tasks.append(parsed)
    return tasks, findings


def find_label_problems(sheet: Metadata, tasks: Sequence[Task]) -> list[Finding]:
    """Return findings about the labels themselves."""
    return [
        finding
        for task in tasks
        for finding in (
            *_find_missing_labels(sheet, task),
            *_find_small_classes(sheet, task),
            *_find_similar_labels(sheet, task),
        )
    ]


def find_donor_problems(sheet: Metadata, tasks: Sequence[Task], donors: SheetDonors) -> list[Finding]:
    """Return findings about donors that have several repertoires, and about donors with different labels."""
    names = donors.list_donors()
    repeated = [str(name) for name, n in names.value_counts(sort=False).items() if n > 1]
    if not repeated:
        return []
    findings = [
        Finding(
            "note" if donors.given else "warning",
            "repeated-subject",
            f"several repertoires come from the same donor (column {donors.column!r}), for "
            f"{name_few(repeated, 'donor', 'donors')}",
            f"Train with `group_by={shlex.quote(str(donors.column))}`, so that no donor is in two parts of a split.",
            column=donors.column,
            repertoires=tuple(names.index[names.isin(repeated)]),
            numbers={"subjects": len(repeated)},
        )
    ]
    for task in tasks:
        if task.kind != "regression":
            findings += _find_donors_with_different_labels(sheet, task, donors, names)
    return findings


def _find_donors_with_different_labels(
    sheet: Metadata, task: Task, donors: SheetDonors, names: pd.Series
) -> Iterator[Finding]:
    """Yield a finding about donors whose repertoires have different labels; `names` has the donor of each."""
    known = pd.DataFrame({"donor": names.to_numpy(), "label": encode_labels([task], sheet.table)[:, 0]}).dropna()
    groups = known.groupby("donor")["label"]
    several = groups.size() > 1
    donors_of_both = sorted(str(name) for name in several.index[several & (groups.max() > groups.min())])
    if not donors_of_both:
        return
    paired = len(donors_of_both) > 0.5 * int(several.sum())
    advice = f"Train with `group_by={shlex.quote(str(donors.column))}`." if paired else ""
    yield Finding(
        "note" if paired else "warning",
        "subject-in-both-classes",
        f"target {task.name!r}: repertoires of the same donor have different labels"
        f"{', as in a paired design' if paired else ''}, for {name_few(donors_of_both, 'donor', 'donors')}",
        advice or "Check the labels and donor names.",
        column=task.column,
        repertoires=tuple(names.index[names.isin(donors_of_both)]),
        target=task.name,
        numbers={"subjects": len(donors_of_both)},
    )


def _parse_target(target: str, sheet: Metadata) -> Task | Finding:
    try:
        return parse_tasks([target], sheet.table, source=str(sheet.path))[0]
    except UnknownColumnError:
        raise
    except InputError as error:
        advice = "`deeprc train` would refuse it. Correct the sheet, or choose another target (`targets`)."
        return Finding("error", "unusable-target", str(error), advice, (str(sheet.path),), column=target, target=target)


def _find_label_columns(sheet: Metadata, donors: SheetDonors) -> list[str]:
    """Return the columns that look like labels: few values, and neither ids nor technical."""
    candidates = []
    for column in map(str, sheet.table.columns):
        values = sheet.table[column]
        given = values.dropna()
        excluded = column in (sheet.id_column, *donors.columns) or is_technical(column)
        if excluded or not set(_split_words(column)).isdisjoint(_OTHER_WORDS) or given.nunique() not in _CLASSES:
            continue
        if int(given.value_counts().min()) >= 2 and len(given) >= 0.5 * len(values):
            candidates.append(column)
    label_like = [column for column in candidates if not set(_split_words(column)).isdisjoint(_LABEL_WORDS)]
    return (label_like or candidates)[:_MAX_TARGETS]


def _split_words(column: str) -> list[str]:
    return re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", column).lower())


def _find_missing_labels(sheet: Metadata, task: Task) -> Iterator[Finding]:
    """Find repertoires without a label: a note, or a warning if they are many."""
    missing = np.isnan(encode_labels([task], sheet.table)[:, 0])
    if task.drops_others:  # other classes are left out on purpose
        missing &= sheet.table[task.column].isna().to_numpy()
    if missing.any():
        ids = tuple(np.array(sheet.repertoire_ids, object)[missing].tolist())
        yield Finding(
            "warning" if missing.mean() > _MANY_MISSING else "note",
            "missing-labels",
            f"target {task.name!r}: no label for {name_few(ids, 'repertoire', 'repertoires')}",
            "Nothing, if these labels are unknown. No metric of this target uses such repertoires.",
            repertoires=ids,
            column=task.column,
            target=task.name,
            numbers={"repertoires": len(ids)},
        )


def _find_small_classes(sheet: Metadata, task: Task) -> Iterator[Finding]:
    """Find classes with few repertoires."""
    if task.kind == "regression":
        return
    small = {name: n for name, n in _count_class_sizes(sheet, task).items() if n < FEW_IN_CLASS}
    if small:
        advice = "With so few repertoires, a good model cannot be distinguished from chance. Add more if you can."
        if min(small.values()) < N_FOLDS:
            advice += f" `deeprc train` needs one per class and fold, so at least {N_FOLDS}, or fewer `folds`."
        shown = [f"{quote(name)} ({n})" for name, n in small.items()]
        message = (
            f"target {task.name!r}: fewer than {FEW_IN_CLASS} repertoires in {list_few(shown, 'class', 'classes')}"
        )
        numbers = {f"repertoires of {name}": n for name, n in small.items()}
        yield Finding("warning", "small-class", message, advice, column=task.column, target=task.name, numbers=numbers)


def _find_similar_labels(sheet: Metadata, task: Task) -> Iterator[Finding]:
    """Find labels of different classes that are probably two spellings of one."""
    if task.kind == "regression" or task.comparison is not None:
        return
    values = sheet.table[task.column].dropna()
    texts = values.map(str).tolist()
    labels = np.nan_to_num(encode_labels([task], sheet.table.loc[values.index])[:, 0], nan=-1)
    sizes, label_of = Counter(texts), dict(zip(texts, labels.tolist(), strict=True))
    similar = [
        f"{quote(first)} ({sizes[first]}) and {quote(second)} ({sizes[second]})"
        for first, second in combinations(sorted(sizes), 2)
        if label_of[first] != label_of[second] and _are_alike(first, second, min(sizes[first], sizes[second]))
    ]
    if similar:
        message = f"column {task.column!r}: labels that may mean the same, {list_few(similar, 'pair', 'pairs')}"
        advice = "If they are the same class, give them the same spelling in the sheet."
        yield Finding("warning", "similar-labels", message, advice, column=task.column, target=task.name)


def _count_class_sizes(sheet: Metadata, task: Task) -> dict[str, int]:
    """Return the number of repertoires in each class; all negative classes of a binary target are one class."""
    values: NDArray[np.float64] = encode_labels([task], sheet.table)[:, 0]
    return {name: int((values == code).sum()) for code, name in enumerate(task.class_names)}


def _are_alike(first: str, second: str, n_of_rarer: int) -> bool:
    """Return whether two labels differ only in case, separators or a known abbreviation, or by a typo in a rare one."""
    a, b = (_normalise_label(text) for text in (first, second))
    if a == b:
        return True
    may_have_typo = a.isalpha() and b.isalpha() and min(len(a), len(b)) >= _MIN_TYPO_LENGTH
    return may_have_typo and n_of_rarer <= _RARE and _is_one_typo(a, b)


def _normalise_label(text: str) -> str:
    plain = re.sub(r"(?<=\w)[\s_.-]+(?=\w)", "", text.casefold())  # but "+" and "-" at the end have a meaning
    return _SYNONYMS.get(plain, plain)


def _is_one_typo(a: str, b: str) -> bool:
    """Return whether one letter was changed, left out, doubled, or exchanged with its neighbour."""
    if len(a) == len(b):
        differing = [i for i in range(len(a)) if a[i] != b[i]]
        if len(differing) != 2:
            return len(differing) == 1
        i, j = differing
        return j == i + 1 and (a[i], a[j]) == (b[j], b[i])
    short, long = sorted((a, b), key=len)
    return len(long) == len(short) + 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
