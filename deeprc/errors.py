"""The exceptions that mean: what the user gave cannot be used, and: the system asks this process to end."""

from __future__ import annotations

__all__ = ["InputError", "Terminated"]


class InputError(ValueError):
    """A file, a row, a key or an option that cannot be used.

    The message is complete for a user: it names the file, the row or key, what was expected and what came.
    The command line prints it in one line and exits with 2; a program catches it as a `ValueError`.
    """


class Terminated(SystemExit):
    """Raised by the command line where the system asks the process to end, so that what was begun is cleaned up."""
