"""`deeprc preprocess` and `deeprc info` from the command line."""

import json

import pytest
from click.testing import CliRunner

from deeprc.cli import options
from deeprc.cli.info import info
from deeprc.cli.preprocess import preprocess
from deeprc.datasets import preprocessing
from deeprc.datasets.container import Container
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.readers import FORMATS
from deeprc.errors import InputError


def run(command, *arguments):
    return CliRunner().invoke(command, list(map(str, arguments)))


def test_preprocess_and_info(cohort):
    output = cohort / "cohort.h5"
    result = run(preprocess, cohort / "files", "--metadata", cohort / "metadata.tsv", "-o", output, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "total                       7     4           1      1                  1" in result.output
    assert f"Wrote {output}: 3 repertoires\n" in result.output

    result = run(info, output)
    assert result.exit_code == 0
    assert "  status         text    sick: 2, well: 1" in result.output.splitlines()
    result = run(info, output, "--json")
    assert json.loads(result.output)["sequences"]["total"] == 4


def test_every_option_reaches_the_function(cohort, write_table):
    write_table(
        cohort / "any" / "p.csv",
        ("s", "n", "v", "j"),
        [("CASSF", 2, "TRBV2", "TRBJ1-1"), ("CAF", 3, "", ""), ("CASSSF", 4, "", "")],
        ";",
    )
    write_table(cohort / "sheet.csv", ("barcode", "y"), [("p", 1), ("q", 0)], ",")
    arguments = [
        cohort / "any",
        "--metadata",
        cohort / "sheet.csv",
        "--output",
        cohort / "o.h5",
        "--allow-missing",
    ]
    arguments += [
        "--format",
        "generic",
        "--sequence-column",
        "s",
        "--count-column",
        "n",
        "--id-column",
        "barcode",
        "--v-column",
        "v",
        "--j-column",
        "j",
    ]
    result = run(preprocess, *arguments, "--min-length", 4, "--max-length", 5)
    assert result.exit_code == 0, result.output
    repertoire = RepertoireDataset(cohort / "o.h5")[0]
    assert repertoire.sequences.decode() == ["CASSF"]
    assert repertoire.counts.tolist() == [2]
    container = Container(cohort / "o.h5")
    assert (container.sequences.v_call.names().tolist(), container.sequences.j_call.names().tolist()) == (
        ["TRBV2"],
        ["TRBJ1-1"],
    )


def test_an_input_error_passes_through_to_the_group(cohort):
    result = run(preprocess, cohort / "gone", "--metadata", cohort / "metadata.tsv", "-o", cohort / "c.h5")
    assert isinstance(result.exception, InputError)
    assert isinstance(run(info, cohort / "gone.h5").exception, InputError)


def test_an_unknown_format_lists_the_known_ones(cohort):
    result = run(preprocess, cohort, "--metadata", "m", "-o", "c.h5", "--format", "arr")
    assert result.exit_code == 2
    assert f"'arr' is not one of {str(FORMATS)[1:-1]}." in result.output


@pytest.mark.parametrize("command", [preprocess, info])
def test_help_shows_an_example_and_explains_every_option(command):
    lines = run(command, "--help").output.splitlines()
    assert lines[lines.index("  Example:") + 1].startswith(f"    deeprc {command.name} ")
    assert all(option.help for option in command.params if option.param_type_name == "option")


def test_no_number_of_jobs_means_one_per_core(cohort, monkeypatch):
    seen = []
    monkeypatch.setattr(options, "count_cores", lambda: 3)
    monkeypatch.setattr(preprocessing, "preprocess", lambda *_, jobs, **__: seen.append(jobs) or 1 / 0)
    for arguments in ([], ["--jobs", 0], ["--jobs", 2]):
        place = [cohort / "files", "--metadata", cohort / "metadata.tsv", "-o", cohort / "c.h5"]
        assert isinstance(run(preprocess, *place, *arguments).exception, ZeroDivisionError)
    assert seen == [None, 3, 2]
