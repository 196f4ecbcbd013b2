"""Classes of estimators by their import paths, `module:Class`: those of deeprc, and those that a user names."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from sklearn.base import BaseEstimator

from deeprc.benchmarking.registry import METHODS
from deeprc.errors import InputError

__all__ = [
    "import_estimator_class",
    "is_import_path",
    "list_method_classes",
    "make_estimator",
    "split_section_and_path",
]


def is_import_path(name: str) -> bool:
    """Return whether the name of a method names a class to import: `module:Class` or `NAME=module:Class`."""
    return ":" in name


def split_section_and_path(name: str) -> tuple[str, str]:
    """Return the name of the preset's section, and the `module:Class`, from the name of a user's method."""
    section, equals, path = name.partition("=")
    return (section, path) if equals else (name, name)


def make_estimator(path: str) -> BaseEstimator:
    """Return an unfitted estimator of the class `module:Class`."""
    estimator_class = import_estimator_class(path)
    try:
        return estimator_class()
    except TypeError as error:
        raise InputError(f"{path}: cannot be made without arguments: {error}") from error


def import_estimator_class(path: str) -> type[BaseEstimator]:
    """Import and return the class that `module:Class` names; the working directory is searched, too.

    Raises
    ------
    InputError
        If there is no such class, or it is no scikit-learn estimator.
    """
    module, _, name = path.partition(":")
    if path not in list_method_classes() and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as Python does for scripts; worker processes do the same
    try:
        imported = importlib.import_module(module)
    except Exception as error:  # a user's module may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path}: cannot be imported: {reason}") from error
    estimator_class: Any = getattr(imported, name, None)
    if estimator_class is None:
        raise InputError(f"{path}: the module {module} has no {name!r}")
    is_class = isinstance(estimator_class, type)
    if not (is_class and hasattr(estimator_class, "fit") and hasattr(estimator_class, "get_params")):
        raise InputError(f"{path}: expected a class with scikit-learn's fit and get_params")
    checked: type[BaseEstimator] = estimator_class
    return checked


def list_method_classes() -> list[str]:
    """Return the `module:Class` of each method that comes with deeprc; files may name only these."""
    return [registered.estimator for registered in METHODS.values()]
