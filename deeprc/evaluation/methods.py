"""The methods that a benchmark compares: their names, their estimators, and the settings that are tried of each."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from sklearn.base import BaseEstimator

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.evaluation.search import Search, parse_search, read_number, with_setting

__all__ = ["METHODS", "Method", "choose_methods", "estimator_class", "search_presets", "split_names"]

_FOLDER = "benchmark"
_CHECKED = 100  # settings of a search space
_KEYS = {"search", "trials", "fixed", "estimator", "label"}


@dataclass(frozen=True)
class Method:
    """One row of a benchmark's table.

    Attributes
    ----------
    name, label
        In commands and files, and in tables.
    estimator
        Unfitted; its parameters are those that are not searched.
    search
        What is tried of the others.
    kind
        `control` reads no sequence; `truth` knows what was simulated.
    """

    name: str
    label: str
    estimator: BaseEstimator
    search: Search = field(default_factory=Search)
    kind: Literal["method", "control", "truth"] = "method"


@dataclass(frozen=True)
class _Known:
    label: str
    estimator: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal["method", "control", "truth"] = "method"


METHODS: Mapping[str, _Known] = {
    "deeprc": _Known("DeepRC", "deeprc.training.estimator:DeepRCClassifier"),
    "svm-minmax": _Known("SVM (MinMax)", "deeprc.baselines.svm:SVM", {"kernel": "minmax"}),
    "svm-jaccard": _Known("SVM (Jaccard)", "deeprc.baselines.svm:SVM", {"kernel": "jaccard"}),
    "knn-minmax": _Known("KNN (MinMax)", "deeprc.baselines.knn:KNN", {"kernel": "minmax"}),
    "knn-jaccard": _Known("KNN (Jaccard)", "deeprc.baselines.knn:KNN", {"kernel": "jaccard"}),
    "logistic-adam": _Known("Log. regr. (paper: Adam)", "deeprc.baselines.logistic:AdamLogisticRegression"),
    "logistic": _Known("Log. regr. (converged)", "deeprc.baselines.logistic:LogisticRegression"),
    "gapped-logistic": _Known("Log. regr. (gapped k-mers)", "deeprc.baselines.gapped:GappedKmerLogisticRegression"),
    "burden-test": _Known("Burden test", "deeprc.baselines.burden:BurdenTest"),
    "public-clones": _Known("Public clones (Emerson)", "deeprc.baselines.public_clones:PublicClones"),
    "logistic-mil-4mer": _Known("Log. MIL (4MER)", "deeprc.baselines.logistic_mil:LogisticMIL", {"abundance": "4mer"}),
    "logistic-mil-tcrb": _Known("Log. MIL (TCRβ)", "deeprc.baselines.logistic_mil:LogisticMIL", {"abundance": "tcrb"}),
    "repertoire-size": _Known("Repertoire size", "deeprc.baselines.controls:RepertoireSize", {}, "control"),
    "v-gene-usage": _Known("V gene usage", "deeprc.baselines.controls:VGeneUsage", {}, "control"),
    "known-motif-binary": _Known(
        "Known motif (binary)", "deeprc.baselines.known_motif:KnownMotif", {"overlap": "binary"}, "truth"
    ),
    "known-motif-continuous": _Known(
        "Known motif (continuous)", "deeprc.baselines.known_motif:KnownMotif", {"overlap": "continuous"}, "truth"
    ),
}
"""The methods that come with deeprc."""


def search_presets() -> list[str]:
    """Return the names of the search spaces that come with deeprc."""
    folder = files("deeprc.configs").joinpath(_FOLDER)
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


def split_names(texts: Sequence[str]) -> list[str]:
    """Return the names in texts like "deeprc, svm-minmax"."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def choose_methods(
    names: Sequence[str],
    *,
    preset: str | Path,
    dataset: RepertoireDataset,
    own: Mapping[str, BaseEstimator] | None = None,
) -> tuple[list[Method], dict[str, str]]:
    """Return the methods of these names, and why those of `all` that a cohort cannot serve are left out.

    Parameters
    ----------
    names
        Of `METHODS`, of methods that the preset's file defines, or `module:Class`; `all` is every one of the first two.
    preset
        Search spaces: a name of `search_presets`, or a YAML file.
    dataset
        The cohort, which may lack what a method needs.
    own
        Estimators of someone's own, by name.

    Raises
    ------
    InputError
        If there is no such method or preset, or a method that was named cannot be used with this cohort.
    """
    body, source = _read(preset), str(preset)
    own = own or {}
    known = [*METHODS, *(name for name, entry in body.items() if name not in METHODS and "estimator" in entry)]
    for name in body:
        if name not in (*known, *names, *own):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; a method of your own needs `estimator: module:Class`"
            raise InputError(f"{source}: no method {name!r}{hint}")
    chosen: dict[str, Method] = {}
    skipped: dict[str, str] = {}
    for name in names:
        for one in known if name == "all" else [name]:
            if one in chosen or one in own:
                continue
            method = _method(one, body, source, known)
            reason = _unfit(method, dataset)
            if reason is not None and name != "all":
                raise InputError(f"--methods {one}: {reason}")
            if reason is None:
                chosen[one] = method
            else:
                skipped[one] = reason
    chosen |= {name: _own(name, estimator, body, source) for name, estimator in own.items()}
    if not chosen:
        raise InputError("no method was given; expected --methods with some of: " + ", ".join(known))
    return _named_apart(chosen), {name: why for name, why in skipped.items() if name not in chosen}


def _named_apart(chosen: Mapping[str, Method]) -> list[Method]:
    """Return the methods; of two classes `a:Model` and `b:Model`, the second one is called so."""
    apart: dict[str, Method] = {}
    for asked, method in chosen.items():
        name = asked if method.name in apart else method.name
        apart[name] = method if name == method.name else replace(method, name=name, label=name)
    return list(apart.values())


def _method(name: str, body: Mapping[str, Any], source: str, known: Sequence[str]) -> Method:
    entry = body.get(name, {})
    if name in METHODS:
        form = METHODS[name]
        estimator = with_setting(estimator_class(form.estimator)(), dict(form.fixed))
        return _with_entry(Method(name, form.label, estimator, kind=form.kind), entry, source)
    if name not in body and ":" not in name:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise InputError(f"no method {name!r}{hint} Methods: all, {', '.join(known)}, or module:Class")
    where = entry.get("estimator", name)
    if not isinstance(where, str) or ":" not in where:
        raise InputError(f"{source}: {name}.estimator: expected module:Class, found {where!r}")
    estimator = _made(estimator_class(where), where)
    return _own(where.rpartition(":")[2] if ":" in name else name, estimator, body, source, key=name)


def _made(kind: type[BaseEstimator], where: str) -> BaseEstimator:
    try:
        return kind()
    except TypeError as error:
        raise InputError(f"{where}: cannot be made without arguments: {error}") from error


def _own(
    name: str, estimator: BaseEstimator, body: Mapping[str, Any], source: str, *, key: str | None = None
) -> Method:
    needed = ("fit", "get_params", "set_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, each) for each in needed):
        found = f"the class {estimator.__name__}" if isinstance(estimator, type) else type(estimator).__name__
        raise InputError(f"method {name!r}: expected an object with {', '.join(needed)}, found {found}")
    return _with_entry(Method(name, name, estimator), body.get(key or name, {}), source)


def _with_entry(method: Method, entry: Mapping[str, Any], source: str) -> Method:
    """Return a method with what a preset says of it."""
    if not entry:
        return method
    where = f"{source}: {method.name}"
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; expected some of {', '.join(sorted(_KEYS))}")
    fixed = entry.get("fixed", {})
    if not isinstance(fixed, Mapping):
        raise InputError(f"{where}.fixed: expected names and values of parameters, found {fixed!r}")
    search = parse_search(entry.get("search", {}), trials=entry.get("trials", 1), source=f"{where}.search")
    estimator = with_setting(method.estimator, {str(name): read_number(value) for name, value in fixed.items()})
    for setting in search.settings([0])[:_CHECKED] or [{}]:
        one = with_setting(estimator, setting)  # fails here where a parameter does not exist
        try:
            getattr(one, "check_parameters", lambda: None)()
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error
    return replace(method, estimator=estimator, search=search, label=str(entry.get("label", method.label)))


def _unfit(method: Method, dataset: RepertoireDataset) -> str | None:
    """Return why a method cannot be used with a cohort."""
    check = getattr(method.estimator, "check_cohort", None)
    try:
        if check is not None:
            check(dataset)
    except InputError as error:
        return str(error)
    return None


def estimator_class(where: str) -> type[BaseEstimator]:
    """Return the class that `module:Class` names; modules are looked for in the working directory, too.

    Raises
    ------
    InputError
        If there is none, or it is no scikit-learn estimator.
    """
    module, _, name = where.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as Python does for scripts; worker processes look there, too
    try:
        found = importlib.import_module(module)
    except Exception as error:  # a user's module may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{where}: cannot be imported: {reason}") from error
    kind = getattr(found, name, None)
    if kind is None:
        raise InputError(f"{where}: the module {module} has no {name!r}")
    if not (isinstance(kind, type) and hasattr(kind, "fit") and hasattr(kind, "get_params")):
        raise InputError(f"{where}: expected a class with scikit-learn's fit and get_params")
    return kind


def _read(preset: str | Path) -> dict[str, dict[str, Any]]:
    """Read a preset's YAML: one section per method."""
    if str(preset) in search_presets():
        text = files("deeprc.configs").joinpath(_FOLDER, f"{preset}.yaml").read_text(encoding="utf-8")
    elif Path(preset).is_file():
        text = Path(preset).read_text(encoding="utf-8")
    else:
        raise InputError(f"--preset {preset}: neither a file nor one of {', '.join(search_presets())}")
    try:
        body = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{preset}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(body, dict) or not all(isinstance(entry, dict) for entry in body.values()):
        raise InputError(f"{preset}: expected a section for each method, with {', '.join(sorted(_KEYS))}")
    return {str(name): entry for name, entry in body.items()}
