"""Configurations: YAML presets in `configs/`, `key=value` overrides, typed and validated before any data is read."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from deeprc.errors import InputError

__all__ = ["Config", "NetworkConfig", "TrainingConfig", "config_from_mapping", "load_config", "presets"]


def _bounded(default: float | None, low: float, high: float = float("inf"), *, all_is_none: bool = False) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "none": "all" if all_is_none else None})


@dataclass(frozen=True)
class NetworkConfig:
    """The network's shape. See `deeprc.nn.DeepRC`."""

    # h1: the paper's 1D convolution, or an LSTM
    embedding: Literal["convolution", "lstm"] = "convolution"
    # d_v, the number of motif kernels (or LSTM units)
    n_kernels: int = _bounded(32, 1)
    # residues that one kernel spans
    kernel_size: int = _bounded(9, 1)
    # the kernels' start, as a factor of LeCun's 1 / sqrt(fan-in)
    convolution_gain: float = _bounded(0.5, 0)
    # factor of a sequence's one-hot features by its count; `log` hides sequences seen once
    abundance: Literal["none", "log1p", "log"] = "none"
    # learned numbers for each V and each J gene, joined to what the kernels give; 0 does without genes
    gene_units: int = _bounded(0, 0)
    # SELU layers of the key network h2, and d_k, the units in each
    n_key_layers: int = _bounded(2, 0)
    key_units: int = _bounded(32, 1)
    # learned queries
    n_heads: int = _bounded(1, 1)
    # inverse temperature of the attention; null is 1 / sqrt(key_units)
    beta: float | None = _bounded(None, 1e-12)
    # learn one beta per head
    learn_beta: bool = False
    # bring the repertoire representation to mean 0 and variance 1 before o (not in the paper)
    standardise: bool = True
    # layers of the output network o; 1 is linear
    n_output_layers: int = _bounded(1, 1)
    # units of its hidden layers
    output_units: int = _bounded(32, 1)
    # of the convolution: auto is bfloat16 on CUDA and float32 elsewhere
    precision: Literal["auto", "bfloat16", "float32"] = "auto"


@dataclass(frozen=True)
class TrainingConfig:
    """How the network is trained."""

    # updates at most
    n_updates: int = _bounded(2000, 1)
    # repertoires per update
    batch_size: int = _bounded(4, 1)
    # sequences drawn at random from each repertoire per update; `all` (or null) is whole repertoires
    n_sequences: int | None = _bounded(10_000, 1, all_is_none=True)
    # share of them that attention keeps, to learn from (the paper: 0.1)
    top_fraction: float = _bounded(1.0, 1e-9, 1)
    # and how many of each repertoire at most; null sets no limit
    top_number: int | None = _bounded(None, 1)
    # what is not kept: `dropped` from the softmax, at inference too (the paper), or a `constant` part of it
    unattended: Literal["dropped", "constant"] = "dropped"
    # Adam's step size
    learning_rate: float = _bounded(1e-3, 1e-12)
    # Adam's epsilon
    adam_epsilon: float = _bounded(1e-8, 1e-30)
    # validated and kept are averages of the weights, which keep this share of themselves in an update; 0: the weights
    weight_average: float = _bounded(0.99, 0, 0.9999)
    # updates between two looks at the validation fold
    evaluate_every: int = _bounded(50, 1)
    # sequences of each validation repertoire that a look sees, always the same; `all` (or null) is all
    validation_sequences: int | None = _bounded(20_000, 1, all_is_none=True)
    # by how much the validation loss must fall to count as better: who is sure need not become surer
    least_gain: float = _bounded(1e-3, 0)
    # looks without a better validation loss before training stops; null never stops early
    patience: int | None = _bounded(20, 1)
    # weight of the sum of absolute weights in the loss
    l1: float = _bounded(0.0, 0)
    # weight of the sum of squared weights in the loss
    l2: float = _bounded(0.0, 0)
    # share of residues that change places within their sequence, anew in every update
    residue_permutation: float = _bounded(0.0, 0, 1)
    # standard deviation of noise on the attention logits
    logit_noise: float = _bounded(0.0, 0)
    # mix the sequences of a batch's negative repertoires (first target, binary)
    shuffle_negatives: bool = False
    # largest share of kernels that start from motifs enriched in the training fold (abundance=none); 0: plain start
    seeded_start: float = _bounded(0.5, 0, 1)
    # copy all sequences to the GPU once; auto does where they take at most half of its free memory
    device_cache: Literal["auto", "always", "never"] = "auto"

    @property
    def averaged_fraction(self) -> float:
        """Share of a repertoire's sequences, the most attended ones, that a prediction averages over."""
        return self.top_fraction if self.unattended == "dropped" else 1.0


@dataclass(frozen=True)
class Config:
    """A whole configuration."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def to_mapping(self) -> dict[str, dict[str, Any]]:
        """Return the configuration as nested dictionaries, as it is written to YAML."""
        return asdict(self)


_SECTIONS: dict[str, type[NetworkConfig] | type[TrainingConfig]] = {
    "network": NetworkConfig,
    "training": TrainingConfig,
}
_SECTION_OF = {f.name: name for name, section in _SECTIONS.items() for f in fields(section)}


def presets() -> list[str]:
    """Return the names of the configurations that come with the package."""
    return sorted(
        path.name.removesuffix(".yaml") for path in files("deeprc.configs").iterdir() if path.name.endswith(".yaml")
    )


def load_config(name: str | Path = "deeprc", overrides: Sequence[str] | Mapping[str, Any] = ()) -> Config:
    """Read a preset or a YAML file and apply overrides.

    Parameters
    ----------
    name
        A preset (see `presets`) or the path of a YAML file with the sections `network` and `training`.
    overrides
        `key=value` texts or a mapping of keys to values; a key is a field's name, with or without its section.

    Raises
    ------
    InputError
        With every unknown key (and the nearest known one) and every value of the wrong type or range at once.
    """
    settings = _read_yaml(name)
    problems: list[str] = []
    if not isinstance(overrides, Mapping):
        problems += [f"{text!r}: expected key=value" for text in overrides if "=" not in text]
        pairs = (text.split("=", 1) for text in overrides if "=" in text)
        overrides = {key: _override_value(text) for key, text in pairs}
    for key, value in overrides.items():
        section, _, bare = key.rpartition(".")
        if _SECTION_OF.get(bare) is None or section not in ("", _SECTION_OF[bare]):
            problems.append(_unknown_key(key))
        else:
            settings.setdefault(_SECTION_OF[bare], {})[bare] = value
    return _build(settings, problems, source=str(name))


def config_from_mapping(settings: Mapping[str, Any], *, source: str) -> Config:
    """Build a configuration from nested dictionaries, as read from YAML; raises like `load_config`."""
    return _build(settings, [], source=source)


def _read_yaml(name: str | Path) -> dict[str, dict[str, Any]]:
    if str(name) in presets():
        text = files("deeprc.configs").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        raise InputError(
            f"--config {name}: neither a file nor a configuration that comes with deeprc: {', '.join(presets())}"
        )
    try:
        settings = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InputError(f"{name}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict) or not all(isinstance(part, dict) for part in settings.values()):
        raise InputError(f"{name}: expected the sections {', '.join(_SECTIONS)}, each with `key: value` lines")
    return settings


def _build(settings: Mapping[str, Any], problems: list[str], *, source: str) -> Config:
    built: dict[str, Any] = {}
    unknown = sorted(settings.keys() - _SECTIONS.keys())
    problems += [f"unknown section {name!r}; expected {', '.join(_SECTIONS)}" for name in unknown]
    for name, section in _SECTIONS.items():
        hints = get_type_hints(section)
        known = {f.name: f for f in fields(section)}
        values: dict[str, Any] = {}
        for key, value in settings.get(name, {}).items():
            if key not in known:
                problems.append(_unknown_key(f"{name}.{key}"))
                continue
            converted, problem = _convert(value, hints[key], known[key].metadata)
            if problem:
                problems.append(f"{name}.{key}: {problem}, found {value!r}")
            values[key] = converted
        built[name] = values
    if not problems:
        config = Config(NetworkConfig(**built["network"]), TrainingConfig(**built["training"]))
        problems = _contradictions(config)
        if not problems:
            return config
    raise InputError(f"configuration {source}: " + "; ".join(problems))


def _contradictions(config: Config) -> list[str]:
    """Return what is wrong with values that are right one by one."""
    problems = []
    network, training = config.network, config.training
    n_values = network.n_kernels + 2 * network.gene_units
    if network.n_key_layers == 0 and network.key_units != n_values:
        expected = f"expected n_kernels + 2 gene_units, {n_values}, where n_key_layers is 0"
        problems.append(f"network.key_units: {expected}, found {network.key_units}")
    if training.top_number is not None and training.unattended == "dropped":
        expected = "expected unattended=constant beside it, because predictions do not know a number"
        problems.append(f"training.top_number: {expected}, found unattended=dropped")
    return problems


def _override_value(text: str) -> Any:
    """Return an override's value: as YAML reads it, but without YAML 1.1's base 60 (1:30 is not 90)."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return text if ":" in text else value


def _unknown_key(key: str) -> str:
    near = difflib.get_close_matches(key.rpartition(".")[2], _SECTION_OF, n=1, cutoff=0.4)
    return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _convert(value: Any, hint: Any, limits: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return the value in the field's type and what is wrong with it, if anything."""
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return value, None if value in choices else f"expected one of {', '.join(map(str, choices))}"
    kinds = set(get_args(hint)) or {hint}
    if type(None) in kinds and value in (None, limits["none"]):
        return None, None
    if bool in kinds:
        return value, None if isinstance(value, bool) else "expected true or false"
    expected = "expected a number" + (f" or {limits['none']}" if limits["none"] else "")
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as text
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            return value, expected
        value = number
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return value, expected
    if int in kinds:
        if value != int(value):
            return value, "expected a whole number"
        value = int(value)
    else:
        value = float(value)
    low, high = limits["low"], limits["high"]
    if not low <= value <= high:
        return value, f"expected at least {low:g}" + (f" and at most {high:g}" if high < float("inf") else "")
    return value, None
