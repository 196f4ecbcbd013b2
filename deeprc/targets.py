"""Parser of targets: texts that say what to predict. The metadata decide how a text is understood.

    COLUMN                              a column with two classes; with a kind also numbers or several classes
    COLUMN=CLASS[,CLASS...]             these classes together against all others
    COLUMN=CLASS,... vs CLASS,...       the first classes against the second; other values are missing labels
    COLUMN>NUMBER   (>=, <, <=)         numbers on one side of a threshold against those on the other side

`:binary`, `:multiclass` or `:regression` may follow, and then `@WEIGHT`. If a text can be understood in several ways,
the columns and classes in it must exist in the metadata; if this still leaves several ways, the one with the longest
names is taken. A name in double quotes is never divided; a double quote in it is doubled.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import pandas as pd

from deeprc.errors import InputError, quote, suggest_nearest

__all__ = [
    "Comparison",
    "ParsedTarget",
    "TaskKind",
    "UnknownColumnError",
    "format_class_counts",
    "format_labels",
    "format_threshold",
    "name_classes",
    "name_target",
    "parse_target",
]

TaskKind = Literal["binary", "multiclass", "regression"]
Comparison = Literal[">", ">=", "<", "<="]

_KINDS: tuple[str, ...] = get_args(TaskKind)
_MARK = "\ue000"  # a private-use character, before and after the index of a quoted name
_QUOTED = re.compile(r'(?:(?<=[=,<>\s])|^)"((?:[^"]|"")*)"(?=$|[=,<>:@\s])')
_MASKED = re.compile(f"{_MARK}([0-9]+){_MARK}")
_WEIGHT = re.compile(r"(?P<body>.*)@(?P<weight>[0-9.eE+-]+)", re.DOTALL)
_KIND = re.compile(rf"(?P<body>.*):(?P<kind>{'|'.join(_KINDS)})", re.DOTALL)
_VERSUS = re.compile(r"\s+vs\.?\s+", re.IGNORECASE)
_ASSIGNMENT = re.compile("=")
_COMPARISON = re.compile("[<>]=?")
_SHOWN = 20
_MAX_SHOWN_LETTERS = 60


class UnknownColumnError(InputError):
    """A target names no column of the metadata."""


@dataclass(frozen=True)
class ParsedTarget:
    """What the text of a target says, in columns and classes of the metadata; `deeprc.tasks.Task` is made from it.

    Attributes
    ----------
    column
        Metadata column.
    kind
        Kind of the task; None if the text does not say it.
    weight
        Weight of the target's loss.
    positive
        Positive classes; empty if the text names none.
    negative
        Negative classes; empty if all other classes are negative.
    comparison, threshold
        A number is positive if this comparison with the threshold is true. `comparison` is None if the target has no
        threshold.
    """

    column: str
    kind: TaskKind | None = None
    weight: float = 1.0
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    comparison: Comparison | None = None
    threshold: float = 0.0


def parse_target(text: str, metadata: pd.DataFrame, *, source: str) -> ParsedTarget:
    """Return the target that a text names in a cohort's metadata.

    Raises
    ------
    UnknownColumnError
        If the text names no column of the metadata; the message begins with `source` and suggests the nearest name.
    InputError
        If the text does not fit its column; the message is of the same form.
    """
    parser = _TargetParser(text, metadata)
    for body, kind, weight in parser.iterate_endings():
        target = parser.parse_body(body)
        if target is not None:
            return replace(target, kind=kind, weight=_parse_weight(weight, text))
    raise _ProblemFinder(parser).make_error(source)


def format_labels(values: pd.Series[Any]) -> list[str | None]:
    """Return labels as text, or None if a label is missing; whole numbers lose the '.0' that missing labels cause."""
    are_integers = pd.api.types.is_float_dtype(values) and bool((values.dropna() % 1 == 0).all())
    return [None if pd.isna(value) else str(int(value) if are_integers else value) for value in values]


def format_class_counts(values: pd.Series[Any]) -> str:
    """Return the classes of a column with their numbers of repertoires as text, such as `mild (3), severe (2)`."""
    counts = Counter(text for text in format_labels(values) if text is not None)
    shown = [f"{_shorten_name(name)} ({n})" for name, n in sorted(counts.items())]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")


def _shorten_name(name: str) -> str:
    return name if len(name) <= _MAX_SHOWN_LETTERS else quote(name)


def _parse_weight(text: str | None, target: str) -> float:
    try:
        weight = 1.0 if text is None else float(text)
    except ValueError:
        weight = math.nan
    if not (0 <= weight < math.inf):
        raise InputError(f"`target={target!r}`: expected a weight of at least 0 after '@', found {text!r}")
    return weight


class _TargetParser:
    """Parser of one target's text. Quoted names are masked, so that no character in them divides the text."""

    def __init__(self, text: str, metadata: pd.DataFrame) -> None:
        self.text, self.metadata = text, metadata
        self.columns = {str(name) for name in metadata.columns}
        self._quoted: list[str] = []
        self.masked = text if text in self.columns else _QUOTED.sub(self._mask, text)

    def _mask(self, match: re.Match[str]) -> str:
        self._quoted.append(match[1])
        return f"{_MARK}{len(self._quoted) - 1}{_MARK}"

    def unmask(self, masked: str) -> str:
        """Return a masked part of the text as the user wrote it."""
        return _MASKED.sub(lambda match: f'"{self._quoted[int(match[1])]}"', masked)

    def find_known(self, masked: str, known: Iterable[str]) -> str | None:
        """Return the known name that equals a part of the text, also without blanks or quotes around it; else None."""
        bare = masked.strip()
        quoted = _MASKED.fullmatch(bare)
        plain = self.unmask(masked)
        spellings = [plain, plain.strip(), *([self._quoted[int(quoted[1])].replace('""', '"')] if quoted else [])]
        return next((spelling for spelling in spellings if spelling in known), None)

    def iterate_endings(self) -> Iterator[tuple[str, TaskKind | None, str | None]]:
        """Yield the ways to divide the text into a body, a kind and a weight, the longest body first."""
        yield self.masked, None, None
        weighted = _WEIGHT.fullmatch(self.masked)
        bodies = [(self.masked, None)] + ([(weighted["body"], weighted["weight"])] if weighted else [])
        for body, weight in bodies:
            if weight is not None:
                yield body, None, weight
            match = _KIND.fullmatch(body)
            if match is not None:
                yield match["body"], match["kind"], weight  # type: ignore[misc]  # one of _KINDS

    def parse_body(self, masked: str) -> ParsedTarget | None:
        """Return the target that a text without kind and weight describes; None if it does not fit the metadata."""
        column = self.find_known(masked, self.columns)
        if column is not None:
            return ParsedTarget(column)
        for column, _, right in self.split_at(_ASSIGNMENT, masked):
            groups = self._parse_groups(right, self.list_classes(column))
            if groups is not None:
                return ParsedTarget(column, positive=groups[0], negative=groups[1])
        for column, comparison, right in self.split_at(_COMPARISON, masked):
            number = _parse_number(right)
            if number is not None:
                return ParsedTarget(column, comparison=cast("Comparison", comparison), threshold=number)
        return None

    def split_at(self, operator: re.Pattern[str], masked: str) -> Iterator[tuple[str, str, str]]:
        """Yield each column before an operator with the operator and the text after it, the longest column first."""
        for match in reversed(list(operator.finditer(masked))):
            column = self.find_known(masked[: match.start()], self.columns)
            if column is not None:
                yield column, match[0], masked[match.end() :]

    def list_classes(self, column: str) -> set[str]:
        """Return the classes of a column."""
        return {text for text in format_labels(self.metadata[column]) if text is not None}

    def _parse_groups(self, masked: str, known: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the positive and negative classes that a text lists; None if it lists anything but known classes."""
        positive = self._parse_list(masked, known)
        if positive is not None:
            return self._check_disjoint(positive, ())
        for match in _VERSUS.finditer(masked):
            positive, negative = (
                self._parse_list(part, known) for part in (masked[: match.start()], masked[match.end() :])
            )
            if positive is not None and negative is not None:
                return self._check_disjoint(positive, negative)
        return None

    def _check_disjoint(
        self, positive: tuple[str, ...], negative: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        twice = [name for name, n in Counter(positive + negative).items() if n > 1]
        if twice:
            raise InputError(f"`target={self.text!r}`: names the class {twice[0]!r} twice")
        return positive, negative

    def _parse_list(self, masked: str, known: set[str]) -> tuple[str, ...] | None:
        """Return the classes in a list with commas; if names contain commas, the longest name is taken."""
        pieces = masked.split(",")
        for n in range(len(pieces), 0, -1):
            first = self.find_known(",".join(pieces[:n]), known)
            if first is None:
                continue
            rest = () if n == len(pieces) else self._parse_list(",".join(pieces[n:]), known)
            if rest is not None:
                return (first, *rest)
        return None


class _ProblemFinder:
    """Finder of the reason why the text of a target does not fit the metadata."""

    def __init__(self, parser: _TargetParser) -> None:
        self._parser = parser
        self._stripped = list(parser.iterate_endings())[-1][0]

    def make_error(self, source: str) -> InputError:
        """Return the error that tells the most likely reason in one line."""
        problem = self._describe_ending() or self._describe_class() or self._describe_threshold()
        if problem is not None:
            return InputError(f"{source}: {problem}")
        return UnknownColumnError(f"{source}: {self._describe_column()}")

    def _describe_ending(self) -> str | None:
        """Return the message if the text after an existing target is neither a kind nor a weight."""
        text, parser = self._parser.text, self._parser
        weighted = _WEIGHT.fullmatch(parser.masked)
        for masked in (weighted["body"] if weighted else "", parser.masked):
            head, colon, kind = masked.rpartition(":")
            if colon and parser.parse_body(head) is not None:
                kinds = f"expected {', '.join(_KINDS[:-1])} or {_KINDS[-1]} after ':'"
                return f"`target={text!r}`: {kinds}, found {parser.unmask(kind)!r}{suggest_nearest(kind, _KINDS)}"
        head, at, weight = parser.masked.rpartition("@")
        with_kind = _KIND.fullmatch(head)
        if at and parser.parse_body(with_kind["body"] if with_kind else head) is not None:
            return f"`target={text!r}`: expected a weight of at least 0 after '@', found {parser.unmask(weight)!r}"
        return None

    def _describe_class(self) -> str | None:
        """Return what is wrong with the classes after a '='; None if no column stands before it."""
        parser = self._parser
        for column, _, right in parser.split_at(_ASSIGNMENT, self._stripped):
            known = parser.list_classes(column)
            unknown = next(
                (parser.unmask(name) for name in _split_classes(right) if parser.find_known(name, known) is None), None
            )
            if unknown is None:
                return f"`target={parser.text!r}`: expected CLASS,... or CLASS,... vs CLASS,... after '='"
            near = suggest_nearest(unknown.strip('" '), known)
            classes = format_class_counts(parser.metadata[column]) or "all labels are missing"
            problem = f"target {quote(column)} has no class {quote(unknown.strip())}{near}"
            return f"{problem}{'' if near else ';'} its classes: {classes}"
        return None

    def _describe_threshold(self) -> str | None:
        """Return what is wrong with the number after a comparison; None if no column stands before it."""
        for column, comparison, right in self._parser.split_at(_COMPARISON, self._stripped):
            found = self._parser.unmask(right)
            return f"target {quote(column)}: expected a number after '{comparison}', found {quote(found)}"
        return None

    def _describe_column(self) -> str:
        """Return that there is no such column, with the most similar one if there is any."""
        parser = self._parser
        head, _, kind = self._stripped.rpartition(":")
        near_kind = suggest_nearest(kind, _KINDS) if head else ""
        if near_kind:  # the kind is wrong, too
            self._stripped = head
        wrong = f" {parser.unmask(kind)!r} is not a kind of target{near_kind}" if near_kind else ""
        known = f"{wrong} Columns: {', '.join(map(str, parser.metadata.columns))}"
        whole = parser.unmask(self._stripped.rpartition("=")[0] or self._stripped)
        guesses = [whole, *(part for part in re.split("[=<>:@]", parser.unmask(parser.masked))[:1] if part != whole)]
        for guess in guesses:
            near = suggest_nearest(guess.strip('" '), parser.columns)
            if near:
                return f"no metadata column {guess!r} for `target={parser.text!r}`{near}{known}"
        return f"no metadata column {whole!r} for `target={parser.text!r}`.{known}"


def _split_classes(masked: str) -> Sequence[str]:
    """Return the names in a list of classes, those before and after a "vs"."""
    return [name for side in _VERSUS.split(masked) for name in side.split(",")]


def _parse_number(text: str) -> float | None:
    """Return the number that a text is; None if it is none, or not finite."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def name_target(target: ParsedTarget, metadata: pd.DataFrame) -> str:
    """Return a text without needless quotes that means a target with a threshold or with named classes.

    Quotes are needed for example around a class named `a,b`, if there are also classes named `a` and `b`.
    """
    columns = (target.column, _quote_name(target.column))
    if target.comparison is not None and target.threshold is not None:
        names = [f"{column}{target.comparison}{format_threshold(target.threshold)}" for column in columns]
    else:
        sides = [side for side in (target.positive, target.negative) if side]
        plain, quoted = (" vs ".join(",".join(map(spell, side)) for side in sides) for spell in (str, _quote_name))
        names = [f"{columns[0]}={plain}", *(f"{column}={quoted}" for column in columns)]
    meant = replace(target, kind=None, weight=1.0)
    for name in names[:-1]:
        with contextlib.suppress(InputError):  # it cannot be understood
            if parse_target(name, metadata, source="") == meant:
                return name
    return names[-1]


def _quote_name(name: str) -> str:
    """Return the name of a column or a class in quotes, as a target may have it."""
    return '"' + name.replace('"', '""') + '"'


def format_threshold(threshold: float) -> str:
    """Return the shortest text that means a threshold, without `.0`."""
    text = f"{threshold:.15g}"
    return text if float(text) == threshold else repr(threshold)


def name_classes(values: pd.Series[Any], classes: Sequence[str]) -> list[str | None]:
    """Return the class of each repertoire as text; numbers that equal one of these classes are written as it is.

    The text of a number depends on the others of its column: beside 0.5, the number 1 is "1.0". Some repertoires of a
    cohort, or another cohort, may lack these others.
    """
    text = format_labels(values)
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return text
    class_of = {number: name for name in classes if (number := _parse_number(name)) is not None}
    return [
        name if name is None or name in classes else class_of.get(float(value), name)
        for name, value in zip(text, values, strict=True)
    ]
