"""What the library says of a parameter, the command line says of its option."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import deeprc
from deeprc.cli.flags import MessageFormatter, name_flags


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("choose one with `locus`", "choose one with --locus"),
        ("such as `locus=TRB`", "such as --locus TRB"),
        ("Use `group_by='patient id'`.", "Use --group-by 'patient id'."),
        ("is `reader_format` right?", "is --format right?"),  # the parameter has another name than the option
        ("name it with `targets`", "name it with --target"),
        ("`methods=a=module:A`", "--methods a=module:A"),  # the longest of several names, with all of its value
        ("continue with `resume`, `allow_missing=True`", "continue with --resume, --allow-missing"),  # a flag: no value
        ("`n_jobs=0`: expected", "--n_jobs 0: expected"),
        ("`fit` first; `key: value`; `x.y`", "`fit` first; `key: value`; `x.y`"),  # no parameters
        ("a ` alone", "a ` alone"),
    ],
)
def test_a_parameter_in_a_message_becomes_its_option(message, shown):
    assert name_flags(message) == shown


def test_log_lines_name_options():
    record = logging.LogRecord("deeprc", logging.WARNING, "f.py", 1, "try another %s", ("`seed`",), None)
    assert MessageFormatter("%(levelname)s: %(message)s").format(record) == "WARNING: try another --seed"


def test_no_message_of_the_library_names_an_option():
    root = Path(deeprc.__file__).parent
    files = [*root.rglob("*.py"), *(root.parent / "datasets").rglob("*.py"), *(root.parent / "baselines").rglob("*.py")]
    writes_commands = {"quickstart.py", "origin.py", "run_report.py", "benchmark_report.py"}
    found = [
        f"{file.name}: {line.strip()}"
        for file in files
        if "cli" not in file.parts and file.name not in writes_commands
        for line in file.read_text().splitlines()
        if re.search(r"(?<![-\w(])--[a-z]", re.sub(r"`deeprc [^`]*`", "", line)) and "var(--" not in line
    ]
    allowed = ["network.py:", "page.py:", "inline.py:"]  # an arrow and the variables of a style sheet
    assert [line for line in found if not line.startswith(tuple(allowed))] == []
