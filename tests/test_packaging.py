"""The wheel holds exactly the tree's modules and YAML files, and installs no top-level `datasets`."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "deeprc": "deeprc",
    "baselines": "deeprc/baselines",
    "configs": "deeprc/configs",
    "datasets": "deeprc/datasets",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from a copy, so that the checkout stays clean."""
    copy = tmp_path_factory.mktemp("source")
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(copy)], check=True)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(copy / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next((copy / "dist").glob("*.whl")))


def test_the_wheel_holds_the_tree(wheel: zipfile.ZipFile) -> None:
    expected = {
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".css", ".j2", ".js", ".py", ".safetensors", ".typed", ".yaml"}
    }
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected


def test_nothing_but_deeprc_is_installed(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"deeprc"}


def test_every_preset_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    assert {"deeprc/configs/deeprc.yaml", "deeprc/configs/paper.yaml"} <= set(wheel.namelist())
