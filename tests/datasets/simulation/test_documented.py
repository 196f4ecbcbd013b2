"""The documentation's example does what the text says."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "simulation.md"


@pytest.mark.long
def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (example,) = (each for each in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "AUC" in each)
    (stated,) = re.findall(r"The AUC is (\d\.\d+)", text)
    values: dict[str, object] = {}
    exec(compile(example, str(DOCUMENT), "exec"), values)
    assert values["auc"] == pytest.approx(float(stated), abs=0.005)
    assert capsys.readouterr().out.splitlines()[-1] == f"AUC of 100 new repertoires: {stated}"
