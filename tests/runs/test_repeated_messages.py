"""Messages that several runs log are written once."""

from __future__ import annotations

import logging

import pytest

from deeprc.runs.repeated_messages import count_runs_of_messages, log_once


def test_a_message_of_several_runs_is_written_once_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    branches, motifs, other = (logging.getLogger(name) for name in ("branches", "motifs", "other"))
    with caplog.at_level("INFO"):
        with count_runs_of_messages(3, "branches", "motifs"):
            for run in range(3):
                branches.info("used: %s", "none")
                motifs.warning("run %d", run // 2)
                other.info("%d has ended", run)
        branches.info("used: none")
    ended = ["0 has ended", "1 has ended", "2 has ended"]
    counted = ["3 of 3 runs: used: none", "2 of 3 runs: run 0", "1 of 3 runs: run 1"]
    assert caplog.messages == [*ended, *counted, "used: none"]
    assert [record.levelname for record in caplog.records[3:6]] == ["INFO", "WARNING", "WARNING"]


def test_messages_are_written_if_the_runs_are_interrupted(caplog: pytest.LogCaptureFixture) -> None:
    def interrupt() -> None:
        with count_runs_of_messages(3, "branches"):
            logging.getLogger("branches").info("used: 100%")
            raise KeyboardInterrupt

    with caplog.at_level("INFO"), pytest.raises(KeyboardInterrupt):
        interrupt()
    assert caplog.messages == ["1 of 3 runs: used: 100%"]


def test_a_single_run_writes_its_messages_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), count_runs_of_messages(1, "branches"):
        logging.getLogger("branches").info("used: none")
        assert caplog.messages == ["used: none"]


def test_equal_messages_are_written_once(caplog: pytest.LogCaptureFixture) -> None:
    with log_once("cohort"):
        for _ in range(3):
            logging.getLogger("cohort").warning("few %s", "donors")
    logging.getLogger("cohort").warning("few donors")
    assert caplog.messages == ["few donors", "few donors"]
