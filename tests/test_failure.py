"""What goes wrong in a run: it ends soon, says why, and leaves its checkpoints as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.launch import COUNTER, ROOT, TINY, TRAIN, Outcome, fork, launch, train

pytestmark = pytest.mark.distributed

LIMIT = 30.0  # seconds to the end of the job
RUN = (f"env.env_id={COUNTER}", "exp_name=run")


def assert_failed(outcome: Outcome, message: str) -> None:
    assert outcome.returncode != 0
    assert message in outcome.output
    assert outcome.seconds < LIMIT + 15  # the start takes its time where the machine is shared


def assert_checkpoints_are_good(folder: Path) -> None:
    paths = list((folder / "run" / "ckpt").iterdir())
    assert paths
    for path in paths:
        assert (
            torch.load(path)["last_iter" if "replay" not in path.name else "replay_buffers"] != []
        )
        assert not path.name.endswith(".tmp")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.env_id=tests.fake_envs:FailingEvaluation-v0", "the counter was told to fail"),
        ("env.env_id=tests.fake_envs:FailingReset-v0", "the counter was told to fail to reset"),
        ("policy.learning_rate=1e30", "is not finite at train_iter"),
    ],
)
def test_a_rank_that_raises_ends_the_job(tmp_path: Path, override: str, message: str) -> None:
    more = (override, "policy.grad_clip_value=1e30", "max_env_step=1e6")
    outcome = train(tmp_path, *RUN, *more, num_ranks=2)
    assert_failed(outcome, message)
    if "Evaluation" not in override:  # which fails before the first checkpoint
        assert_checkpoints_are_good(tmp_path)


def test_a_full_disk_ends_the_job_and_spares_the_checkpoints(tmp_path: Path) -> None:
    options = ("checkpoint.replay_buffer=true", "checkpoint.save_freq=1", "max_env_step=1e6")
    # The buffers grow fast.
    options += ("policy.n_episode=128", "policy.num_simulations=1", "policy.update_per_collect=2")
    # The buffers' file grows past what a file may have; that of a checkpoint does not.
    command = [TRAIN, *TINY, *RUN, *options]
    outcome = fork(command, tmp_path, num_ranks=2, largest_file=140_000).finish()
    assert outcome.returncode != 0
    assert "OSError: run/ckpt/replay_buffer_" in outcome.output
    assert "cannot be written; the files before it are as they were" in outcome.output
    assert_checkpoints_are_good(tmp_path)


def test_stale_variables_of_another_job_are_not_believed(tmp_path: Path) -> None:
    stale = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    stale |= {"MASTER_ADDR": "10.255.255.1", "MASTER_PORT": "1"}
    command = [TRAIN, *TINY, *RUN, "max_env_step=150"]
    outcome = launch(command, tmp_path, variables=stale, timeout=60)
    assert outcome.returncode == 0, outcome.output
    assert torch.load(tmp_path / "run/ckpt/iteration_0.pth.tar")["num_ranks"] == 1


def test_a_late_rank_that_gives_signs_of_life_outlasts_the_groups_timeout(tmp_path: Path) -> None:
    worker = ROOT / "tests" / "late_worker.py"
    outcome = fork([worker, "late"], tmp_path, num_ranks=2).finish()
    assert outcome.returncode == 0, outcome.output
    assert outcome.output.count("gathered [0, 1]") == 2
    outcome = fork([worker, "plain"], tmp_path, num_ranks=2).finish()
    assert outcome.returncode != 0
    assert "gathered" not in outcome.output
