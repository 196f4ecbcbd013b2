"""The repository's folder, and no package: the package is the folder `deeprc` inside it.

Where the repository's folder is itself called deeprc and its parent folder is on Python's path, as it is for
`python -c` and `python -m` there, Python takes it for a package without code and stops looking before it asks for an
editable install. Because of this file it comes here instead, and is given the installed package.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any


def __getattr__(name: str) -> Any:  # tells type checkers that what they find here has attributes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _find_installed() -> ModuleSpec:
    """Return where deeprc is installed, as Python would find it if this folder had another name."""
    parent = Path(__file__).parent.parent.resolve()
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != parent]
    for finder in sys.meta_path:
        spec = finder.find_spec("deeprc", elsewhere if finder is PathFinder else None)
        if spec is not None and spec.loader is not None and spec.origin not in (None, __file__):
            return spec
    raise ImportError(f"deeprc is not installed; install it with: pip install -e {Path(__file__).parent}")


if __name__ == "deeprc":
    _spec = _find_installed()
    sys.modules[__name__] = _module = importlib.util.module_from_spec(_spec)
    assert _spec.loader is not None
    _spec.loader.exec_module(_module)
