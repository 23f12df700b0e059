"""The serial pipeline in this process: when it updates, evaluates, saves, stops and refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.train import build_trainer, main
from lightzero_lite.trainer import Trainer
from tests.launch import TINY

FIXED = "env.env_id=tests.fake_envs:FixedCounter-v0"  # 7 steps an episode, 28 points
ONE_PHASE = 8 * 7  # env steps of a collect phase


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*overrides: str) -> Trainer:
    """Train tiny networks to the end in the folder `run`."""
    trainer = build_trainer([*TINY, FIXED, "exp_name=run", *overrides], Ranks())
    trainer.run()
    return trainer


def log_of(channel: str) -> str:
    return Path(f"run/log/{channel}/{channel}_logger.txt").read_text()


def logged(channel: str, field: str) -> list[float]:
    """Return a field of every table of a channel, in order."""
    return [float(value) for value in re.findall(rf"\| {field} +\| (\S+)", log_of(channel))]


def saved() -> list[str]:
    return sorted(path.name for path in Path("run/ckpt").iterdir())


def test_update_per_collect_is_the_number_of_updates_of_each_phase() -> None:
    trainer = run("policy.update_per_collect=3", f"max_env_step={4 * ONE_PHASE}")
    assert trainer.counters.collect_phases == 4
    assert trainer.counters.envstep == 4 * ONE_PHASE
    assert trainer.train_iter == 12
    assert trainer.counters.sampled == 12 * 32
    assert logged("buffer", "sampled_out") == [0, 3 * 32, 6 * 32, 9 * 32]
    assert logged("buffer", "current_have") == [ONE_PHASE * i for i in (1, 2, 3, 4)]
    assert logged("buffer", "episode_count") == [8, 16, 24, 32]


def test_replay_ratio_is_the_number_of_updates_an_env_step() -> None:
    # 56 env steps a phase: int(0.1 * 56) = 5 updates.
    trainer = run("policy.replay_ratio=0.1", f"max_env_step={3 * ONE_PHASE}")
    assert trainer.train_iter == 15


def test_short_first_episodes_are_worth_the_least_number_of_updates() -> None:
    options = ("policy.replay_ratio=1e-4", "policy.min_update_per_collect=5")
    assert run(*options, f"max_env_step={3 * ONE_PHASE}").train_iter == 15


def test_a_small_replay_ratio_still_updates_once_a_phase() -> None:
    assert run("policy.replay_ratio=1e-4", f"max_env_step={3 * ONE_PHASE}").train_iter == 3


def test_no_update_before_there_is_enough_data() -> None:
    start = f"policy.train_start_after_envsteps={2 * ONE_PHASE + 1}"
    trainer = run("policy.update_per_collect=2", start, f"max_env_step={4 * ONE_PHASE}")
    assert trainer.train_iter == 4
    assert logged("buffer", "sampled_out") == [0, 0, 0, 2 * 32]


def test_enough_data_is_what_was_collected_and_not_what_a_full_buffer_holds() -> None:
    # Ranks whose buffers are full hold less together than one: the start must not depend on it.
    start = f"policy.train_start_after_envsteps={2 * ONE_PHASE}"
    full = f"policy.replay_buffer_size={ONE_PHASE}"
    trainer = run("policy.update_per_collect=2", start, full, f"max_env_step={3 * ONE_PHASE}")
    assert logged("buffer", "current_have") == [ONE_PHASE] * 3
    assert trainer.train_iter == 4


def test_random_episodes_come_first_and_count() -> None:
    trainer = run("policy.random_collect_episode_num=20", f"max_env_step={20 * 7 + ONE_PHASE}")
    assert logged("collector", "episode_count") == [20, 8]
    assert logged("collector", "total_envstep_count") == [140, 196]
    assert trainer.counters.episodes == 28


def test_max_train_iter_ends_the_run_on_the_iteration() -> None:
    trainer = run("policy.update_per_collect=5", "max_train_iter=13")
    assert trainer.train_iter == 13
    assert trainer.counters.envstep == 3 * ONE_PHASE


def test_stop_value_ends_the_run_at_the_evaluation_that_reaches_it() -> None:
    trainer = run("env.stop_value=28", "max_env_step=100_000")  # 1 + 2 + ... + 7
    assert trainer.counters.last_return == 28
    assert trainer.counters.envstep == 0
    assert saved() == ["ckpt_best.pth.tar", "iteration_0.pth.tar"]


def test_a_stop_value_that_is_not_reached_does_not_end_the_run() -> None:
    assert run("env.stop_value=28.1", "max_env_step=100").counters.envstep == 2 * ONE_PHASE


def test_evaluations_and_checkpoints_come_when_due_and_at_the_end() -> None:
    run(
        "policy.update_per_collect=4",
        "policy.eval_freq=6",
        "checkpoint.save_freq=10",
        f"max_env_step={6 * ONE_PHASE}",
    )
    # Iterations are seen at 0, 4, 8, ..., 24; multiples of 6 are passed at 8, 12, 20 and 24.
    assert logged("evaluator", "train_iter") == [0, 8, 12, 20, 24]
    iterations = [0, 12, 20, 24]
    names = [f"iteration_{i}.pth.tar" for i in iterations]
    assert saved() == sorted(["ckpt_best.pth.tar", *names])
    for i, name in zip(iterations, names, strict=True):
        assert torch.load(f"run/ckpt/{name}")["last_iter"] == i


def test_the_learner_log_starts_with_the_network_and_goes_on_with_tables() -> None:
    trainer = run("log.learner_freq=2", "policy.update_per_collect=1", "max_env_step=400")
    text = log_of("learner")
    assert text.index("Policy neural network architecture:") < text.index("MuZeroModelMLP(")
    assert str(trainer.learner.model) in text
    names = re.findall(r"\| Name .*", text)
    columns = [cell.strip() for cell in names[0].strip("|").split("|")]
    assert columns[:3] == ["Name", "cur_lr_avg", "total_loss_avg"]
    assert {f"{part}_loss_avg" for part in ("value", "reward", "policy", "consistency")} <= set(
        columns
    )
    # 8 phases, one update each: iteration 1 (the first), 2, 4, 6 and 8.
    assert len(names) == 5


def test_one_line_for_each_evaluated_episode() -> None:
    run("max_env_step=1")
    lines = re.findall(r"\[EVALUATOR\].*", log_of("evaluator"))
    assert lines[:4] == [
        f"[EVALUATOR]env {i} completes an episode, final reward: 28.0, current episode: {i + 1}"
        for i in range(4)
    ]


def test_a_target_outside_the_support_is_warned_of_once() -> None:
    run("policy.model.value_support_scale=2", "max_env_step=200", "policy.update_per_collect=2")
    warnings = re.findall(r"warning: .*", log_of("learner"))
    assert len(warnings) == 1
    assert "lie outside the support: set policy.model.value_support_scale" in warnings[0]


def test_a_loss_that_is_not_finite_stops_the_run_and_is_named() -> None:
    with pytest.raises(FloatingPointError, match=r"is not finite at train_iter \d+"):
        run("policy.learning_rate=1e30", "policy.grad_clip_value=1e30", "max_env_step=1000")


@pytest.mark.parametrize(
    "override",
    [
        "policy.use_priority=true",
        "policy.value_bootstrap=search",
        "policy.model.norm_type=BN",
        "policy.model.norm_type=none",
        "policy.model.res_connection_in_dynamics=false",
        "policy.ssl_loss_weight=0",
        "policy.optim_type=SGD",
        "policy.initial_temperature=1",
        "policy.eps=0.25",
        "policy=gumbel_muzero",
    ],
)
def test_every_option_trains(override: str) -> None:
    trainer = run(override, "policy.update_per_collect=2", "max_env_step=60")
    assert trainer.train_iter == 4
    weights = torch.cat([p.flatten() for p in trainer.learner.model.parameters()])
    assert bool(weights.isfinite().all())


def refusal(*overrides: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Start the program with a bad command line; return its one line."""
    before = sorted(Path().rglob("*"))
    argv, sys.argv = sys.argv, ["train.py", *TINY, FIXED, *overrides]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = argv
    assert ended.value.code == 2
    output, errors = capsys.readouterr()
    assert output == ""
    (line,) = errors.splitlines()
    assert sorted(Path().rglob("*")) == before, "something was written"
    return line


BAD: dict[str, Any] = {
    "polcy.seed=1": "error: unknown key polcy.seed: did you mean seed?",
    "policy.batch_size=0": "error: policy.batch_size=0 is too small: it must be at least 1",
    "resume=none.pth.tar": "error: resume=none.pth.tar: there is no such file",
    "env.env_id=Pendulum-v1": (
        "error: env.env_id=Pendulum-v1: the action space is Box(-2.0, 2.0, (1,), float32), "
        "but must be Discrete"
    ),
    "env=pong": (
        "error: env=pong is none of acrobot, cartpole, connect_four, frozenlake, gymnasium, "
        "lunarlander, minigrid, mountaincar, tictactoe"
    ),
}


@pytest.mark.parametrize("override", BAD)
def test_a_bad_command_line_is_refused(override: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(override, capsys=capsys) == BAD[override]


def test_bad_checkpoints_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.pth.tar").touch()
    assert refusal("resume=empty.pth.tar", capsys=capsys) == (
        "error: resume=empty.pth.tar: not a readable checkpoint (0 bytes): "
        "name another file of ckpt/"
    )
    run("max_env_step=1")
    capsys.readouterr()
    best = "run/ckpt/ckpt_best.pth.tar"
    line = refusal(f"resume={best}", "policy.model.latent_state_dim=16", capsys=capsys)
    assert line == (
        f"error: resume={best}: the checkpoint is of another network: "
        "dynamics_network.fc_dynamics_1.0.bias is 8 against 16 here: "
        "give the env and policy.model options that it was trained with"
    )
    line = refusal(f"resume={best}", "env.env_id=CartPole-v1", capsys=capsys)
    assert "is of another network: " in line


def test_a_folder_that_holds_a_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    run("max_env_step=1")
    capsys.readouterr()
    expected = (
        "error: exp_name=run already holds a run: choose another exp_name, "
        "or continue it with resume=run/ckpt/ckpt_best.pth.tar"
    )
    assert refusal("exp_name=run", capsys=capsys) == expected
    # Nor may a run of another folder be continued in this one.
    Path("other").mkdir()
    Path("run/ckpt/ckpt_best.pth.tar").rename("other/best.pth.tar")
    assert refusal("exp_name=run", "resume=other/best.pth.tar", capsys=capsys) == expected
    Path("file").touch()
    assert refusal("exp_name=file/run", capsys=capsys) == (
        "error: exp_name=file/run: file is a file: choose another name"
    )


def test_a_run_resumed_in_another_folder_gets_the_whole_tree_there() -> None:
    run("policy.update_per_collect=5", "max_env_step=100")
    overrides = [*TINY, FIXED, "exp_name=second", "resume=run/ckpt/iteration_10.pth.tar"]
    second = build_trainer([*overrides, "max_env_step=200"], Ranks())
    second.run()
    assert second.counters.envstep == 4 * ONE_PHASE
    names = {path.name for path in Path("second/ckpt").iterdir()}
    assert {"ckpt_best.pth.tar", "iteration_10.pth.tar"} < names
    best = torch.load("second/ckpt/ckpt_best.pth.tar")
    assert best["counters"]["best_score"] == 28
    assert best["last_iter"] == 10


def test_a_resumed_run_is_named_by_its_checkpoint() -> None:
    run("max_env_step=50")
    resumed = build_trainer([*TINY, FIXED, "resume=run/ckpt/ckpt_best.pth.tar"], Ranks())
    assert resumed.files.folder == Path("run")


def test_building_writes_nothing() -> None:
    build_trainer([*TINY, FIXED], Ranks())
    assert list(Path().iterdir()) == []
