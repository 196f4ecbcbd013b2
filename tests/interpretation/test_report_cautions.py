"""What a report warns of, and the controls it compares the network with."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from deeprc.datasets.dataset import RepertoireDataset, open_dataset
from deeprc.datasets.relabelling import relabel
from deeprc.evaluation.auc_intervals import compute_auc_interval
from deeprc.evaluation.caution import Caution, read_cautions, write_cautions
from deeprc.evaluation.metrics import compute_macro_auc
from deeprc.evaluation.strata import StratifiedAuc
from deeprc.interpretation.report.cautions import _warn_of_broad_attention, collect_cautions
from deeprc.interpretation.report.summary import _describe_auc, _format_question
from deeprc.nn.sequence_scores import OutputParts
from deeprc.runs.assess import Assessment, assess_outputs
from deeprc.runs.controls import compare_controls
from deeprc.runs.model_cautions import UNUSED_ATTENTION
from deeprc.runs.performance import Contrast, NumericTarget, Performance, measure_performance
from deeprc.runs.run import Run
from deeprc.runs.run_cautions import find_run_cautions
from deeprc.runs.strata_cautions import find_strata_cautions
from deeprc.tasks import Task, parse_tasks


def test_cohort_that_the_run_has_not_seen(
    tmp_path: Path, trained: Run, cohort_factory: Callable[..., RepertoireDataset]
) -> None:
    other = cohort_factory(20, 60, seed=77)
    outputs = trained.model.compute_outputs(other).double().numpy()
    performance = measure_performance(trained, other, outputs)
    assert performance.held_out == "new"
    assert compare_controls(other, performance, trained.tasks, columns=[])[0].reasons == [
        "No control method could be compared: the cohort has no labelled training repertoire of this run."
    ]
    texts = _texts(trained, performance, metadata=other.metadata)
    assert any(
        "None of this cohort's repertoires took part" in text and "20 of them have the id" in text for text in texts
    )


def test_a_packed_model_does_not_know_what_it_has_seen(trained: Run) -> None:
    performance = _performance(["new"] * 40, [0, 1] * 20, np.arange(40.0).tolist())
    performance = replace(performance, held_out="new")
    texts = _texts(trained, performance, bundle="a file")
    assert not [text for text in texts if "took part in training" in text]
    assert "on 40 new repertoires, 20 of them ill." in _describe_auc(performance.contrasts[0], performance)


def _texts(
    run: Run,
    performance: Performance,
    folder: Path = Path("nowhere"),  # without what was noted when it was trained
    cautions: Sequence[Caution] = (),
    bundle: object = None,
    **changed: pd.DataFrame,
) -> list[str]:
    tables = {
        "metadata": pd.DataFrame({"x": np.zeros(len(performance.ids))}),
        "heads": pd.DataFrame({"repertoire_id": ["r0"], "head": [1], "n_sequences": [1000], "metastable_size": [3]}),
        "history": pd.DataFrame({"update": [10, 20, 30], "validation_loss": [0.5, 0.4, 0.6]}),
        "seeds": pd.DataFrame(),
    }
    every = {**tables, **changed}
    found = [*find_run_cautions(performance, [], metadata=every["metadata"]), *cautions]
    own: Any = SimpleNamespace(
        path=folder,
        bundle=bundle,
        splits=run.splits,
        settings=run.settings,
        history=lambda: every["history"],
        start_motifs=lambda: every["seeds"],
    )
    alone: Any = SimpleNamespace(runs=(own,), model=run.model)
    return [each.text for each in collect_cautions(alone, Assessment(performance, [], found), heads=every["heads"])]


def _performance(split: list[str], label: list[float], score: list[float]) -> Performance:
    """Return the performance of one contrast from its scores."""
    known, scores = np.array(label), np.array(score)
    held_out = "test" if "test" in split else None
    contrast = Contrast("t", "t", "ill", "well", 0, known, scores, 1 / (1 + np.exp(-scores)))
    ids = np.array([f"r{i}" for i in range(len(split))], dtype=object)
    return Performance(ids, np.array(split, dtype=object), known[:, None], {}, pd.DataFrame(), [contrast], [], held_out)


def _splits(n: int, *, train: float = 1, validation: float = 1, test: float = 1) -> Performance:
    """Return n repertoires of each class on each side, of which this share is ranked right; the others are tied."""
    split, label, score = [], [], []
    for side, right in (("train", train), ("validation", validation), ("test", test)):
        split += [side] * (2 * n)
        label += [1.0] * n + [0.0] * n
        score += [1.0 if i < right * n else 0.0 for i in range(n)] + [0.0] * n
    return _performance(split, label, score)


def test_nothing_to_warn_of(trained: Run) -> None:
    assert _texts(trained, _splits(20)) == []


def test_the_warning_within_values_knows_the_adjustment() -> None:
    performance = _splits(20)
    within = {performance.contrasts[0].target: [StratifiedAuc("site", 0.5, 0.4, 0.6, 100, 40)]}
    (plain,), (adjusted,) = (list(find_strata_cautions(within, performance, columns)) for columns in ((), ("site",)))
    assert plain.text.endswith("learned 'site' instead of the target. Train with `adjust_for=site`.")
    assert adjusted.text.endswith("learned 'site' instead of the target, although training was adjusted for it.")


def test_few_test_repertoires_are_warned_of_with_the_interval(trained: Run) -> None:
    (text,) = _texts(trained, _splits(8))
    low, _ = compute_auc_interval(1.0, 8, 8)
    few = "Only 8 test repertoires of the smaller class. With so few, the AUC may be anything"
    assert text == f"{few} from {low:.3f} to 1.000."


def test_chance_comes_first(trained: Run) -> None:
    texts = _texts(trained, _splits(8, validation=0.25, test=0))
    assert texts[0].startswith("The network is not significantly better than chance: its AUC is 0.500, with a 95% ")
    assert texts[1].startswith("Only 8 test repertoires")
    assert texts[2].startswith("The AUC is 1.000 on training and 0.625 on validation repertoires")


def test_a_model_that_learned_nothing_is_not_called_overfitted(trained: Run) -> None:
    """The AUC of training is 0.625, but its interval holds 0.5; or validation lies within it."""
    for performance in (
        _splits(8, train=0.25, validation=0, test=1),
        _splits(40, train=0.4, validation=0.15),
    ):
        assert not any("overfitted" in text for text in _texts(trained, performance))
    assert any("overfitted" in text for text in _texts(trained, _splits(40, train=0.8, validation=0.15)))
    performance = _number_performance(9, 7.0, seed=3)
    assert not any(each.name == "learned-by-heart" for each in find_run_cautions(performance, [], metadata=_NOBODY))


def test_cross_fitted_scores_are_not_called_overfitted() -> None:
    """A model that reads branches only predicts training repertoires without having learned from them."""
    performance = _splits(40, train=0.8, validation=0.15)
    sheet = pd.DataFrame(index=range(len(performance.ids)))
    found = [
        {each.name for each in find_run_cautions(performance, [], metadata=sheet, is_cross_fitted=is_cross_fitted)}
        for is_cross_fitted in (False, True)
    ]
    assert found[0] - found[1] == {"learned-by-heart"}


def test_a_cohort_without_usable_test_repertoires_gets_a_warning(trained: Run) -> None:
    performance = _performance(["train"] * 4, [1.0, 1, 0, 0], [1.0, 1, 0, 0])
    assert _texts(trained, performance)[0].startswith("All labelled repertoires of this cohort were used to train")
    performance = _performance(["train"] * 4 + ["test"] * 2, [1.0, 1, 0, 0, 1, 1], [1.0, 1, 0, 0, 1, 1])
    assert _texts(trained, performance)[0].startswith("The test repertoires have only one class, so there is no AUC")


def test_subjects_on_several_splits(trained: Run) -> None:
    performance = _splits(20)
    metadata = pd.DataFrame({"donor": ["same"] * 120})
    (text,) = _texts(trained, performance, metadata=metadata)
    assert text.startswith("1 value of 'donor' has repertoires in more than one part of the split")
    unlabelled = replace(performance, labels=np.where(np.arange(120)[:, None] < 80, np.nan, performance.labels))
    assert _texts(trained, unlabelled, metadata=metadata) == []  # the others have no label that could be learned


def test_few_donors_are_no_evidence(trained: Run) -> None:
    """Twenty test repertoires of each class, those of one class of one person; forty without a label do not count."""
    label = np.where(np.arange(120) < 40, np.nan, _splits(20).labels[:, 0])
    performance = _splits(20)
    performance = replace(
        performance, labels=label[:, None], contrasts=[replace(performance.contrasts[0], label=label)]
    )
    donors = np.where(label == 1, np.arange(120), 0)
    performance = replace(performance, donor_column="donor", donors=donors)
    (text,) = _texts(trained, performance)
    assert text.startswith(
        "Test repertoires: 20 ill repertoires are of 20 donors, 20 well repertoires are of 1 donor ('donor'). What "
    )
    assert "The network is not shown to distinguish ill from well: its AUC is 1.000" in _describe_auc(
        performance.contrasts[0], performance
    )
    each_its_own = replace(performance, donors=np.arange(120))
    assert _describe_auc(performance.contrasts[0], each_its_own).startswith("The network distinguishes ill from well")
    assert _texts(trained, each_its_own) == []


@pytest.mark.slow
def test_several_classes_are_warned_of_together(cohort: RepertoireDataset, run_factory: Callable[..., Run]) -> None:
    """One warning of each kind, and the controls are judged by the macro AUC."""
    run = run_factory(cohort, "n_updates=20", "n_kernels=4", "kernel_size=4", targets=("grade:multiclass",))
    outputs = OutputParts(np.zeros((len(cohort), 3), np.float32), {})  # which tell nothing
    found = assess_outputs(run, cohort, outputs)
    names = [each.name for each in found.cautions]
    for name in ("chance", "few-repertoires"):
        assert names.count(name) == 1
    chance = next(each for each in found.cautions if each.name == "chance")
    assert chance.text.startswith("The network is not significantly better than chance for 3 of 3 classes of grade")
    assert sorted(chance.details["aucs"]) == ["high", "low", "mid"]
    assert [each.is_of_class for each in found.controls] == [False, True, True, True]
    together = found.controls[0]
    assert together.measures["network"] == 0.5
    label = np.array([{"high": 0, "low": 1, "mid": 2}[name] for name in cohort.metadata["grade"]])
    tested = np.flatnonzero(found.performance.is_in("test"))
    scores = np.stack([each.predictions["v-genes"] for each in found.controls[1:]], axis=1)
    assert together.measures["v-genes"] == pytest.approx(compute_macro_auc(label[tested], scores))
    assert "control-not-worse" not in names  # the network is not better than chance, which has its own warning
    assert together.not_worse
    assert all("(Macro AUC " in together.describe(name) for name in together.not_worse)


def test_merged_classes_are_in_brackets() -> None:
    task = Task("s=b,c vs a", "s", "binary", ("a", "b", "c"), n_positive=2, drops_others=True)
    assert _format_question(task) == "Can receptor sequences predict whether “s” is (b or c) rather than a?"


def _heads(positive: float, negative: float, head: int = 1) -> pd.DataFrame:
    """Return what share of 1,000 sequences holds 90% of the attention in each repertoire of `_splits(20)`, by class."""
    positives = _splits(20).labels[:, 0] == 1
    sizes = np.where(positives, 1000 * positive, 1000 * negative)
    ids = [f"r{i}" for i in range(len(sizes))]
    return pd.DataFrame({"repertoire_id": ids, "head": head, "n_sequences": 1000, "metastable_size": sizes})


def test_broad_attention_counts_where_evidence_is_sought(trained: Run) -> None:
    (text,) = _texts(trained, _splits(20), heads=_heads(0.2, 0.3))
    assert text.startswith(
        "Attention is broad: in half of the repertoires, 90% of it is on more than 20% (case), 30% (healthy) of the "
        "sequences."
    )
    (text,) = _texts(trained, _splits(20), heads=_heads(0.6, 0.9))
    assert text.startswith("Attention is very broad: in half of the repertoires, 90% of it is on more than 60% (case)")
    (text,) = _texts(trained, _splits(20), heads=_heads(0.2, 0.001))
    assert text.startswith("Attention is broad: in half of the repertoires, 90% of it is on more than 20% (case) of")
    assert _texts(trained, _splits(20), heads=_heads(0.003, 0.52)) == []  # negatives have nothing to gather on
    two_heads = pd.concat([_heads(0.9, 0.9), _heads(0.01, 0.9, head=2)])  # one of them is focused
    assert _texts(trained, _splits(20), heads=two_heads) == []


@pytest.mark.parametrize(("n", "is_told"), [(1, True), (2, False)])
def test_broad_attention_is_told_unless_no_run_uses_it(trained: Run, n: int, is_told: bool) -> None:
    unused = Caution("warning", "Unused.", "branches", UNUSED_ATTENTION, {"n": n, "n_runs": 2, "branches": ["clones"]})
    texts = _texts(trained, _splits(20), cautions=[unused], heads=_heads(0.6, 0.9))
    assert texts[0] == "Unused."
    assert any(text.startswith("Attention is very broad") for text in texts) == is_told


def test_broad_attention_of_several_classes_and_of_numbers() -> None:
    performance, three = _splits(20), Task("t", "t", "multiclass", ("a", "b", "c"))
    labels = np.where(np.arange(120) < 40, 2.0, performance.labels[:, 0])[:, None]
    performance = replace(performance, labels=labels)
    heads = _heads(0.3, 0.3)
    (caution,) = _warn_of_broad_attention(heads, performance, [three])
    assert caution.text.startswith(
        "Attention is broad: in half of the repertoires, 90% of it is on more than 30% (a), 30% (b), 30% (c) of the "
        "sequences"
    )
    narrow = heads.assign(metastable_size=np.where(labels[:, 0] == 2, 3, 300))
    assert list(_warn_of_broad_attention(narrow, performance, [three])) == []
    number = Task("t", "t", "regression")
    (caution,) = _warn_of_broad_attention(heads, performance, [number])
    everywhere = "Attention is broad: in half of the repertoires, 90% of it is on more than 30% of the sequences."
    assert caution.text.startswith(everywhere)
    both = replace(performance, labels=np.hstack([labels, labels]))
    assert list(_warn_of_broad_attention(narrow, both, [number, three])) == []  # attention is one for all targets
    (caution,) = _warn_of_broad_attention(heads.assign(repertoire_id="unknown"), performance, [three])
    assert caution.text.startswith("Attention is broad: in half of the repertoires, ")


def test_training_that_was_cut_off(trained: Run) -> None:
    last = trained.settings.config.training.n_updates
    history = pd.DataFrame({"update": [last // 2, last], "validation_loss": [0.5, 0.4]})
    (text,) = _texts(trained, _splits(20), history=history)
    assert text.startswith(f"Training ended at its limit of {last:,} updates")
    kept_earlier = history.assign(best_update=last // 2)  # because whole validation repertoires decided so
    assert _texts(trained, _splits(20), history=kept_earlier) == []
    history["validation_loss"] = [0.4, 0.5]
    assert _texts(trained, _splits(20), history=history) == []


def test_control_that_is_as_good(trained: Run, motif_cohort: RepertoireDataset) -> None:
    performance = measure_performance(
        trained, motif_cohort, trained.model.compute_outputs(motif_cohort).double().numpy()
    )
    (controls,) = compare_controls(motif_cohort, performance, trained.tasks, columns=["grade"])
    assert list(controls.measures) == ["network", "size", "v-genes", "sheet"]
    assert controls.measures["network"] == pytest.approx(performance.metrics["test"]["status=case"]["auc"])
    assert controls.not_worse == ["sheet"]  # whose grade says more than the status; the age is the status
    assert controls.columns == ["grade"]
    assert controls.describe("sheet").endswith("(`deeprc relabel`).")
    contrast = replace(performance.contrasts[0], score=np.zeros(len(motif_cohort)))
    (controls,) = compare_controls(
        motif_cohort, replace(performance, contrasts=[contrast]), trained.tasks, columns=["grade"]
    )
    assert set(controls.not_worse) <= {"size", "v-genes", "sheet"}
    assert controls.measures["network"] == 0.5
    reached = [name for name, auc in controls.measures.items() if auc >= 0.5 and name != "network"]
    assert set(reached) <= set(controls.not_worse)
    for name in controls.not_worse:
        is_above_chance = controls.is_above_chance(name)
        assert ("receptor sequences add information" in controls.describe(name)) == is_above_chance
        assert ("may reflect this difference" in controls.describe(name)) == is_above_chance
        assert controls.describe(name).startswith("Neither the network nor a control") != is_above_chance
    assert controls.measures["size"] < 0.5  # so the classes differ in nothing that it sees


@pytest.mark.slow
def test_of_several_contrasts_each_line_names_its_own(
    cohort: RepertoireDataset, run_factory: Callable[..., Run]
) -> None:
    targets = ("status=case", "grade:multiclass")
    run = run_factory(cohort, "n_updates=20", "n_kernels=4", "kernel_size=4", targets=targets)
    performance = measure_performance(run, cohort, run.model.compute_outputs(cohort).double().numpy())
    about = [f"grade: {name} against not {name}" for name in ("high", "low", "mid")]
    about.insert(0, "status: case against healthy")
    assert [each.about for each in performance.contrasts] == about
    controls = compare_controls(cohort, performance, run.tasks, columns=["age"])
    for each in controls:
        for name in (*each.not_worse, *each.worse):
            assert f"he network for {each.quantity.about} " in each.describe(name)
    alone = compare_controls(
        cohort[:3],
        replace(performance, parts=np.full(len(cohort), "new", dtype=object), held_out="new"),
        run.tasks,
        columns=[],
    )
    assert [each.reasons[0].split(": the cohort")[0] for each in alone if each.quantity.kind != "multiclass"] == [
        f"No control method could be compared for {each}" for each in about
    ]
    targets = ("status=case", "age:regression")
    (one,) = measure_performance(
        replace(run, model=replace(run.model, tasks=tuple(parse_tasks(targets, cohort.metadata)))),
        cohort,
        run.model.compute_outputs(cohort)[:, :2].double().numpy(),
    ).contrasts
    assert one.for_target == " for status: case against healthy"  # beside a number, it has to be named
    single = measure_performance(
        run_factory(cohort, "n_updates=10"), cohort, run.model.compute_outputs(cohort)[:, :1].double().numpy()
    )
    assert [each.for_target for each in single.contrasts] == [""]


def test_doubtful_motifs_to_start_from(trained: Run) -> None:
    performance = _splits(40)
    seeds = pd.DataFrame({"motif": ["SFEN", "S.EN", "KR"], "p_value": [0.2, 0.01, 0.4]})
    (text,) = (each for each in _texts(trained, performance, seeds=seeds) if "did not stand out" in each)
    assert "Training started from 2 motifs that" in text
    assert "validation repertoires: SFEN, KR." in text
    for nothing in (seeds[1:2], seeds[:0], pd.DataFrame()):
        assert not any("did not stand out" in each for each in _texts(trained, performance, seeds=nothing))


_NOBODY = pd.DataFrame(index=range(27))


def _number_performance(n: int, error: float, *, seed: int = 0) -> Performance:
    """Return n repertoires on each side, whose number is predicted with this error."""
    rng = np.random.default_rng(seed)
    split = np.repeat(np.array(["train", "validation", "test"], dtype=object), n)
    label = rng.normal(50, 10, 3 * n)
    predicted = label + error * rng.normal(size=3 * n)
    ids = np.array([f"r{i}" for i in range(3 * n)], dtype=object)
    numbers = NumericTarget("age", label, predicted)
    return Performance(ids, split, label[:, None], {}, pd.DataFrame(), [], [numbers], "test")


def test_a_number_on_few_repertoires_is_warned_of() -> None:
    performance = _number_performance(9, 7.0, seed=3)
    found = performance.numeric_targets[0].measure_r2(performance.is_in("test"))
    assert found is not None
    assert found.interval is not None
    low, high = found.interval
    names = {
        each.name: each.text for each in find_run_cautions(performance, [], metadata=pd.DataFrame(index=range(27)))
    }
    assert low <= 0
    assert names["chance"].startswith(
        f"The network does not predict age significantly better than the mean does: r² is {found.value:.3f}, with a "
        f"95% interval from {low:.3f} to {high:.3f}."
    )
    few = "Only 9 test repertoires. With so few, r² may be anything"
    assert names["few-repertoires"] == f"{few} from {low:.3f} to {high:.3f}."
    assert find_run_cautions(_number_performance(40, 3.0), [], metadata=pd.DataFrame(index=range(120))) == []
    alone = find_run_cautions(_number_performance(3, 3.0), [], metadata=pd.DataFrame(index=range(9)))
    assert "no-interval" in [each.name for each in alone]


@pytest.mark.slow
def test_the_sheet_control_of_a_number_leaves_out_columns_like_it(
    cohort: RepertoireDataset, run_factory: Callable[..., Run], tmp_path: Path
) -> None:
    """Status and grade say the age; the ward says it of all but the first repertoire."""
    path = tmp_path / "cohort.h5"
    shutil.copy(cohort.container.path, path)
    ward = np.where(cohort.metadata["status"] == "case", "north", "south")
    ward[0] = "north"
    sheet = pd.DataFrame({"repertoire_id": cohort.repertoire_ids, "ward": ward})
    sheet.to_csv(tmp_path / "s.tsv", sep="\t", index=False)
    relabel(path, tmp_path / "s.tsv", keep_columns=True)
    cohort = open_dataset(path)
    run = run_factory(cohort, "n_updates=10", "n_kernels=4", targets=("age:regression",))
    found = assess_outputs(run, cohort, run.model.compute_output_parts(cohort))
    (controls,) = found.controls
    assert list(controls.measures) == ["network", "size", "v-genes", "sheet"]
    assert controls.columns == ["ward"]
    left_out = next(each for each in found.cautions if each.name == "columns-left-out")
    assert left_out.details == {"columns": ["status", "grade"]}
    assert controls.measures["sheet"] > 0.7
    assert controls.classify("sheet") in ("better", "equal")
    assert controls.measures["network"] == pytest.approx(found.performance.metrics["test"]["age"]["r2"], abs=1e-6)
    names = [each["control"] for each in found.metrics["test"]["age"]["controls"]]
    assert names == ["size", "v-genes", "sheet"]
    text = controls.describe("sheet")
    assert "A control method that sees only the sheet column ward " in text
    assert f"r² {controls.measures['sheet']:.3f} against {controls.measures['network']:.3f}" in text
    stored = read_cautions(run.path)
    assert [each.text for each in stored] == [each.text for each in found.cautions]
    assert {"few-repertoires", "subjects-apart"} <= {each.name for each in stored}


def test_a_stored_finding_in_other_words_is_told_once(trained: Run, tmp_path: Path) -> None:
    """The run may be of an older version."""
    now = Caution("warning", "7 are far. Chance explains it.", "setup", "shift", {"n": 7, "names": ["a"]})
    before = replace(now, text="7 are far.")
    other = replace(before, text="8 are far.", details={"n": 8, "names": ["a"]})
    write_cautions(tmp_path, [before, other])
    texts = _texts(trained, _splits(9), folder=tmp_path, cautions=[now])
    assert now.text in texts
    assert other.text in texts
    assert before.text not in texts
