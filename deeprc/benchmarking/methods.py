"""The methods of a benchmark: their names, their estimators, and the settings to try."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from sklearn.base import BaseEstimator, is_classifier, is_regressor

from deeprc.benchmarking.import_paths import (
    import_estimator_class,
    is_import_path,
    list_method_classes,
    make_estimator,
    split_section_and_path,
)
from deeprc.benchmarking.registry import METHODS
from deeprc.benchmarking.search import SearchSpace, apply_setting, parse_search
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import CONTROL_CHARACTERS, abbreviate, parse_yaml, read_exponent, read_yaml
from deeprc.errors import InputError, suggest_nearest
from deeprc.evaluation.sheet_control import find_categories, format_column_names, select_control_columns
from deeprc.tasks import Task

__all__ = [
    "Method",
    "choose_methods",
    "explain_unfit_target",
    "list_search_presets",
    "make_methods",
    "set_seed",
    "split_names",
]

_FOLDER = "benchmark"
_MAX_CHECKED, _MAX_COMBINED = 1000, 100  # numbers of single values and of settings checked before anything is fitted
_SECTION_KEYS = {"search", "trials", "fixed", "estimator", "label", "regression"}


@dataclass(frozen=True)
class Method:
    """A method of a benchmark: an estimator with its search space.

    Attributes
    ----------
    name, label
        Name in commands and files, and name in tables.
    estimator
        Unfitted estimator, with the values of the parameters that are not searched.
    search
        Search space of the other parameters.
    kind
        "method"; "control", which sees no amino-acid sequence; or "truth", which knows the simulated signal.
    """

    name: str
    label: str
    estimator: BaseEstimator
    search: SearchSpace = field(default_factory=SearchSpace)
    kind: Literal["method", "control", "truth"] = "method"


def list_search_presets() -> list[str]:
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
    estimators: Mapping[str, BaseEstimator] | None = None,
    task: Task | None = None,
) -> tuple[list[Method], dict[str, str]]:
    """Return the methods with these names, and the reason for each method of `all` that cannot be used.

    Parameters
    ----------
    names
        Names of `METHODS`; names of sections in the preset's file that make a method from their class; `module:Class`;
        or `NAME=module:Class` for a section NAME in the preset's file. `all` selects every method of the first two
        kinds. A class is imported only if it is named here, never because a file names it.
    preset
        Search spaces: a name of `list_search_presets`, or a YAML file.
    dataset
        The cohort, which may lack data that a method needs.
    estimators
        Estimators of the user, by name.
    task
        Task of the target; None is a target with two classes.

    Raises
    ------
    InputError
        If there is no such method or preset, or if a named method cannot be used with this cohort or target.
    """
    task = task or Task("", "", "binary")
    estimators = estimators or {}
    user_sections = [split_section_and_path(name)[0] for name in names if is_import_path(name)]
    chosen_preset = _Preset.read(preset, task)
    available = chosen_preset.list_methods(user_sections)
    chosen_preset.check_sections(available, [*names, *user_sections, *estimators])
    chosen: dict[str, Method] = {}
    skipped: dict[str, str] = {}
    wanted = [(name, given == "all") for given in names for name in (available if given == "all" else [given])]
    for name, may_be_skipped in wanted:
        if name in chosen or name in estimators:
            continue
        method = _make_method_or_reason(name, chosen_preset, available, dataset, task)
        if isinstance(method, str):
            if not may_be_skipped:
                raise InputError(f"`methods={name}`: {method}")
            skipped[name] = method
            continue
        if "=" in name and method.name in chosen:
            raise InputError(f"`methods={name}`: there is a method {method.name!r} already; choose another name")
        chosen[name] = method
    for name, estimator in estimators.items():
        chosen[name] = chosen_preset.make_method_of(estimator, name)
        reason = _explain_unfit_method(chosen[name], dataset, task)
        if reason is not None:
            raise InputError(f"method {name!r}: {reason}")
    if not chosen:
        raise InputError("no method was given; expected `methods` with some of: " + ", ".join(available))
    return _make_names_unique(chosen), {name: why for name, why in skipped.items() if name not in chosen}


def _make_method_or_reason(
    name: str, preset: _Preset, available: Sequence[str], dataset: RepertoireDataset, task: Task
) -> Method | str:
    """Return a method, or the reason why it cannot be used with a cohort and a target."""
    reason = explain_unfit_target(name, task)
    if reason is not None:
        return reason
    method = _set_sheet_columns(preset.make_method(name, available), dataset, task)
    return _explain_unfit_method(method, dataset, task) or method


def make_methods(names: Sequence[str], *, preset: str | Path) -> list[Method]:
    """Return unfitted methods of `METHODS` for a target with two classes, without a check of a cohort.

    Raises
    ------
    InputError
        If there is no such method or preset, or the preset is wrong.
    """
    chosen_preset = _Preset.read(preset, Task("", "", "binary"))
    return [chosen_preset.make_method(name, list(METHODS)) for name in names]


def _make_names_unique(chosen: Mapping[str, Method]) -> list[Method]:
    """Return the methods with unique names: of two classes `a:Model` and `b:Model`, the second has its full name."""
    unique: dict[str, Method] = {}
    for full_name, method in chosen.items():
        name = full_name if method.name in unique else method.name
        unique[name] = method if name == method.name else replace(method, name=name, label=name)
    return list(unique.values())


def explain_unfit_target(name: str, task: Task) -> str | None:
    """Return why a method of `METHODS` cannot predict a target; None if it can, and for other methods."""
    registered = METHODS.get(name)
    if registered is None:
        return None
    if task.kind == "regression" and not registered.regressor:
        return f"it separates classes; {task.name!r} is a number"
    if task.kind == "multiclass" and registered.kind == "truth":
        return f"it knows one signal, which separates two classes; {task.name!r} has {len(task.classes)}"
    return None


@dataclass(frozen=True)
class _Preset:
    """The sections of a preset about methods, for a kind of target.

    Attributes
    ----------
    source
        Name or file of the preset, for messages.
    task
        Task of the target.
    sections
        Section of each method; for regression, keys under `regression` have replaced others.
    """

    source: str
    task: Task
    sections: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, preset: str | Path, task: Task) -> _Preset:
        """Read a preset, by its name or from a YAML file."""
        if str(preset) in list_search_presets():
            text = files("deeprc.configs").joinpath(_FOLDER, f"{preset}.yaml").read_text(encoding="utf-8")
            body = parse_yaml(text, source=str(preset))
        elif Path(preset).is_file():
            body = read_yaml(Path(preset))
        else:
            raise InputError(f"`preset={preset}`: neither a file nor one of {', '.join(list_search_presets())}")
        if not isinstance(body, dict) or not all(isinstance(entry, dict) for entry in body.values()):
            raise InputError(f"{preset}: expected a section for each method, with {', '.join(sorted(_SECTION_KEYS))}")
        sections = {
            str(name): _select_section_for_kind(entry, f"{preset}: {name}", task) for name, entry in body.items()
        }
        return cls(str(preset), task, sections)

    def list_methods(self, user_names: Container[str]) -> list[str]:
        """Return the names of methods without code of the user: those of `METHODS` and those of sections."""
        with_class = [name for name, entry in self.sections.items() if "estimator" in entry]
        return [*METHODS, *(name for name in with_class if name not in METHODS and name not in user_names)]

    def check_sections(self, available: Sequence[str], others: Sequence[str]) -> None:
        """Raise InputError if a section belongs to none of the available and other methods."""
        for name in self.sections:
            if name not in (*available, *others):
                advice = f"; a method of your own needs `methods={name}=module:Class`"
                raise InputError(f"{self.source}: no method {name!r}{suggest_nearest(name, available) or advice}")

    def make_method(self, name: str, available: Sequence[str]) -> Method:
        """Return an unfitted method, without a check of a cohort; the available names are for messages."""
        if name in METHODS:
            return self._make_registered_method(name)
        if is_import_path(name):
            key, path = split_section_and_path(name)
            if self.sections.get(key, {}).get("estimator", path) != path:
                raise InputError(f"{self.source}: {key}.estimator: expected {path}, as `methods` says, or nothing")
            class_name = path.rpartition(":")[2]
            return self.make_method_of(make_estimator(path), class_name if key == path else key, section=key)
        if name not in self.sections:
            hint = suggest_nearest(name, available) or "."
            raise InputError(f"no method {name!r}{hint} Methods: all, {', '.join(available)}, or module:Class")
        listed = self.sections[name].get("estimator")
        if listed not in list_method_classes():
            if isinstance(listed, str) and is_import_path(listed):
                reason = f"code is run only where the call names it: `methods={name}={listed}`"
                raise InputError(f"{self.source}: {name}.estimator: {reason}")
            raise InputError(f"{self.source}: {name}.estimator: expected module:Class, found {abbreviate(listed)}")
        return self.make_method_of(make_estimator(listed), name)

    def _make_registered_method(self, name: str) -> Method:
        registered = METHODS[name]
        label, path = registered.label, registered.estimator
        if self.task.kind == "regression":
            label, path = registered.regressor_label or label, registered.regressor
        estimator = apply_setting(import_estimator_class(path)(), dict(registered.fixed))
        method = Method(name, label, estimator, kind=registered.kind)
        return _apply_section(method, self.sections.get(name, {}), self.source)

    def make_method_of(self, estimator: BaseEstimator, name: str, *, section: str | None = None) -> Method:
        """Return the method of an estimator that is not in `METHODS`; its section is called like it if not given."""
        needed = ("fit", "get_params", "set_params")
        if isinstance(estimator, type) or not all(hasattr(estimator, attribute) for attribute in needed):
            found = f"the class {estimator.__name__}" if isinstance(estimator, type) else type(estimator).__name__
            raise InputError(f"method {name!r}: expected an object with {', '.join(needed)}, found {found}")
        return _apply_section(Method(name, name, estimator), self.sections.get(section or name, {}), self.source)


def _select_section_for_kind(section: Mapping[str, Any], where: str, task: Task) -> dict[str, Any]:
    """Return a section for the kind of a target; for regression, keys under `regression` replace others."""
    for_regression = section.get("regression", {})
    if not isinstance(for_regression, Mapping):
        raise InputError(
            f"{where}.regression: expected search, trials, fixed or label, found {abbreviate(for_regression)}"
        )
    rest = {key: value for key, value in section.items() if key != "regression"}
    return {**rest, **for_regression} if task.kind == "regression" else rest


def _set_sheet_columns(method: Method, dataset: RepertoireDataset, task: Task) -> Method:
    """Return the method; the control method `sheet-columns` gets the columns that it may read."""
    if method.name != "sheet-columns" or method.estimator.get_params()["columns"]:
        return method
    table = dataset.metadata
    columns = select_control_columns(table, [task]).read
    read = {"columns": columns, "categories": find_categories(table, columns)}
    label = f"{method.label} ({format_column_names(columns)})" if columns else method.label
    return replace(method, estimator=apply_setting(method.estimator, read), label=label)


def _apply_section(method: Method, section: Mapping[str, Any], source: str) -> Method:
    """Return a method with the fixed parameters, search space and label of its section in a preset."""
    if not section:
        return method
    where = f"{source}: {method.name}"
    unknown = [key for key in section if key not in _SECTION_KEYS]
    if unknown:
        known = ", ".join(sorted(_SECTION_KEYS))
        raise InputError(f"{where}: unknown key {abbreviate(unknown[0])}; expected some of {known}")
    fixed = section.get("fixed", {})
    if not isinstance(fixed, Mapping):
        raise InputError(f"{where}.fixed: expected names and values of parameters, found {abbreviate(fixed)}")
    search = parse_search(section.get("search", {}), trials=section.get("trials", 1), source=f"{where}.search")
    try:
        estimator = apply_setting(method.estimator, {str(name): read_exponent(value) for name, value in fixed.items()})
        for setting in [*search.list_extremes(_MAX_CHECKED), *search.list_settings([0])[:_MAX_COMBINED]]:
            candidate = apply_setting(estimator, setting)  # raises an error if a parameter does not exist
            getattr(candidate, "check_parameters", lambda: None)()
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
    label = str(section.get("label", method.label))
    if CONTROL_CHARACTERS.search(label):
        raise InputError(f"{where}.label: expected no control characters, found {abbreviate(label)}")
    return replace(method, estimator=estimator, search=search, label=label)


def _explain_unfit_method(method: Method, dataset: RepertoireDataset, task: Task) -> str | None:
    """Return why a method cannot be used with a cohort or a target; None if it can."""
    if task.kind == "regression" and (is_classifier(method.estimator) or not hasattr(method.estimator, "predict")):
        return f"it is not a regressor; {task.name!r} is a number"
    if task.kind != "regression" and is_regressor(method.estimator):
        return f"it predicts numbers; {task.name!r} has classes"
    if method.name == "sheet-columns" and not method.estimator.get_params()["columns"]:
        return "the sheet has no other column that a control can read"
    check = getattr(method.estimator, "check_cohort", None)
    try:
        if check is not None:
            check(dataset)
    except InputError as error:
        return str(error)
    return None


def set_seed(method: Method, seed: int) -> Method:
    """Return the method with this seed; unchanged if its estimator has no seed."""
    if "seed" not in method.estimator.get_params():
        return method
    return replace(method, estimator=apply_setting(method.estimator, {"seed": seed}))
