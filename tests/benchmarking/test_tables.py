"""Tables: numbers, bold, order and escapes as they are printed."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from deeprc.benchmarking.latex import _render_cell, render_latex
from deeprc.benchmarking.markdown import _escape_text, render_markdown
from deeprc.benchmarking.result import BenchmarkResult
from deeprc.benchmarking.tables import _format_duration, format_results_tsv, summarise_chosen_settings
from deeprc.errors import use_parameter_renderer
from deeprc.evaluation.caution import Caution
from deeprc.evaluation.comparison import MethodInfo, compare, compute_fold_metrics
from deeprc.evaluation.reliability import compute_calibration_error
from deeprc.evaluation.scoring import MulticlassScoring, RegressionScoring
from deeprc.evaluation.significance import format_p_value

FEW = "The repertoires come from few donors, so this may be chance."
METHODS = [
    MethodInfo("k", "Known motif b.", "truth"),
    MethodInfo("v", "V gene usage", "control"),
    MethodInfo("a", "Method A"),
    MethodInfo("b", "B | 100% & TCRβ"),
    MethodInfo("c", "Method C"),
]
STRENGTH = {"k": 9.0, "v": 0.3, "a": 3.0, "b": 0.5, "c": 1.0}


def predictions(folds: int = 5, n: int = 24, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = []
    for fold in range(folds):
        label = rng.permutation(np.arange(n) % 2)
        for name, strength in STRENGTH.items():
            if name == "c" and fold > 2:
                continue
            score = rng.normal(size=n) + strength * (label - 0.5)
            ids = [f"{fold}-{i}" for i in range(n)]
            probability = 1 / (1 + np.exp(-score))
            columns = {"repertoire_id": ids, "label": label, "score": score, "probability": probability}
            parts.append(pd.DataFrame({"method": name, "fold": fold, **columns}))
    return pd.concat(parts, ignore_index=True)


PREDICTIONS = predictions()
COMPARISON, METRICS = compare(PREDICTIONS, METHODS), compute_fold_metrics(PREDICTIONS)
CHOICES = pd.DataFrame(
    [
        ("a", f, 0.8 + 0.01 * f, 0.7 + 0.01 * f, json.dumps({"kernel": "minmax", "C": 10.0**f, "l1": None}))
        for f in range(5)
    ]
    + [
        ("c", 1, np.nan, np.nan, json.dumps({"k": [3, 4]})),
        ("c", 0, np.nan, 0.5, json.dumps({"k": [3, 4], "on": True})),
    ]
    + [("v", f, np.nan, np.nan, "{}") for f in range(5)],
    columns=["method", "fold", "validation_auc", "refit_auc", "settings"],
)
COSTS = pd.DataFrame(
    [("a", f, "search", 100.0, 150.0, 500.0) for f in range(5)]
    + [("a", f, "final", 10.5, 11.0, 1500.0 + f) for f in range(5)]
    + [("b", 0, "final", 1.25, 1.0, 80.0)],
    columns=["method", "fold", "task", "seconds", "cpu_seconds", "peak_memory_mb"],
)


def result(table: pd.DataFrame = PREDICTIONS, methods: Sequence[MethodInfo] = METHODS, **more: Any) -> BenchmarkResult:
    return BenchmarkResult(methods, table, **{"choices": CHOICES.iloc[:0], "costs": COSTS.iloc[:0], **more})


def markdown(**more: Any) -> str:
    return render_markdown(result(**more))


def table_rows(text: str, heading: str = "") -> list[list[str]]:
    """Return the cells of the Markdown table below a heading, without its rule; by default of the first table."""
    part = text.partition(f"## {heading}\n")[2] if heading else text
    lines = [line.replace("\\|", "!") for line in part.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("|--")]


def value(method: str, metric: str) -> pd.Series:
    return METRICS[(METRICS["method"] == method) & (METRICS["metric"] == metric)]["value"]


def test_the_auc_of_several_classes_is_called_macro() -> None:
    (found,) = summarise_chosen_settings(CHOICES, METHODS[2:3], MulticlassScoring(("a", "b", "c")))
    assert (found.method, found.validation.split(" ±")[0]) == ("Method A", "validation macro AUC 0.820")
    assert found.to_line() == f"Method A, {found.validation}: {found.settings}"


def test_few_donors_are_a_warning_of_the_verdict() -> None:
    few = Caution("warning", "t", "performance", "repeated-subjects")
    result = BenchmarkResult(METHODS[1:2] + METHODS[2:3], predictions().query("method in ('v', 'a')"), CHOICES, COSTS)
    alone = [each.text for each in result.cautions]
    told = [each.text for each in replace(result, known=[few]).cautions]
    assert told[1:] == [f"{text} {FEW}" if text.startswith("Every control method") else text for text in alone]
    assert any(text.endswith(FEW) for text in told)


# -- TSV --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_results_tsv_has_every_metric_choice_and_cost() -> None:
    table = pd.read_csv(io.StringIO(format_results_tsv(result(choices=CHOICES, costs=COSTS))), sep="\t")
    assert list(table) == ["method", "fold", "metric", "value"]
    found = table.set_index(["method", "fold", "metric"])["value"]
    assert found.index.is_unique
    for row in METRICS.itertuples():
        assert found[row.method, row.fold, row.metric] == pytest.approx(row.value, rel=1e-7)
    own = found["a", 3]
    assert own[["search_seconds", "final_seconds", "seconds"]].tolist() == [100.0, 10.5, 110.5]
    assert own[["cpu_seconds", "peak_memory_mb", "validation_auc"]].tolist() == [161.0, 1503.0, 0.83]
    assert own["refit_auc"] == pytest.approx(0.73)
    assert np.isnan(found["v", 0, "validation_auc"])
    assert len(found) == len(METRICS) + 2 * len(CHOICES) + 5 * 5 + 4


def test_results_tsv_is_written_without_choices_and_costs() -> None:
    one_class = PREDICTIONS[PREDICTIONS["label"] == 1]  # so that no AUC is defined
    text = format_results_tsv(result(one_class))
    assert text.splitlines()[1] == "a\t0\tauc\t"
    assert len(text.splitlines()) == 1 + len(METRICS)


# -- Markdown ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_markdown_numbers() -> None:
    header, *rows = table_rows(markdown(costs=COSTS))
    assert header[:5] == ["Method", "AUC", "95% interval", "p", "p (Holm)"]
    by_name = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    a, b = COMPARISON.set_index("method").loc["a"], COMPARISON.set_index("method").loc["b"]
    found = by_name["Method A"]
    assert found["AUC"] == f"**{a['auc_mean']:.3f}** ± {a['auc_sd']:.3f}"
    assert found["95% interval"] == f"[{a['ci_low']:.3f}, {a['ci_high']:.3f}]"
    assert (found["p"], found["p (Holm)"]) == ("-", "-")
    assert found["F1"] == f"**{value('a', 'f1').mean():.3f}** ± {value('a', 'f1').std():.3f}"
    assert (found["Time"], found["Memory"]) == ("9 min 12 s", "1.5 GB")  # 552.5 s, 1504 MB
    found = by_name["B ! 100% & TCRβ"]
    assert found["AUC"] == f"{b['auc_mean']:.3f} ± {b['auc_sd']:.3f}"
    assert (found["p"], found["p (Holm)"]) == (format_p_value(b["p_value"]), format_p_value(b["p_holm"]))
    assert (found["Time"], found["Memory"]) == ("1.2 s", "80 MB")
    assert by_name["V gene usage"]["Time"] == "-"


@pytest.mark.slow
def test_markdown_order_and_groups() -> None:
    names = [row[0] for row in table_rows(markdown())]
    expected = ["Method", "Method A", "B ! 100% & TCRβ", "Method C (3 of 5 folds)", "*Control methods*", "V gene usage"]
    assert names == [*expected, "*Ground truth*", "Known motif b."]


@pytest.mark.slow
def test_all_methods_that_print_the_best_number_are_bold_and_no_control_is() -> None:
    again = PREDICTIONS[PREDICTIONS["method"] == "a"].assign(method="d")
    both, methods = pd.concat([PREDICTIONS, again]), [*METHODS, MethodInfo("d", "Method D")]
    rows = table_rows(render_markdown(result(both, methods)))
    bold = {row[0] for row in rows if row[1].startswith("**")}
    assert bold == {"Method A", "Method D"}
    assert "**" not in str([row for row in rows if row[0] in ("Known motif b.", "V gene usage")])


def test_an_incomplete_method_is_never_bold() -> None:
    strong = PREDICTIONS[(PREDICTIONS["method"] == "k") & (PREDICTIONS["fold"] < 2)].assign(method="d")
    both, methods = pd.concat([PREDICTIONS, strong]), [*METHODS, MethodInfo("d", "Method D")]
    rows = {row[0]: row for row in table_rows(render_markdown(result(both, methods)))}
    assert rows["Method D (2 of 5 folds)"][1].startswith("1.000")
    assert rows["Method A"][1].startswith("**")


@pytest.mark.slow
def test_markdown_is_aligned() -> None:
    lines = [line for line in markdown(costs=COSTS).partition("## ")[0].splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("|---")
    assert lines[1].count(":|") == 10


@pytest.mark.slow
def test_markdown_has_the_mean_after_a_refit() -> None:
    header, *rows = table_rows(markdown(choices=CHOICES))
    cells = {row[0]: row[header.index("Refitted")] for row in rows}
    assert cells["Method A"] == "0.720 ± 0.016"
    assert cells["V gene usage"] == "-"  # it learns from the validation fold anyway


@pytest.mark.slow
def test_markdown_says_what_the_numbers_are() -> None:
    text = " ".join(markdown(title="cohort.h5: status").split())
    assert text.startswith("# cohort.h5: status | Method")
    assert "standard deviation (n-1) over 5 test folds with 120 repertoires, 60 of them positive" in text
    assert "the best method, Method A, on the same repertoires (two-sided paired DeLong test by fold)" in text
    assert "corrected for the 3 methods that are compared with the best one" in text
    assert "Control methods see no amino-acid sequence" in text
    assert "## What the control methods say - Every control method is significantly worse than the best method" in text


def test_markdown_says_which_p_values_are_of_permutations() -> None:
    label = PREDICTIONS["label"]
    perfect = PREDICTIONS[PREDICTIONS["method"].isin(["a", "b"])].copy()
    perfect["score"] = np.where(perfect["method"] == "a", label[perfect.index], -label[perfect.index])
    methods = [each for each in METHODS if each.name in "ab"]
    text = " ".join(render_markdown(result(perfect, methods)).split())
    assert r"for B \| 100% & TCRβ a permutation test, because DeLong's variance is 0 or not defined" in text


@pytest.mark.slow
def test_markdown_lists_methods_that_are_not_complete() -> None:
    text = markdown(failures={"c": "fold 3:\nno | weights", "my:Own": "not for this cohort"})
    lines = text.partition("## Not complete\n\n")[2].splitlines()
    assert lines[:2] == [r"- Method C: 3 of 5 folds; fold 3: no \| weights", "- my:Own: not for this cohort"]
    assert "- Method C: 3 of 5 folds; not finished" in markdown()


@pytest.mark.slow
def test_markdown_lists_settings() -> None:
    lines = markdown(choices=CHOICES).partition("## Settings chosen\n\n")[2].splitlines()
    assert lines == [
        "- V gene usage: nothing to choose",
        "- Method A, validation AUC 0.820 ± 0.016: kernel = minmax; l1 = none; C = 1, 10, 100, 1000, 1e+04 by fold",
        "- Method C, folds 0, 1: k = [3, 4]; on = true, - by fold",
        "",
        "Settings were chosen by the validation AUC. So it is too high, and does not hold for new repertoires.",
    ]


def test_settings_of_the_network_have_their_own_names() -> None:
    """The parameter of the estimator that holds them, `overrides`, is unknown to a reader."""
    settings = [json.dumps({"overrides.kernel_size": size, "config": "deeprc"}) for size in (7, 9)]
    choices = CHOICES[CHOICES["method"] == "c"].assign(settings=settings)  # of fold 1, and of fold 0
    (chosen,) = summarise_chosen_settings(choices, METHODS)
    assert chosen.to_line() == "Method C: config = deeprc; kernel_size = 9, 7 by fold"


def test_tables_of_an_empty_benchmark() -> None:
    empty = PREDICTIONS.iloc[:0]
    text = markdown(table=empty, failures={"a": "memory"})
    assert len(table_rows(text)) == 1
    assert "No method has a fold yet." in text
    assert "- Method A: 0 of 5 folds; memory" in text
    assert r"\end{table}" in render_latex(result(empty))


@pytest.mark.slow
def test_markdown_of_probabilities() -> None:
    header, *rows = table_rows(markdown(), "Probabilities")
    assert header == ["Method", "Brier score", "Log loss", "Calibration error"]
    own = PREDICTIONS[PREDICTIONS["method"] == "a"]
    label, p = own["label"].to_numpy(), own["probability"].to_numpy()
    by_name = {row[0]: row[1:] for row in rows}
    expected = np.mean((p - label) ** 2), log_loss(label, p), compute_calibration_error(label, p)
    assert by_name["Method A"] == [f"{value:.3f}" for value in expected]
    assert rows[-1] == ["Base rate", "0.250", "0.693", "-"]  # half of the repertoires are positive
    losses = [float(row[2]) for row in rows[:-1]]
    assert losses == sorted(losses)
    table = result().probabilities.set_index("method")
    assert table.loc["c", "n_repertoires"] == 3 * 24
    assert table.loc["a", "brier_base_rate"] == pytest.approx(0.25)


def test_numbers_have_no_probabilities() -> None:
    numbers = pd.DataFrame(
        {
            "method": "a",
            "fold": [0, 0, 1, 1],
            "repertoire_id": list("wxyz"),
            "label": [1.0, 2, 3, 4],
            "prediction": [2.0] * 4,
        }
    )
    choices = pd.DataFrame(columns=["method", "fold", "validation_r2", "refit_r2", "settings"])
    told = result(numbers, METHODS[2:3], n_folds=2, scoring=RegressionScoring(), choices=choices)
    assert told.probabilities.empty
    assert "Probabilities" not in told.table


def test_the_mean_of_one_fold_is_shown_without_a_spread() -> None:
    single = PREDICTIONS[(PREDICTIONS["fold"] == 0) & (PREDICTIONS["method"] == "a")]
    methods = [METHODS[2]]
    (_, row) = table_rows(render_markdown(result(single, methods, n_folds=1)))
    assert row[1] == f"**{value('a', 'auc').iloc[0]:.3f}**"


@pytest.mark.slow
def test_tables_show_parameters_as_their_reader_knows_them() -> None:
    known = [Caution("warning", "Use `group_by='donor'`.", "setup")]
    assert "- Use `group_by='donor'`.\n" in markdown(known=known)
    assert r"Use \textasciigrave{}group\_by='donor'\textasciigrave{}." in render_latex(result(known=known))
    with use_parameter_renderer(lambda text: text.replace("`group_by='donor'`", "--group-by donor")):
        assert "- Use --group-by donor.\n" in markdown(known=known)
        assert "Use --group-by donor." in render_latex(result(known=known))


def test_markdown_escapes() -> None:
    assert _escape_text("a|b *c* `d e` <0.001 <b> my_method _x_ e\\f\ng") == (
        r"a\|b \*c\* \`d e\` <0.001 \<b> my_method \_x\_ e\\f g"
    )
    assert _escape_text("Use `group_by='a_b'`") == "Use `group_by='a_b'`"  # a parameter is code
    assert _escape_text("See `deeprc check`.") == "See `deeprc check`."  # and so is a command


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h 00 min")],
)
def test_durations_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert _format_duration(seconds) == text


# -- LaTeX ------------------------------------------------------------------------------------------------------------


def test_latex_has_the_papers_form() -> None:
    text = render_latex(result(title="cohort_1", costs=COSTS))
    lines = [line.strip() for line in text.splitlines()]
    rules = [line for line in lines if line in (r"\toprule", r"\midrule", r"\bottomrule")]
    of_probabilities = [r"\toprule", r"\midrule", r"\midrule", r"\bottomrule"]
    assert rules == [r"\toprule", r"\midrule", r"\midrule", r"\midrule", r"\bottomrule", *of_probabilities]
    a = COMPARISON.set_index("method").loc["a"]
    row = next(line for line in lines if line.startswith("Method A &"))
    assert row.startswith(rf"Method A & \textbf{{{a['auc_mean']:.3f}}} {{\footnotesize $\pm$ {a['auc_sd']:.3f}}} & [")
    assert row.endswith(r"9 min 12 s & 1.5 GB \\")
    body = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    assert {line.replace(r"\&", "").count("&") for line in body if line.endswith(r"\\")} == {10}
    known = lines.index(next(line for line in lines if line.startswith("Known motif b.")))
    assert lines[known - 1] == r"\midrule"
    assert r"cohort\_1." in lines
    assert r"B \textbar{} 100\% \& TCR$\beta$ & " in text
    assert r"\label{tab:benchmark}" in lines


def test_latex_has_a_table_of_probabilities() -> None:
    found = result(title="cohort_1")
    text = render_latex(found).split(r"\label{tab:benchmark}")[1]
    lines = [line.strip() for line in text.splitlines()]
    assert r"& Brier score & Log loss & Calibration error \\" in lines
    a = found.probabilities.set_index("method").loc["a"]
    row = next(line for line in lines if line.startswith("Method A &"))
    assert row == rf"Method A & {a['brier']:.3f} & {a['log_loss']:.3f} & {a['calibration_error']:.3f} \\"
    base = next(line for line in lines if line.startswith("Base rate &"))
    assert base == rf"Base rate & {a['brier_base_rate']:.3f} & {a['log_loss_base_rate']:.3f} & -- \\"
    assert r"\label{tab:benchmark-probabilities}" in lines
    assert text.count(r"\end{table}") == 2


def test_latex_braces_match() -> None:
    text = render_latex(result(failures={"c": r"{ \x $"}))
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert r"\{ \textbackslash{}x \$" in text


def test_latex_escapes() -> None:
    assert _render_cell(r"a_b & 5% $x$ #1 {y} ~ ^ \z <|>") == (
        r"a\_b \& 5\% \$x\$ \#1 \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z "
        r"\textless{}\textbar{}\textgreater{}"
    )
    assert _render_cell("-") == "--"


def test_latex_rows_that_begin_like_an_option() -> None:
    methods = [MethodInfo("a", "[own]"), MethodInfo("b", "*")]
    two = PREDICTIONS[PREDICTIONS["method"].isin(["a", "b"])]
    text = render_latex(result(two, methods))
    assert "    {}[own] & " in text
    assert "    {}* & " in text
