"""What the library says of a parameter, the command line says of its option."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import deeprc
from deeprc.checks.findings import Finding
from deeprc.cli.flags import MessageFormatter, name_flags
from deeprc.errors import show_parameters, use_parameter_renderer


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
        ("`scheduler=`: cannot be reached", "--scheduler '': cannot be reached"),
        ("`n_jobs=0`: expected", "--n_jobs 0: expected"),
        ("`fit` first; `key: value`; `x.y`", "`fit` first; `key: value`; `x.y`"),  # no parameters
        ("`n_folds=2`: expected", "--folds 2: expected"),
        ("a ` alone", "a ` alone"),
        ("`list`, `debug`", "`list`, `debug`"),  # options that are no parameters of a function
        ("continue it with `resume_run`", "continue it with deeprc train --resume RUN"),  # a function
    ],
)
def test_a_parameter_in_a_message_becomes_its_option(message, shown):
    assert name_flags(message) == shown


def test_the_running_command_says_how_its_option_is_called():
    command = click.Command("mine", params=[click.Option(["--n_jobs", "jobs"]), click.Option(["--only", "locus"])])
    with click.Context(command):
        assert name_flags("`jobs=0`, `locus`, `group_by`") == "--n_jobs 0, --only, --group-by"
    assert name_flags("`jobs=0`, `locus`") == "--jobs 0, --locus"


def test_a_message_imports_no_other_command(tmp_path):
    program = (
        "import sys\nfrom deeprc.cli import main\n"
        "try: main(['preprocess', 'x', '--metadata', 'y', '-o', 'z.h5', '--min-length', '9', '--max-length', '8'])\n"
        "except SystemExit: print([name for name in ('deeprc.cli.plot', 'scipy.stats') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    expected = "Error: expected 1 <= --min-length <= --max-length <= 255, found 9 and 8\n"
    assert (done.stdout, done.stderr) == ("[]\n", expected)


def test_findings_show_options_in_text_and_parameters_in_data():
    finding = Finding("note", "mixed-chains", "several", "use `locus=TRB`")
    assert finding.to_text() == "note: mixed-chains: several\n    -> use `locus=TRB`"
    with use_parameter_renderer(name_flags):
        assert finding.to_text() == "note: mixed-chains: several\n    -> use --locus TRB"
        assert finding.to_dict()["advice"] == "use `locus=TRB`"  # data
    assert show_parameters("`locus`") == "`locus`"


def test_log_lines_name_options():
    record = logging.LogRecord("deeprc", logging.WARNING, "f.py", 1, "try another %s", ("`seed`",), None)
    assert MessageFormatter().format(record) == "Warning: try another --seed"


def test_a_name_adds_no_line_to_the_log():
    record = logging.LogRecord("deeprc", logging.WARNING, "f.py", 1, "%s: skipped", ("a\nError: b\x1b[2J.tsv",), None)
    assert MessageFormatter().format(record) == r"Warning: a Error: b\x1b[2J.tsv: skipped"


@pytest.mark.parametrize(
    ("name", "level", "line"),
    [
        ("deeprc.runs", "INFO", "Note: text"),
        ("deeprc.runs", "WARNING", "Warning: text"),
        ("deeprc.runs", "ERROR", "Error: text"),
        ("deeprc.progress", "INFO", "text"),
    ],
)
def test_log_lines_begin_with_the_words_of_other_messages(name, level, line):
    record = logging.LogRecord(name, getattr(logging, level), "f.py", 1, "text", (), None)
    assert MessageFormatter().format(record) == line


def test_no_message_of_the_library_names_an_option():
    root = Path(deeprc.__file__).parent
    files = [*root.rglob("*.py"), *(root.parent / "datasets").rglob("*.py"), *(root.parent / "baselines").rglob("*.py")]
    writes_commands = {"quickstart.py", "origin.py", "run_report.py", "benchmark_report.py", "cv_report.py"}
    found = [
        f"{file.name}: {line.strip()}"
        for file in files
        if "cli" not in file.parts and file.name not in writes_commands
        for line in file.read_text().splitlines()
        if re.search(r"(?<![-\w(])--[a-z]", re.sub(r"`deeprc [^`]*`", "", line)) and "var(--" not in line
    ]
    allowed = ["network.py:", "page.py:", "inline.py:"]  # an arrow and the variables of a style sheet
    assert [line for line in found if not line.startswith(tuple(allowed))] == []
