"""Configurations from YAML presets in `configs/` and `key=value` overrides, validated before any data is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_type_hints

from deeprc.documents import abbreviate, parse_yaml, read_yaml, to_plain
from deeprc.earlier_names import update_names
from deeprc.encoders import HOW_TO_ADD, list_encoders, may_have_weights
from deeprc.errors import InputError, find_nearest, suggest_nearest
from deeprc.setting_values import MAX_NUMBER, convert_value

__all__ = [
    "SECTIONS",
    "Config",
    "NetworkConfig",
    "TrainingConfig",
    "config_from_mapping",
    "list_presets",
    "load_config",
]


_MAX_UNITS = 2**18
"""Largest number of units in a layer. The total number of weights is limited too, when the network is built."""


def _choice(default: str | bool, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


def _number(
    default: float | None, low: float, meaning: str, *, high: float = MAX_NUMBER, none: str | None = None
) -> Any:
    """Return a field for a number from `low` to `high`; `none` is a word that may be written for None, beside null."""
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high, "none": none})


@dataclass(frozen=True, repr=False)
class NetworkConfig:
    """Settings of the network, see `deeprc.nn.DeepRC`; `deeprc.settings` lists the fields with their meaning."""

    embedding: str = field(
        default="convolution",
        metadata={
            "meaning": "how sequences are represented: the paper's 1D convolution, an LSTM, a transformer, or your"
            " own encoder",
            "names": list_encoders,
            "advice": HOW_TO_ADD,
        },
    )
    embedding_weights: str | None = field(
        default=None,
        metadata={"meaning": "file with weights of a trained transformer, which stay as they are; null: none"},
    )
    n_kernels: int = _number(32, 1, "kernels of the convolution, or units of a different encoder", high=_MAX_UNITS)
    kernel_size: int = _number(9, 1, "residues that one kernel spans", high=1000)
    convolution_gain: float = _number(
        0.5, 0, "scale of the kernels' random initial weights, in units of LeCun's 1 / sqrt(fan-in)"
    )
    abundance: Literal["none", "log1p", "log"] = _choice(
        "none",
        "whether counts scale the features: none (no), log1p, or log (paper; residues have no effect if a count is 1)",
    )
    gene_units: int = _number(
        0,
        0,
        "numbers that are learned for each V and J gene and joined to those of a sequence; 0: without genes",
        high=_MAX_UNITS,
    )
    n_key_layers: int = _number(2, 0, "SELU layers of the network that computes the attention keys", high=100)
    key_units: int = _number(32, 1, "units in each of these layers", high=_MAX_UNITS)
    n_heads: int = _number(1, 1, "attention heads; each has a learned query", high=1000)
    beta: float | None = _number(None, 1e-12, "inverse temperature of the attention; null: 1 / sqrt(key_units)")
    learn_beta: bool = _choice(False, "learn one beta for each head")
    standardise: bool = _choice(True, "standardise the representation of a repertoire (not in the paper)")
    n_output_layers: int = _number(1, 1, "layers of the output network; 1 is linear", high=100)
    output_units: int = _number(32, 1, "units of the output network's hidden layers", high=_MAX_UNITS)
    composition: bool = _choice(
        True,
        "also use k-mers, genes and counts of whole repertoires, if they predict the label (not in the paper)",
    )
    composition_counts: bool = _choice(
        True, "composition may use how diverse counts are, and which clones have expanded"
    )
    clones: bool = _choice(
        True, "also use stored public clones that are associated with the label, if there are any (not in the paper)"
    )
    precision: Literal["auto", "bfloat16", "float32"] = _choice(
        "auto", "type of the numbers in the convolution; auto: bfloat16 on CUDA, float32 elsewhere"
    )

    def __repr__(self) -> str:
        return _shorten_repr(self)


@dataclass(frozen=True, repr=False)
class TrainingConfig:
    """Settings of the training; `deeprc.settings` lists the fields with their meaning."""

    n_updates: int = _number(2000, 1, "largest number of weight updates")
    batch_size: int = _number(4, 1, "repertoires per update", high=65_536)
    n_sequences: int | None = _number(
        10_000, 1, "sequences that an update draws at random from each repertoire; all: whole repertoires", none="all"
    )
    top_fraction: float = _number(
        1.0,
        1e-9,
        "share of the drawn sequences, those with most attention, to learn from (paper: 0.1)",
        high=1,
    )
    top_number: int | None = _number(None, 1, "largest number of these sequences in each repertoire; null: no limit")
    unattended: Literal["dropped", "constant"] = _choice(
        "dropped",
        "what becomes of the other sequences: dropped from the softmax, also in predictions (paper), or a constant part"
        " of it",
    )
    learning_rate: float = _number(1e-3, 1e-12, "step size of the optimizer Adam")
    adam_epsilon: float = _number(1e-8, 1e-30, "epsilon of Adam")
    weight_average: float = _number(
        0.99,
        0,
        "decay per update of running averages of the weights, which are validated and saved; 0: no averages",
        high=0.9999,
    )
    evaluate_every: int = _number(50, 1, "updates between two evaluations on the validation repertoires")
    validation_sequences: int | None = _number(
        20_000,
        1,
        "sequences of each validation repertoire that an evaluation reads; all: every one",
        none="all",
    )
    least_gain: float = _number(1e-3, 0, "smallest decrease of the validation loss that counts as an improvement")
    patience: int | None = _number(
        20, 1, "evaluations without an improvement before training stops; null: never stop early"
    )
    l1: float = _number(0.0, 0, "weight of the sum of absolute weights in the loss")
    l2: float = _number(0.0, 0, "weight of the sum of squared weights in the loss")
    residue_permutation: float = _number(
        0.0, 0, "share of residues that are permuted within their sequence, at random in every update", high=1
    )
    logit_noise: float = _number(0.0, 0, "standard deviation of random noise that is added to the attention logits")
    shuffle_negatives: bool = _choice(
        False, "exchange sequences at random between the negative repertoires of an update (first target binary)"
    )
    seeded_start: float = _number(
        0.5,
        0,
        "largest share of kernels that start from motifs associated with the label (needs abundance=none); 0: none",
        high=1,
    )
    branches_use_validation: bool = _choice(
        True, "learn composition and clones from the validation repertoires too, with cross-fitted scores"
    )
    calibrate: bool = _choice(
        True, "calibrate class probabilities on the validation repertoires, after training (not in the paper)"
    )
    device_cache: Literal["auto", "always", "never"] = _choice(
        "auto", "copy all sequences to the GPU once; auto: if they need at most half of its free memory"
    )

    def __repr__(self) -> str:
        return _shorten_repr(self)

    @property
    def averaged_fraction(self) -> float:
        """Share of a repertoire's sequences that a prediction averages over; they are those with most attention."""
        return self.top_fraction if self.unattended == "dropped" else 1.0


@dataclass(frozen=True, repr=False)
class Config:
    """A whole configuration; the defaults are the preset `deeprc`."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __repr__(self) -> str:
        return _shorten_repr(self)

    def value(self, name: str) -> Any:
        """Return the value of the setting with this name."""
        return getattr(getattr(self, _SECTION_OF[name]), name)

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the default preset, by name."""
        default = Config()
        return {name: self.value(name) for name in _SECTION_OF if self.value(name) != default.value(name)}

    def to_mapping(self) -> dict[str, dict[str, Any]]:
        """Return the configuration as nested dictionaries, in the form that is written to YAML."""
        mapping: dict[str, dict[str, Any]] = to_plain(asdict(self))
        return mapping


SECTIONS: dict[str, type[NetworkConfig] | type[TrainingConfig]] = {
    "network": NetworkConfig,
    "training": TrainingConfig,
}
"""The sections of a YAML file."""
_VALUES_OF_EARLIER_VERSIONS: dict[str, dict[str, Any]] = {
    "network": {"composition": False, "composition_counts": False, "clones": False},
    "training": {"seeded_start": 0.0, "weight_average": 0.0, "least_gain": 0.0, "calibrate": False},
}
"""Values of settings that a stored configuration lacks, if its version did not have them and behaved as with these."""
_SECTION_OF = {f.name: name for name, section in SECTIONS.items() for f in fields(section)}


def _shorten_repr(config: Any) -> str:
    """Return a configuration as a call with the values that differ from the defaults."""
    default = type(config)()
    changed = [f.name for f in fields(config) if getattr(config, f.name) != getattr(default, f.name)]
    return f"{type(config).__name__}({', '.join(f'{name}={getattr(config, name)!r}' for name in changed)})"


def list_presets() -> list[str]:
    """Return the names of the configurations that come with the package."""
    return sorted(
        path.name.removesuffix(".yaml") for path in files("deeprc.configs").iterdir() if path.name.endswith(".yaml")
    )


def load_config(name: str | Path = "deeprc", overrides: Sequence[str] | Mapping[str, Any] = ()) -> Config:
    """Read a preset or a YAML file and apply overrides.

    Parameters
    ----------
    name
        A preset (see `list_presets`) or the path of a YAML file with the sections `network` and `training`.
    overrides
        Texts `key=value`, or a mapping of keys to values. A key is the name of a field, with or without its section.

    Raises
    ------
    InputError
        If a key is unknown or a value has the wrong type or range. The message lists all of them, with the nearest
        known key for each unknown one.
    """
    settings = _read_yaml(name)
    problems: list[str] = []
    doubtful: set[str] = set()
    if not isinstance(overrides, Mapping):
        problems += [f"{text!r}: expected key=value" for text in overrides if "=" not in text]
        pairs = (text.split("=", 1) for text in overrides if "=" in text)
        overrides = {key: _override_value(text) for key, text in pairs}
    for key, value in update_names(overrides).items():
        section, _, bare = key.rpartition(".")
        if _SECTION_OF.get(bare) is None or section not in ("", _SECTION_OF[bare]):
            problems.append(_describe_unknown_key(key))
            doubtful.update(_find_similar_key(key))
        else:
            settings.setdefault(_SECTION_OF[bare], {})[bare] = value
    return _build_config(settings, problems, doubtful, source=str(name))


def config_from_mapping(settings: Mapping[str, Any], *, source: str) -> Config:
    """Build a configuration that was stored with a model, from nested dictionaries; errors are those of `load_config`.

    If an older version stored the configuration, settings that this version did not have are switched off.
    """
    given = {name: part for name, part in settings.items() if isinstance(part, Mapping)}
    complete = {
        name: {**_VALUES_OF_EARLIER_VERSIONS[name], **update_names(part)}
        for name, part in given.items()
        if name in _VALUES_OF_EARLIER_VERSIONS
    }
    return _build_config({**settings, **complete}, [], set(), source=source)


def _read_yaml(name: str | Path) -> dict[str, dict[str, Any]]:
    if str(name) in list_presets():
        settings = parse_yaml(files("deeprc.configs").joinpath(f"{name}.yaml").read_text("utf-8"), source=str(name))
    elif Path(name).exists():
        settings = read_yaml(Path(name))
    else:
        raise InputError(
            f"`config={name}`: neither a file nor a configuration that comes with deeprc: {', '.join(list_presets())}"
        )
    settings = settings or {}
    if not isinstance(settings, dict) or not all(isinstance(part, dict) for part in settings.values()):
        raise InputError(f"{name}: expected the sections {', '.join(SECTIONS)}, each with `key: value` lines")
    return {section: update_names(part) for section, part in settings.items()}


def _build_config(settings: Mapping[str, Any], problems: list[str], doubtful: set[str], *, source: str) -> Config:
    """Return the configuration; raise an InputError with all problems.

    `doubtful` are the keys whose value is invalid or may be meant by a misspelt key. They get the default, which is not
    compared with other values.
    """
    built: dict[str, Any] = {}
    unknown = sorted(settings.keys() - SECTIONS.keys(), key=str)
    problems += [f"unknown section {name!r}; expected {', '.join(SECTIONS)}" for name in unknown]
    for name, section in SECTIONS.items():
        if not isinstance(settings.get(name, {}), Mapping):
            raise InputError(
                f"configuration {source}: {name}: expected names and values, found {abbreviate(settings[name])}"
            )
        hints = get_type_hints(section)
        known = {f.name: f for f in fields(section)}
        values: dict[str, Any] = {}
        for key, value in settings.get(name, {}).items():
            if key not in known:
                full_key = f"{name}.{key}"  # text, whatever the key is
                problems.append(_describe_unknown_key(full_key))
                doubtful.update(_find_similar_key(full_key))
                continue
            converted, problem = convert_value(value, hints[key], known[key].metadata)
            if problem:
                advice = known[key].metadata.get("advice")
                found = f"found {abbreviate(value)}" + (f" ({advice})" if advice else "")
                problems.append(f"{name}.{key}: {problem}, {found}")
                doubtful.add(key)
            else:
                values[key] = converted
        built[name] = values
    config = Config(NetworkConfig(**built["network"]), TrainingConfig(**built["training"]))
    if not unknown:
        problems += [message for keys, message in _find_contradictions(config) if not doubtful.intersection(keys)]
    if not problems:
        return config
    raise InputError(f"configuration {source}: " + "; ".join(problems))


def _find_contradictions(config: Config) -> list[tuple[tuple[str, ...], str]]:
    """Return the keys and a message for each combination of values that is not possible, although each alone is."""
    problems: list[tuple[tuple[str, ...], str]] = []
    network, training = config.network, config.training
    n_values = network.n_kernels + 2 * network.gene_units
    if network.n_key_layers == 0 and network.key_units != n_values:
        expected = f"expected n_kernels + 2 gene_units, {n_values}, where n_key_layers is 0"
        keys = ("n_key_layers", "key_units", "n_kernels", "gene_units")
        problems.append((keys, f"network.key_units: {expected}, found {network.key_units}"))
    if network.embedding == "transformer" and network.abundance != "none":
        expected = "expected none with embedding=transformer"
        problems.append((("embedding", "abundance"), f"network.abundance: {expected}, found {network.abundance}"))
    if network.embedding_weights is not None and not may_have_weights(network.embedding):
        expected = f"expected null with embedding={network.embedding}, which cannot take over weights"
        message = f"network.embedding_weights: {expected}, found {abbreviate(network.embedding_weights)}"
        problems.append((("embedding", "embedding_weights"), message))
    if training.top_number is not None and training.unattended == "dropped":
        expected = "expected unattended=constant with it, because predictions cannot use such a number"
        problems.append((("top_number", "unattended"), f"training.top_number: {expected}, found unattended=dropped"))
    return problems


def _override_value(text: str) -> Any:
    """Return the value of an override as YAML reads it; a text with a colon is no mapping."""
    try:
        value = parse_yaml(text, source="")
    except InputError:
        return text
    return text if ":" in text else value


def _find_similar_key(key: str) -> list[str]:
    """Return the known key that is most similar to an unknown one, or nothing if none is similar."""
    return find_nearest(key.rpartition(".")[2], _SECTION_OF)


def _describe_unknown_key(key: str) -> str:
    return f"unknown key {key!r}{suggest_nearest(key.rpartition('.')[2], _SECTION_OF)}"
