"""The image, the recipe and the wrappers say what pyproject.toml says."""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import pytest
import yaml

from deeprc.cli.flags import load_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    pytest.skip("reads pyproject.toml, which Python 3.10 cannot", allow_module_level=True)

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def recipe() -> dict[str, Any]:
    text = (ROOT / "packaging" / "bioconda" / "meta.yaml").read_text()
    rendered = jinja2.Template(text).render(PYTHON="python", pin_subpackage=lambda name, max_pin: name)
    found: dict[str, Any] = yaml.safe_load(rendered)
    return found


def as_conda(requirement: str) -> str:
    name, version = requirement.split(">=")
    return f"{CONDA_NAMES.get(name, name)} >={version}"


def test_the_recipe_needs_what_the_package_needs() -> None:
    extras = PROJECT["optional-dependencies"]
    interpret = [each for name in ("interpret", "plots") for each in extras[name] if not each.startswith("deeprc")]
    wanted = {as_conda(each) for each in (*PROJECT["dependencies"], *interpret)}
    python = f"python {PROJECT['requires-python']}"
    needed = recipe()["requirements"]
    assert set(needed["run"]) == {python, *wanted}
    assert [each for each in needed["host"] if each.startswith("python")] == [python]


def test_all_name_the_version() -> None:
    version = PROJECT["version"]
    galaxy = ElementTree.parse(ROOT / "packaging" / "galaxy" / "deeprc_predict.xml").getroot()
    module = ROOT / "packaging" / "nextflow" / "deeprc" / "predict"
    assert recipe()["package"] == {"name": "deeprc", "version": version}
    assert galaxy.findtext("macros/token") == version
    assert f"deeprc:{version}" in (module / "main.nf").read_text()
    assert f"deeprc={version}" in (module / "environment.yml").read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version


@pytest.mark.parametrize("path", ["packaging/galaxy/deeprc_predict.xml", "packaging/nextflow/deeprc/predict/main.nf"])
def test_wrappers_use_options_that_exist(path: str) -> None:
    text = (ROOT / path).read_text()
    for name in ("preprocess", "predict"):
        known = {option for parameter in load_command(name).params for option in parameter.opts}
        part = re.split(r"&&|\n\n|\n\s+deeprc ", text[text.rindex(f"deeprc {name} ") :])[0]
        used = re.findall(r"\s(--[a-z][a-z-]*|-o)\b", part)
        assert used, name
        assert set(used) <= known, name


def test_galaxys_schema_accepts_the_wrapper() -> None:
    etree = pytest.importorskip("lxml.etree")
    if find_spec("galaxy") is None or (found := find_spec("galaxy.tool_util")) is None or found.origin is None:
        pytest.skip("needs galaxy-tool-util, which planemo brings")
    schema = etree.XMLSchema(etree.parse(Path(found.origin).parent / "xsd" / "galaxy.xsd"))
    schema.assertValid(etree.parse(ROOT / "packaging" / "galaxy" / "deeprc_predict.xml"))


def test_the_nextflow_module_and_its_description_name_the_same_channels() -> None:
    """As nf-core's linter asks."""
    module = ROOT / "packaging" / "nextflow" / "deeprc" / "predict"
    text = (module / "main.nf").read_text()
    described = yaml.safe_load((module / "meta.yml").read_text())
    assert re.findall(r"emit: (\w+)", text) == list(described["output"]) == ["predictions", "versions_deeprc"]
    assert re.findall(r"topic: (\w+)", text) == list(described["topics"]) == ["versions"]
    inputs = text.partition("input:")[2].partition("output:")[0]
    rows = [re.findall(r"(?:val|path)[( ](\w+)", line) for line in inputs.splitlines() if line.strip()]
    first, second = described["input"]
    assert (
        rows
        == [[name for each in first for name in each], list(second)]
        == [["meta", "repertoires", "metadata"], ["model"]]
    )
    (version,) = described["output"]["versions_deeprc"]
    command = re.search(r"eval\('(.*)'\)", text)
    assert command is not None
    assert [name for each in version for name in each] == ["${task.process}", "deeprc", command[1]]
    assert described["authors"] == described["maintainers"] == ["the deeprc authors"]


def test_the_pinned_triton_is_the_one_that_torch_needs() -> None:
    """The other way round, the README's line could not be installed where torch comes with CUDA."""
    needed = [each for each in requires("torch") or [] if each.startswith("triton")]
    if not needed:
        pytest.skip("this build of torch needs no triton")
    pinned = re.search(r"^triton==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert needed[0].partition(";")[0].strip() == pinned[0]


def test_every_python_of_the_range_is_named() -> None:
    oldest, newest = (int(each) for each in re.findall(r"3[.](\d+)", PROJECT["requires-python"]))
    named = [each.rpartition(".")[2] for each in PROJECT["classifiers"] if ":: Python :: 3." in each]
    assert named == [str(minor) for minor in range(oldest, newest)]
    for path in ("README.md", "docs/install.md"):
        assert f"Python 3.{oldest} to 3.{newest - 1}" in (ROOT / path).read_text()


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("repertoire_00001", "repertoire_00001"),
        ("P-12.day3", "P-12.day3"),
        ("donor.tsv", "donor"),
        ("x'; touch evil; '", "x___touch_evil___"),
        ("../../evil", ".._.._evil"),
        ("a\nb $(c) `d`", "a_b___c___d_"),
    ],
)
def test_names_of_a_galaxy_collection_reach_no_shell(identifier: str, name: str) -> None:
    path = ROOT / "packaging" / "galaxy" / "deeprc_predict.xml"
    command = ElementTree.parse(path).getroot().findtext("command") or ""
    assert command.count("element_identifier") == 1
    found = re.search(r"#set \$name = (.*)", command)
    assert found is not None
    expression = found[1].replace("$table.element_identifier", "identifier")
    assert eval(expression, {"re": re, "identifier": identifier}) == name
    assert "ln -s '$table' 'repertoires/${name}.tsv' &&" in command


def test_the_image_runs_as_a_user_and_holds_the_package() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    last_user = next(line for line in reversed(lines) if line.startswith("USER"))
    assert last_user == "USER 1000"
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{name}" for name in copied} <= set(ignored)
    assert {"deeprc", "datasets", "baselines", "configs", "pyproject.toml", "README.md", "LICENSE"} <= copied
    assert all((ROOT / name).exists() for name in copied)


def test_the_oldest_versions_are_those_of_the_project() -> None:
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    assert lines[1:] == [each.replace(">=", "==") for each in PROJECT["dependencies"]]
