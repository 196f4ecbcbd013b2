"""YAML and JSON that a stranger may have written: read within limits, checked by type, nothing executed."""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from deeprc import documents
from deeprc.documents import (
    AnyFloat,
    abbreviate,
    parse_json,
    parse_yaml,
    read_arrays,
    read_exponent,
    read_json,
    read_text,
    read_yaml,
    validate,
)
from deeprc.errors import InputError


@dataclass(frozen=True)
class Inner:
    kind: Literal["one", "two"]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: list[Inner]
    n: int = field(metadata={"low": 0, "high": 9})
    share: float | None = None
    loss: AnyFloat = 0.0
    named: dict[str, bool] = field(default_factory=dict)


WHOLE: dict[str, Any] = {"inner": [{"kind": "one", "names": ["a"]}], "n": 3, "share": 1, "named": {"x": True}}

BILLION = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_a_document_becomes_what_its_type_says() -> None:
    found = validate({**WHOLE, "loss": math.inf}, Outer, "f")
    assert found == Outer([Inner("one", ("a",))], 3, 1.0, math.inf, {"x": True})
    assert isinstance(found.share, float)
    assert validate(parse_yaml("[1, 2]", source="f"), list[int], "f") == [1, 2]
    assert validate(None, int | None, "f") is None
    assert validate([1, 2], tuple[float, float], "f") == (1.0, 2.0)


@pytest.mark.parametrize("value", [[], [1.0], [1.0, 2.0, 3.0]])
def test_a_tuple_has_the_length_of_its_type(value: list[float]) -> None:
    with pytest.raises(InputError, match=rf"f: expected 2 values, found {re.escape(str(value))}"):
        validate(value, tuple[float, float], "f")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": "3"}, "f: n: expected a whole number of 64 bits, found '3'"),
        ({"n": True}, "f: n: expected a whole number of 64 bits, found True"),
        ({"n": 2**63}, "f: n: expected a whole number of 64 bits, found 9223372036854775808"),
        ({"n": 10**9999}, "f: n: expected a whole number of 64 bits, found an integer of over 3,000 digits"),
        ({"n": 10}, "f: n: expected 0 to 9, found 10"),
        ({"n": None}, "f: n: expected a whole number of 64 bits, found None"),
        ({"share": math.nan}, "f: share: expected a finite number, found nan"),
        ({"share": 10**400}, "f: share: expected a finite number, found 1000"),
        ({"share": [1]}, "f: share: expected a finite number, found [1]"),
        ({"inner": {}}, "f: inner: expected a list, found {}"),
        ({"inner": "ab"}, "f: inner: expected a list, found 'ab'"),
        ({"inner": [{"kind": 1}]}, "f: inner[0]: kind: expected one of one, two, found 1"),
        ({"inner": [{"kind": ["one"]}]}, "f: inner[0]: kind: expected one of one, two, found ['one']"),
        ({"inner": [{}]}, "f: inner[0]: kind: is missing"),
        (
            {"inner": [{"kind": "one", "names": ["\0"]}]},
            "f: inner[0]: names[0]: expected text without control characters",
        ),
        (
            {"inner": [{"kind": "one", "names": ["case\u202e"]}]},
            r"f: inner[0]: names[0]: expected text without control characters, found 'case\u202e'",
        ),
        (
            {"inner": [{"kind": "one", "names": ["\ud800"]}]},
            "f: inner[0]: names[0]: expected text without",
        ),
        ({"named": {3: True}}, "f: named: expected text, found 3"),
        ({"named": {"x": 1}}, "f: named.'x': expected true or false, found 1"),
        ({"more": 1}, "f: no key 'more' is known here; expected inner, n, share, loss, named"),
    ],
)
def test_values_of_a_wrong_type_are_refused_with_their_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        validate({**WHOLE, **changes}, Outer, "f")
    assert str(error.value).startswith(message)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "f: is not YAML: while parsing"),
        ("[" * 5000, "f: is nested too deeply"),
        ("- " * 5000, "f: is nested too deeply"),
        (BILLION, "f: is too large: more than 200,000 values, aliases repeated"),
        ("a: &a [*a]", "f: is too large: more than 200,000 values, aliases repeated"),
        ("<<: &a {<<: *a}", "f: is too large: more than 200,000 values, aliases repeated"),
        pytest.param(
            "[" + "a," * 200_000 + "]", "f: is too large: more than 200,000 values", marks=pytest.mark.long, id="long"
        ),
        ("!!python/object/apply:os.system ['true']", "f: is not YAML: could not determine a constructor"),
        ("!!int ''", "f: is not YAML: "),
        ("!!bool x", "f: is not YAML: "),
        ("!!timestamp x", "f: is not YAML: "),
        ("2020-13-45", "f: is not YAML: "),
        ("9" * 5000, "f: is not YAML: "),
        ("{[1]: 2}", "f: is not YAML: "),
        ("a\0b", "f: is not YAML: "),
        ("a: 1\nb: 2\na: 3", "f: line 3: expected each key once, found 'a' again"),
        ("- x: {a: 1, 'a': 2}", "f: line 1: expected each key once, found 'a' again"),
    ],
)
def test_yaml_that_is_not_read(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_yaml(text, source="f")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["0100", "-017", "0x10", "0b11", "1:30", "1:30.5"])
def test_only_decimal_numbers_are_numbers(text: str) -> None:
    """In YAML 1.1 these are 64, -15, 16, 3, 90 and 90.5."""
    assert parse_yaml(f"a: {text}", source="f") == {"a": text}
    assert parse_yaml(yaml.safe_dump({"a": text}), source="f") == {"a": text}


@pytest.mark.parametrize(
    "value", [0, -12, 10**12, 0.5, -1.5e-30, 1e300, float("inf"), True, None, "1e5", "0", "~", "yes"]
)
def test_values_that_were_written_are_read_as_they_were(value: Any) -> None:
    assert parse_yaml(yaml.safe_dump({"a": value}), source="f") == {"a": value}


def test_a_key_may_be_there_in_several_mappings() -> None:
    assert parse_yaml("a: {a: 1}\nb: &b {a: 2}\nc: {<<: *b, a: 3}", source="f") == {
        "a": {"a": 1},
        "b": {"a": 2},
        "c": {"a": 3},
    }


def test_aliases_are_read_where_they_are_few() -> None:
    assert parse_yaml("a: &x [1, 2]\nb: *x", source="f") == {"a": [1, 2], "b": [1, 2]}
    assert parse_yaml("a: {b: 1}\nc: {b: 1, 'a': 2}\n1: x\n'1': y", source="f") == {
        "a": {"b": 1},
        "c": {"b": 1, "a": 2},
        1: "x",
        "1": "y",
    }
    assert parse_yaml("", source="f") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 500_000, "f: is nested too deeply"),
        ("{", "f: is not JSON: "),
        ("9" * 5000, "f: is not JSON: "),
        ('{"train": [], "test": ["a"], "test": []}', "f: expected each key once, found 'test' again"),
        ('[{"a": {"\\u001b": 1, "\\u001b": 1}}]', "f: expected each key once, found '\\x1b' again"),
    ],
)
def test_json_that_is_not_read(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_json(text, source="f")
    assert str(error.value).startswith(message)


def test_files_that_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    with pytest.raises(InputError, match="a: no such file"):
        read_json(file)
    with pytest.raises(InputError, match=r"is a folder; expected a text"):
        read_yaml(tmp_path)
    with pytest.raises(InputError, match=r"/dev/zero: is a device; expected a text"):
        read_text(Path("/dev/zero"))
    file.write_bytes(b"\xff")
    with pytest.raises(InputError, match="a: is not UTF-8 text: byte 0"):
        read_text(file)
    monkeypatch.setattr(documents, "MAX_YAML_BYTES", 3)
    file.write_text("1234")
    with pytest.raises(InputError, match="a: is too large; expected a text of at most 3 bytes"):
        read_yaml(file)
    file.write_text("123")
    assert read_yaml(file) == 123


def test_abbreviated_values_are_short() -> None:
    assert abbreviate("a") == "'a'"
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 10_000, list(range(10_000)), {str(i): i for i in range(10_000)}, 10**50_000, deep):
        assert len(abbreviate(value)) < 200


def test_exponents_without_a_point_are_read_as_numbers() -> None:
    found = [read_exponent(value) for value in ("1e-3", "2E5", "-.5e3", "1e", "e3", "1e-3x", "7", 3, None)]
    assert found == [0.001, 200000.0, -500.0, "1e", "e3", "1e-3x", "7", 3, None]


@pytest.mark.parametrize(
    ("kind", "size", "reason"),
    [
        ("BF16", 2, ""),
        ("F8_E4M3", 1, ""),
        ("X" * 5000, 1, "Error while deserializing header: "),
        ("F32", 9, "Error while deserializing header: "),
    ],
)
def test_arrays_that_numpy_cannot_hold(tmp_path: Path, kind: str, size: int, reason: str) -> None:
    header = json.dumps({"a": {"dtype": kind, "shape": [1], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    with pytest.raises(InputError) as error:
        read_arrays(path, expected="a saved estimator")
    assert str(error.value).startswith(f"{path}: is damaged or not a safetensors file: {reason}")
    assert len(str(error.value)) < len(str(path)) + 300
    with pytest.raises(InputError, match="is a folder; expected a saved estimator"):
        read_arrays(tmp_path, expected="a saved estimator")
