import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from deeprc.config import Config, NetworkConfig, TrainingConfig, config_from_mapping, list_presets, load_config
from deeprc.errors import InputError
from deeprc.settings import list_settings


def test_presets_load() -> None:
    assert list_presets() == ["cmv", "deeprc", "paper"]
    for name in list_presets():
        assert isinstance(load_config(name), Config)


def test_the_default_preset_states_the_fields_defaults() -> None:
    assert load_config("deeprc") == Config()


def test_the_paper_preset_is_the_paper() -> None:
    """Paper lines 8500-8560, 8640-8660, 9035-9060."""
    config = load_config("paper")
    assert config.network == NetworkConfig(
        n_kernels=32,
        kernel_size=9,
        abundance="log",
        n_key_layers=2,
        key_units=32,
        n_heads=1,
        convolution_gain=1.0,
        standardise=False,
        composition=False,
        composition_counts=False,
        clones=False,
    )
    assert config.training == TrainingConfig(
        n_updates=100_000, batch_size=4, n_sequences=10_000, top_fraction=0.1, learning_rate=1e-4,
        adam_epsilon=1e-4, evaluate_every=5000, validation_sequences=None, patience=None, seeded_start=0.0,
            weight_average=0.0, least_gain=0.0, calibrate=False,
    )  # fmt: skip


def test_the_cmv_preset_is_the_default_for_large_repertoires_with_the_papers_abundance() -> None:
    """Paper line 8595: the abundance scale is log; the rest of the difference is a longer and calmer training."""
    changes = {"abundance": "log", "n_updates": 20_000, "evaluate_every": 500, "validation_sequences": 100_000}
    assert load_config("cmv") == load_config("deeprc", changes)


def test_all_sequences_by_name_or_null() -> None:
    for text in ("all", "null"):
        config = load_config("deeprc", [f"n_sequences={text}", f"validation_sequences={text}"])
        assert config.training.n_sequences is None
        assert config.training.validation_sequences is None
    with pytest.raises(InputError, match="n_sequences: expected a number or all, found 'al'"):
        load_config("deeprc", ["n_sequences=al"])
    with pytest.raises(InputError, match="n_kernels: expected a number, found 'all'"):
        load_config("deeprc", ["n_kernels=all"])


def test_a_top_number_needs_a_constant_rest() -> None:
    with pytest.raises(InputError, match="top_number: expected unattended=constant"):
        load_config("deeprc", ["top_number=100"])
    config = load_config("deeprc", ["top_number=100", "unattended=constant", "top_fraction=0.5"])
    assert config.training.averaged_fraction == 1.0
    assert load_config("paper").training.averaged_fraction == 0.1


def test_overrides_with_and_without_section() -> None:
    config = load_config("deeprc", ["n_kernels=64", "training.learning_rate=1e-2", "patience=null", "learn_beta=true"])
    assert config.network.n_kernels == 64
    assert config.training.learning_rate == 0.01
    assert config.training.patience is None
    assert config.network.learn_beta is True


def test_a_number_with_a_leading_zero_is_not_taken_for_one_of_base_8() -> None:
    """YAML 1.1 reads 0100 as 64."""
    with pytest.raises(InputError, match=r"n_updates: expected a number, found '0100'$"):
        load_config("deeprc", ["n_updates=0100"])
    assert load_config("deeprc", ["seeded_start=0", "l1=0.5", "l2=00.5"]).training.l2 == 0.5


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(InputError) as error:
        load_config(
            "deeprc",
            [
                "n_kernel=3",
                "kernel_size=0",
                "abundance=sqrt",
                "l1=x",
                "top_fraction=2",
                "seed",
                "n_heads=1.5",
                "n_updates=nan",
                "beta=.inf",
                "batch_size=[",
                "evaluate_every=1:30",
            ],
        )
    message = str(error.value)
    for part in (
        "unknown key 'n_kernel'; did you mean 'n_kernels'?",
        "network.kernel_size: expected at least 1, found 0",
        "network.abundance: expected one of none, log1p, log, found 'sqrt'",
        "training.l1: expected a number, found 'x'",
        "training.top_fraction: expected at most 1, found 2",
        "'seed': expected key=value",
        "network.n_heads: expected a whole number, found 1.5",
        "training.n_updates: expected a number, found 'nan'",
        "network.beta: expected a number, found inf",
        "training.batch_size: expected a number, found '['",
        "training.evaluate_every: expected a number, found '1:30'",
    ):
        assert part in message


def test_a_misspelt_key_is_no_contradiction(tmp_path: Path) -> None:
    """The default that stands for `n_kernel` must not be compared with what was meant."""
    path = tmp_path / "mine.yaml"
    path.write_text("network: {n_kernel: 64, n_key_layers: 0, key_units: 64}\n")
    with pytest.raises(InputError) as error:
        load_config(str(path))
    assert str(error.value).endswith("unknown key 'network.n_kernel'; did you mean 'n_kernels'?")


def test_a_file_and_its_round_trip(tmp_path: Path) -> None:
    config = load_config("paper", ["n_heads=2"])
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(config.to_mapping()))
    assert load_config(path) == config
    assert config_from_mapping(config.to_mapping(), source="here") == config


def test_stored_settings_with_names_of_earlier_versions() -> None:
    stored = Config().to_mapping()
    stored["training"]["readings_use_validation"] = not stored["training"].pop("branches_use_validation")
    assert not config_from_mapping(stored, source="here").training.branches_use_validation


def test_settings_of_users_may_have_names_of_earlier_versions(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("training:\n  readings_use_validation: false\n")
    assert not load_config(tmp_path / "mine.yaml").training.branches_use_validation
    assert not load_config("deeprc", ["readings_use_validation=false"]).training.branches_use_validation
    assert not load_config("deeprc", {"training.readings_use_validation": False}).training.branches_use_validation


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("network: [1", "is not YAML"),
        ("- a", "expected the sections network, training"),
        ("model: {n_kernels: 3}", "unknown section 'model'"),
        ("{1: {n_kernels: 3}, model: {}}", "unknown section 1; expected network, training; unknown section 'model'"),
        ("training: {lerning_rate: 1}", "did you mean 'learning_rate'"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_config(path)


def test_an_unknown_name_lists_the_presets() -> None:
    with pytest.raises(InputError, match=r"neither a file nor a configuration .*: cmv, deeprc, paper"):
        load_config("papr")


def test_every_field_says_what_it_means_and_which_values_it_takes() -> None:
    every = list_settings()
    assert [(each.section, each.name) for each in every] == [
        (section, field.name)
        for section, part in (("network", NetworkConfig), ("training", TrainingConfig))
        for field in fields(part)
    ]
    for each in every:
        assert len(each.meaning) > 10, each.name
        assert each.kind, each.name
        assert each.default == Config().value(each.name)
    kinds = {each.name: each.kind for each in every}
    assert kinds["abundance"] == "none, log1p, log"
    assert kinds["unattended"] == "dropped or constant"
    assert kinds["learn_beta"] == "true or false"
    assert kinds["n_kernels"] == "whole number of at least 1"
    assert kinds["n_sequences"] == "whole number of at least 1, or all"
    assert kinds["top_number"] == "whole number of at least 1, or null"
    assert kinds["top_fraction"] == "number above 0, at most 1"
    assert kinds["weight_average"] == "number from 0 to 0.9999"


def test_a_setting_as_text_is_read_as_the_same_value() -> None:
    for name in list_presets():
        config = load_config(name)
        texts = [f"{each.name}={each.text(config.value(each.name))}" for each in list_settings()]
        assert load_config("deeprc", texts) == config


def test_changes_are_what_differs_from_the_default() -> None:
    assert load_config("deeprc").changes() == {}
    assert load_config("cmv").changes() == {
        "abundance": "log",
        "n_updates": 20000,
        "evaluate_every": 500,
        "validation_sequences": 100000,
    }


def test_a_configuration_shows_what_differs_from_the_default() -> None:
    assert repr(Config()) == "Config()"
    config = load_config("deeprc", ["n_kernels=64", "patience=null"])
    assert repr(config) == "Config(network=NetworkConfig(n_kernels=64), training=TrainingConfig(patience=None))"
    made = eval(repr(config), {"Config": Config, "NetworkConfig": NetworkConfig, "TrainingConfig": TrainingConfig})
    assert made == config


@pytest.mark.parametrize("arguments", [["train", "--help"], ["config", "paper", "--yaml"]])
def test_settings_are_listed_without_torch(arguments: list[str]) -> None:
    code = (
        "import sys; from deeprc.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'pandas', 'h5py', 'numba') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert "n_updates" in out


def test_keys_that_are_no_text_are_named() -> None:
    with pytest.raises(InputError, match=r"x\.yaml: unknown key 'training\.5'$"):
        config_from_mapping({"training": {5: 6}}, source="x.yaml")
