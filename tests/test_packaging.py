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


@pytest.mark.slow
def test_a_repository_that_is_called_deeprc_does_not_hide_the_package(tmp_path: Path) -> None:
    """Beside it, Python finds the repository's folder first; the package that is installed must come out of it."""
    (tmp_path / "deeprc").symlink_to(ROOT)
    for code in ("import deeprc; deeprc.open", "import deeprc.datasets.dataset"):
        command = f"{code}; import deeprc.baselines, sys; print(sys.modules['deeprc'].__file__)"
        done = subprocess.run(
            [sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().endswith("deeprc/__init__.py")
        assert Path(done.stdout.strip()).parent.joinpath("errors.py").exists()
    alone = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import deeprc"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", alone], capture_output=True, text=True, check=False)
    assert f"deeprc is not installed; install it with: pip install -e {tmp_path / 'deeprc'}" in done.stderr


def packages_without_deeprc(folder: Path) -> list[str]:
    """Folders of installed packages; where deeprc is installed, too, a folder of links to all others."""
    found = []
    for number, entry in enumerate(entry for entry in sys.path if entry.endswith("-packages")):
        if not list(Path(entry).glob("deeprc-*.dist-info")):
            found.append(entry)
            continue
        links = folder / str(number)
        links.mkdir(parents=True)
        for path in Path(entry).iterdir():
            if not path.name.startswith(("deeprc", "__editable__", "__pycache__")) and path.suffix != ".pth":
                (links / path.name).symlink_to(path)
        found.append(str(links))
    return found


@pytest.mark.long
def test_an_editable_install_is_found_beside_its_repository(tmp_path: Path) -> None:
    """As `git clone .../deeprc; pip install -e deeprc; python -c "import deeprc"`; also under pytest and mypy."""
    clone = tmp_path / "deeprc"
    clone.mkdir()
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE", "__init__.py"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
    python = str(tmp_path / "v" / "bin" / "python")
    (packages,) = (tmp_path / "v").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(packages_without_deeprc(tmp_path / "others")))
    (tmp_path / "test_it.py").write_text("import deeprc\n\ndef test_it() -> None:\n    assert deeprc.open\n")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-build-isolation"]
    for command in (
        [*install, "-e", "deeprc"],
        [python, "-c", f"import deeprc; deeprc.open; assert deeprc.__file__.startswith({str(clone / 'deeprc')!r})"],
        [python, "-m", "deeprc", "--version"],
        [python, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"],
        [python, "-m", "mypy", "test_it.py"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
