"""`deeprc config`, and the settings in the help of `deeprc train`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deeprc.config import list_presets, load_config
from deeprc.settings import list_settings

Deeprc = Callable[..., tuple[int, str, str]]


def test_the_default_with_every_setting(deeprc: Deeprc) -> None:
    code, out, _ = deeprc("config")
    assert code == 0
    lines = out.splitlines()
    for each in list_settings():
        assert f"  {each.name}={each.text(each.default)} ({each.kind})" in lines
        assert each.meaning in " ".join(out.split())
    assert lines.index("Settings of the network") < lines.index("Settings of the training")
    assert lines[-1] == "Configurations that come with deeprc: cmv, deeprc, paper (deeprc config NAME)"


def test_a_preset_tells_where_it_differs(deeprc: Deeprc) -> None:
    _, out, _ = deeprc("config", "paper", "n_heads=2")
    assert "  n_updates=100000 [default: 2000] (whole number of at least 1)\n" in out
    assert "  validation_sequences=all [default: 20000] (whole number of at least 1, or all)\n" in out
    assert "  n_heads=2 [default: 1] (whole number of at least 1)\n" in out
    assert "  batch_size=4 (whole number of at least 1)\n" in out


@pytest.mark.parametrize("name", [*list_presets(), "n_kernels=64"])
def test_the_yaml_file_gives_the_same_configuration(deeprc: Deeprc, tmp_path: Path, name: str) -> None:
    code, out, _ = deeprc("config", name, "--yaml")
    assert code == 0
    (tmp_path / "mine.yaml").write_text(out)
    expected = load_config("deeprc", [name]) if "=" in name else load_config(name)
    assert load_config(tmp_path / "mine.yaml") == expected
    assert "  # repertoires per update (whole number of at least 1)\n  batch_size: 4\n" in out


def test_unknown_names_and_settings_are_one_line(deeprc: Deeprc) -> None:
    code, out, err = deeprc("config", "papr")
    assert (code, out) == (2, "")
    assert err.startswith("Error: --config papr: neither a file nor a configuration")
    code, _, err = deeprc("config", "paper", "n_kernel=3")
    assert code == 2
    assert "did you mean 'n_kernels'?" in err
    assert len(err.splitlines()) == 1


def test_the_help_of_train_lists_every_setting(deeprc: Deeprc) -> None:
    code, out, _ = deeprc("train", "--help")
    assert code == 0
    text = "".join(out.split())  # a line may end at the hyphen of a word
    for each in list_settings():
        assert "".join(f"{each.name}={each.text(each.default)}".split()) in text
        assert "".join(each.meaning.split()) in text
