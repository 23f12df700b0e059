"""-m: which runs a sweep has, where they write, and what is refused before the first one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from lightzero_lite.config import load_config
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.sweep import expanded
from lightzero_lite.train import _runs, main
from lightzero_lite.types import UserError
from tests.launch import TINY


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def names(*arguments: str) -> list[str | None]:
    return [load_config(run).exp_name for run in expanded(arguments)]


def test_without_the_flag_the_command_line_is_one_run() -> None:
    assert expanded(["env=acrobot", "seed=1"]) == [["env=acrobot", "seed=1"]]


def test_every_combination_is_a_run_in_a_folder_of_its_own() -> None:
    assert names("-m", "seed=0,1,2") == [f"cartpole_muzero_seed{seed}" for seed in (0, 1, 2)]
    assert names("--multirun", "seed=range(0,2)", "policy.td_steps=5,10") == [
        "cartpole_muzero_seed0_td_steps_5",
        "cartpole_muzero_seed0_td_steps_10",
        "cartpole_muzero_seed1_td_steps_5",
        "cartpole_muzero_seed1_td_steps_10",
    ]
    assert names("env=cartpole,acrobot", "-m") == ["cartpole_muzero_seed0", "acrobot_muzero_seed0"]
    assert names("-m", "exp_name=a/b", "seed=0,1") == ["a/b_seed_0", "a/b_seed_1"]
    assert names("-m", "exp_name=a,b") == ["a", "b"]
    runs = expanded(["-m", "policy.learning_rate=1e-3,3e-3", "policy.eps=0.1"])
    configs = [load_config(run) for run in runs]
    assert [config.policy.learning_rate for config in configs] == [1e-3, 3e-3]
    assert [config.policy.eps for config in configs] == [0.1, 0.1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["seed=0,x"], "seed=x is not an integer"),
        (["sed=0,1"], "unknown key sed: did you mean seed?"),
        (["policy.eps=interval(0,1)"], "policy.eps=interval(0,1): give the values, for example "),
        (["seed=1,1"], "two runs of the sweep are the same: give each value once"),
        (["seed=0,1", "exp_name"], "Error parsing override 'exp_name'"),
    ],
)
def test_a_mistake_is_refused_in_one_line(arguments: list[str], line: str) -> None:
    with pytest.raises(UserError) as refused:
        expanded(["-m", *arguments])
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_a_folder_that_holds_a_run_is_refused_before_the_first_run() -> None:
    Path("cartpole_muzero_seed1/ckpt").mkdir(parents=True)
    with pytest.raises(UserError, match="exp_name=cartpole_muzero_seed1 already holds a run"):
        expanded(["-m", "seed=0,1"])


def test_several_processes_are_refused() -> None:
    with pytest.raises(UserError, match=r"start it with python train\.py"):
        _runs(["-m", "seed=0,1"], Ranks(num_ranks=2))


def test_runs_are_trained_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    env = "env.env_id=tests.fake_envs:FixedCounter-v0"
    arguments = [*TINY, env, "-m", "seed=3,4", "max_env_step=1", "exp_name=run"]
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    main()
    assert sorted(path.name for path in Path().iterdir()) == ["run_seed_3", "run_seed_4"]
    seeds = [torch.load(f"run_seed_{s}/ckpt/ckpt_best.pth.tar")["config"]["seed"] for s in (3, 4)]
    assert seeds == [3, 4]
