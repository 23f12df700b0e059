"""The log tree, read back with TensorBoard's own reader."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightzero_lite.runtime.logging import NullLog, RunLog

Points = dict[str, list[tuple[int, float]]]


def read(folder: Path) -> Points:
    """Return every point of every tag, over all events files in order, nothing thrown out."""
    reader = EventAccumulator(
        str(folder / "log" / "serial"), size_guidance={"scalars": 0}, purge_orphaned_data=False
    )
    reader.Reload()
    return {
        tag: [(point.step, point.value) for point in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def write_run(folder: Path, first: int, last: int) -> None:
    """Log as a run does that collects 10 env steps an iteration, from `first` to before `last`."""
    log = RunLog(folder, train_iter=first, envstep=10 * first)
    for i in range(first, last):
        log.scalars("learner", {"loss": 100.0 + i}, train_iter=i + 1, envstep=10 * (i + 1))
        if i % 2:
            log.scalars("evaluator", {"score": -i}, train_iter=i + 1, envstep=10 * (i + 1))
    log.close()


def test_the_tree_is_exactly_that_of_the_seed(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.scalars("collector", {"reward_mean": 1.0}, train_iter=0, envstep=8)
    log.close()
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    (events,) = [name for name in names if name.startswith("log/serial/events.out.tfevents.")]
    assert names - {events} == {
        "log/buffer/buffer_logger.txt",
        "log/collector/collector_logger.txt",
        "log/evaluator/evaluator_logger.txt",
        "log/learner/learner_logger.txt",
    }


def test_null_log_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = NullLog()
    log.line("learner", "text")
    log.table("collector", {"a": 1})
    log.grid("learner", {"a": 1.0})
    log.scalars("learner", {"a": 1.0}, train_iter=1, envstep=1)
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_every_number_has_a_point_over_each_counter(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    fields = {"reward_mean": 1.5, "count": 3, "ckpt_name": "iteration_1.pth.tar", "each": [1.0]}
    log.scalars("evaluator", fields, train_iter=7, envstep=640)
    log.scalars("buffer", {"current_have": 99}, train_iter=0, envstep=0)
    log.close()
    assert read(tmp_path) == {
        "evaluator_iter/reward_mean": [(7, 1.5)],
        "evaluator_iter/count": [(7, 3.0)],
        "evaluator_step/reward_mean": [(640, 1.5)],
        "evaluator_step/count": [(640, 3.0)],
        "buffer_iter/current_have": [(0, 99.0)],
        "buffer_step/current_have": [(0, 99.0)],
    }


def test_a_counter_that_stands_still_gets_one_point(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for phase in range(4):  # two collect phases an update
        log.scalars("collector", {"n": phase}, train_iter=phase // 2, envstep=8 * phase)
    log.close()
    assert read(tmp_path) == {
        "collector_iter/n": [(0, 0.0), (1, 2.0)],
        "collector_step/n": [(0, 0.0), (8, 1.0), (16, 2.0), (24, 3.0)],
    }


def test_reopening_at_a_checkpoint_takes_out_the_later_points_and_no_other(tmp_path: Path) -> None:
    write_run(tmp_path, 0, 10)
    before = read(tmp_path)
    assert before["learner_iter/loss"] == [(i + 1, 100.0 + i) for i in range(10)]
    RunLog(tmp_path, train_iter=6, envstep=60).close()
    for tag, points in read(tmp_path).items():
        last = 6 if "_iter/" in tag else 60
        assert points == [(step, value) for step, value in before[tag] if step <= last], tag
        assert points[-1][0] == last
    assert read(tmp_path).keys() == before.keys()


def test_tags_never_step_back_over_two_resumes(tmp_path: Path) -> None:
    write_run(tmp_path, 0, 10)
    write_run(tmp_path, 4, 8)  # resumed from an early checkpoint, which throws away 5 to 10
    write_run(tmp_path, 7, 12)
    files = sorted((tmp_path / "log" / "serial").iterdir())
    assert len(files) == 3
    assert all(path.name.startswith("events.out.tfevents.") for path in files)
    points = read(tmp_path)
    assert points["learner_iter/loss"] == [(i + 1, 100.0 + i) for i in range(12)]
    assert points["learner_step/loss"] == [(10 * (i + 1), 100.0 + i) for i in range(12)]
    assert points["evaluator_iter/score"] == [(i + 1, float(-i)) for i in range(1, 12, 2)]


def test_reopening_where_the_run_ended_changes_no_byte(tmp_path: Path) -> None:
    write_run(tmp_path, 0, 5)
    (path,) = (tmp_path / "log" / "serial").iterdir()
    before = path.read_bytes()
    RunLog(tmp_path, train_iter=5, envstep=50).close()
    assert path.read_bytes() == before


def test_an_events_file_that_was_cut_off_by_a_kill_can_be_continued(tmp_path: Path) -> None:
    write_run(tmp_path, 0, 10)
    (path,) = (tmp_path / "log" / "serial").iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    write_run(tmp_path, 6, 8)
    assert read(tmp_path)["learner_iter/loss"] == [(i + 1, 100.0 + i) for i in range(8)]


def test_text_files_are_appended_to(tmp_path: Path) -> None:
    for text in ("first run", "second run"):
        log = RunLog(tmp_path)
        log.line("learner", text)
        log.close()
    text = (tmp_path / "log" / "learner" / "learner_logger.txt").read_text()
    assert text.index("first run") < text.index("second run")
    assert (tmp_path / "log" / "buffer" / "buffer_logger.txt").read_text() == ""


def test_a_table_holds_each_field_under_its_name_with_all_digits(tmp_path: Path) -> None:
    fields = {"reward_mean": 1 / 3, "each_reward": [1.0, 2.5], "ckpt_name": "iteration_3.pth.tar"}
    log = RunLog(tmp_path)
    log.table("evaluator", fields)
    log.close()
    text = (tmp_path / "log" / "evaluator" / "evaluator_logger.txt").read_text()
    rows = [line.strip("|\n").split("|") for line in text.splitlines() if line.startswith("| ")]
    read_back = {row[0].strip(): row[1].strip() for row in rows}
    assert read_back.pop("Name") == "Value"
    assert read_back == {name: str(value) for name, value in fields.items()}
    assert float(read_back["reward_mean"]) == 1 / 3


def test_the_learners_grid_is_the_seeds(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.grid("learner", {"cur_lr_avg": 0.001, "total_loss_avg": math.pi})
    log.close()
    lines = (tmp_path / "log" / "learner" / "learner_logger.txt").read_text().splitlines()
    assert lines[0].endswith("[INFO]: Grid table:")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    assert cells[0] == ["Name", "cur_lr_avg", "total_loss_avg"]
    assert set("".join(cells[1])) == {"-"}
    assert cells[2] == ["Value", "0.001000", "3.141593"]


def test_nothing_of_the_log_reaches_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = RunLog(tmp_path)
    log.line("learner", "text")
    log.close()
    assert capfd.readouterr() == ("", "")
