"""Versions of installed packages."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

__all__ = ["package_version"]


@lru_cache
def package_version(package: str) -> str | None:
    """Return the installed version of a distribution; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
