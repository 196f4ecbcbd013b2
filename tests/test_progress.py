"""How steps of a computation are shown: by log lines, by bars, or by any other reporter."""

import io
import logging
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from deeprc import progress
from deeprc.cli.progress import Bars, LineHandler, make_evaluation_printer, show_counts
from deeprc.notebook_bars import NotebookBars
from deeprc.progress import LogLines, format_duration, name_job_of_steps, open_step, track, use_reporter
from deeprc.training.state import TrainingState
from tests.conftest import StepRecorder


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The log lines since the last call; steps are shown by lines as long as the test runs."""
    caplog.set_level(logging.INFO, "deeprc.progress")

    def take() -> list[str]:
        found = caplog.messages
        caplog.clear()
        return found

    return take


def test_a_line_says_what_how_far_and_how_long(clock: Clock, lines: Callable[[], list[str]]) -> None:
    with use_reporter(LogLines(clock)), open_step("searching", 200) as step:
        for second in range(1, 101):
            clock.now = second
            step.advance()
    assert lines() == [
        "searching: 15%, about 3 min left",
        "searching: 30%, about 2 min left",
        "searching: 45%, about 2 min left",
    ]


def test_all_open_steps_share_a_line(clock: Clock, lines: Callable[[], list[str]]) -> None:
    with use_reporter(LogLines(clock)), open_step("methods", 4) as outer, open_step("training", 100) as inner:
        for clock.now in (20, 40):
            inner.note = "loss 0.3"
            inner.advance(10)
        assert lines() == ["methods: 0%; training: 20%, about 3 min left, loss 0.3"]
        clock.now = 60
        outer.advance()
        assert lines() == []
        clock.now = 80
        outer.left = 7
        outer.advance()
    assert lines() == ["methods: 2 of 4, about 7 s left; training: 20%, about 8 min left, loss 0.3"]


def test_a_short_step_has_no_line(clock: Clock, lines: Callable[[], list[str]]) -> None:
    with use_reporter(LogLines(clock)):
        clock.now = 1000
        with open_step("quick", 2) as step:
            clock.now = 1004
            step.advance()
            assert lines() == []
            clock.now = 1010
            step.advance()
    assert lines() == ["quick: 100%, about 0 s left"]


def test_the_speed_is_that_of_what_was_done_here(clock: Clock, lines: Callable[[], list[str]]) -> None:
    with use_reporter(LogLines(clock)), open_step("continued", 100, done=50) as step:
        for clock.now in (15, 30):
            step.advance(5)
    assert lines() == ["continued: 60%, about 2 min left"]


def test_the_first_part_tells_no_speed(clock: Clock, lines: Callable[[], list[str]]) -> None:
    """The first of 1,000 parts takes 60 s, because functions are compiled; the others take 0.1 s each."""
    with use_reporter(LogLines(clock)), open_step("training", 1000) as step:
        for part in range(1000):
            clock.now = 60 + 0.1 * part
            step.advance()
    assert lines() == ["training: 0%", "training: 30%, about 70 s left", "training: 60%, about 40 s left",
                       "training: 90%, about 10 s left"]  # fmt: skip


def test_parts_that_end_together_tell_no_speed(clock: Clock, lines: Callable[[], list[str]]) -> None:
    """Four workers take 100 s for each of 16 parts. The next time that counts is 40 s later."""
    with use_reporter(LogLines(clock)), open_step("runs", 16) as step:
        for clock.now in (100, 200, 300):
            for _ in range(4):
                step.advance()
                clock.now += 0.25
            clock.now += 40
            step.advance(0)
    assert lines() == [
        "runs: 6%",
        "runs: 25%, about 4 min left",
        "runs: 31%, about 6 min left",
        "runs: 50%, about 5 min left",
        "runs: 56%, about 5 min left",
        "runs: 75%, about 2 min left",
    ]


def test_steps_end_also_by_errors(recorder: StepRecorder) -> None:
    with pytest.raises(ZeroDivisionError), open_step("dividing", 2) as step:
        step.advance(1 / 0)
    assert recorder.told == [("open", "dividing", 0), ("close", "dividing", 0)]


def test_track_counts_what_was_used(recorder: StepRecorder) -> None:
    assert list(track("ab", "letters", 2)) == ["a", "b"]
    assert recorder.told == [
        ("open", "letters", 0),
        ("show", "letters", 1),
        ("show", "letters", 2),
        ("close", "letters", 2),
    ]


def test_counting_opens_a_step_with_the_first_number(recorder: StepRecorder) -> None:
    with show_counts("files") as show:
        assert recorder.told == []
        show(3, 10)
        show(5, 10)
    assert recorder.told == [
        ("open", "files", 3),
        ("show", "files", 3),
        ("show", "files", 5),
        ("close", "files", 5),
    ]


def test_an_unknown_time_is_not_guessed_from_the_number_of_parts(clock: Clock, lines: Callable[[], list[str]]) -> None:
    with use_reporter(LogLines(clock)), show_counts("jobs") as show:
        for done in range(4):
            clock.now += 40
            show(done, 4, None if done < 3 else 120)
    assert lines() == ["jobs: 1 of 4", "jobs: 2 of 4", "jobs: 3 of 4, about 2 min left"]


def test_a_known_time_counts_down_until_it_is_known_again(clock: Clock, lines: Callable[[], list[str]]) -> None:
    with use_reporter(LogLines(clock)), show_counts("jobs") as show:
        show(1, 4, 100)
        with open_step("training", 100) as training:
            for clock.now in (40, 80, 120):
                training.advance(0)
            show(4, 4, 0)
            clock.now = 160
            training.advance(0)
    assert [line.split(";")[0] for line in lines()] == [
        "jobs: 1 of 4, about 60 s left",
        "jobs: 1 of 4, about 20 s left",
        "jobs: 1 of 4",  # longer than expected
        "jobs: 4 of 4, about 0 s left",
    ]


def test_steps_name_their_job_once_in_a_line(clock: Clock, lines: Callable[[], list[str]]) -> None:
    with use_reporter(LogLines(clock)), open_step("methods", 4):
        with name_job_of_steps("stack, fold 1"), open_step("members", 2), open_step("training", 100) as inner:
            clock.now = 40
            inner.advance(10)
        with open_step("other", 10) as other:
            clock.now = 80
            other.advance(0)
    assert lines() == ["methods: 0%; stack, fold 1: members: 0%; training: 10%", "methods: 0%; other: 0%"]


def test_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("deeprc.cli.progress._DELAY", 0)
    monkeypatch.setattr("deeprc.cli.progress._MIN_INTERVAL", 0)
    with use_reporter(Bars()), open_step("searching", 200_000) as outer, open_step("choosing", 4) as inner:
        with name_job_of_steps("deeprc, fold 2"), show_counts("fits") as show:
            show(1, 3, 80)
        outer.advance(50_000)
        inner.note = "loss 0.3"
        inner.advance(3)
        LineHandler(stream).emit(logging.makeLogRecord({"msg": "a line"}))
    shown = stream.getvalue().replace("\n", "\r").split("\r")
    assert any(line.startswith("searching:  25%|") and "| 50.0k/200k, " in line for line in shown)
    assert any("choosing:  75%|" in line and "| 3/4, " in line and "loss 0.3" in line for line in shown)
    assert any(line.startswith("deeprc, fold 2: fits: 1 of 3, ") and "about 80 s left" in line for line in shown)
    assert "a line" in [line.removeprefix("\x1b[A") for line in shown]


def test_other_libraries_write_only_warnings() -> None:
    stream = io.StringIO()
    handler = LineHandler(stream)
    for name, level in (
        ("torch._subclasses", "INFO"),
        ("torch", "WARNING"),
        ("deeprc.runs", "INFO"),
        ("deeprcx", "INFO"),
    ):
        handler.handle(
            logging.makeLogRecord({"name": name, "levelno": getattr(logging, level), "msg": f"{name} {level}"})
        )
    assert stream.getvalue().splitlines() == ["torch WARNING", "deeprc.runs INFO"]


class FakeDisplay:
    """Stands for `IPython.display`: keeps what is shown below the cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.HTML = str

    def display(self, html: str, *, display_id: bool) -> "FakeDisplay":
        assert display_id
        self.shown.append(html)
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)


def test_bars_of_a_notebook(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    below = FakeDisplay()
    monkeypatch.setitem(sys.modules, "IPython.display", below)  # type: ignore[arg-type]
    with use_reporter(NotebookBars(clock)), open_step("methods", 4) as outer, open_step("<fold>", 100) as inner:
        clock.now = 0.9
        inner.advance(10)
        assert below.shown == []
        clock.now = 40
        inner.note = "loss 0.3"
        inner.advance(10)
        outer.advance()
    first, last = below.shown
    assert [text.split("</progress> ")[1] for text in first.split("</div>")[:-1]] == [
        "methods: 0%",
        "&lt;fold&gt;: 20%, about 5 min left, loss 0.3",
    ]
    assert 'value="0.200"' in first
    assert last == ""


def test_a_short_step_has_no_bar_in_a_notebook(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython.display", raising=False)
    with use_reporter(NotebookBars(clock)), open_step("quick", 2) as step:
        step.advance(2)


def test_notebooks_have_bars_and_scripts_have_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1)))  # type: ignore[arg-type]
    with open_step("a", 1) as step:
        assert isinstance(step.reporter, NotebookBars)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # type: ignore[arg-type]
    assert not progress.is_in_notebook()
    with open_step("a", 1) as step:
        assert isinstance(step.reporter, LogLines)


def test_evaluations_have_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report = make_evaluation_printer(20)
    state = TrainingState(update=10, history=[{"update": 10, "train_loss": 0.5, "validation_loss": 0.25}])
    report(state, None)  # type: ignore[arg-type]  # the loss is not read
    state.update = 11
    report(state, None)  # type: ignore[arg-type]
    assert capsys.readouterr().err == "update 10/20  train_loss 0.5  validation_loss 0.25\n"


def test_times_are_readable() -> None:
    found = {seconds: format_duration(seconds) for seconds in (0.2, 89.4, 90, 3600, 5399, 5400, 86400)}
    assert found == {
        0.2: "0 s",
        89.4: "89 s",
        90: "2 min",
        3600: "60 min",
        5399: "1.5 h",
        5400: "1.5 h",
        86400: "24.0 h",
    }
