"""scripts/evaluate.py on checkpoints of ours and of LightZero's."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightzero_lite.loading import load_subject
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.train import build_trainer
from tests.launch import ROOT, TINY

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "evaluate.py"))
GOLDEN = ROOT / "tests" / "golden"
Evaluate = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train tiny networks for a few updates on CartPole."""
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    build_trainer(
        [*TINY, "env=cartpole", "env.stop_value=null", f"exp_name={folder}", "max_env_step=400"],
        Ranks(),
    ).run()
    return folder


@pytest.fixture
def evaluate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """Return a function that runs the script and reads its last line."""

    def run(*arguments: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *arguments])
        SCRIPT["main"]()
        *table, line = capsys.readouterr().out.splitlines()
        assert any(row.startswith("| reward_mean ") for row in table)
        assert max(map(len, table)) < 60  # however many episodes
        answer: dict[str, Any] = json.loads(line)
        return answer

    return run


def last_checkpoint(run_folder: Path) -> Path:
    return max((run_folder / "ckpt").glob("iteration_*"), key=lambda p: torch.load(p)["last_iter"])


def test_it_repeats_the_evaluation_that_training_ended_with(
    run_folder: Path, evaluate: Evaluate
) -> None:
    path = last_checkpoint(run_folder)
    state = torch.load(path)
    answer = evaluate(f"ckpt={path}")
    assert answer["reward_mean"] == state["counters"]["last_return"]
    assert (answer["train_iter"], answer["envstep"]) == (state["last_iter"], state["last_step"])
    log = (run_folder / "log/evaluator/evaluator_logger.txt").read_text()
    assert f"| {answer['each_reward']}" in log.rpartition("evaluator end:")[2]
    # CartPole pays 1 a step.
    assert answer["envstep_count"] == sum(answer["each_reward"])


def test_equal_seeds_give_equal_lines_and_overrides_go_on_top(
    run_folder: Path, evaluate: Evaluate
) -> None:
    path = f"ckpt={last_checkpoint(run_folder)}"
    first = evaluate(path, "seed=3", "env.n_evaluator_episode=12")
    assert evaluate("env.n_evaluator_episode=12", path, "seed=3") == first
    assert evaluate(path, "seed=4", "env.n_evaluator_episode=12") != first
    assert (first["seed"], len(first["each_reward"])) == (3, 12)
    assert evaluate(path, "env.max_episode_steps=5")["each_reward"] == [5.0] * 4


@pytest.mark.parametrize("name", ["residual", "plain"])
def test_lightzeros_checkpoints_play_cartpole(name: str, evaluate: Evaluate) -> None:
    arguments = [f"ckpt={GOLDEN / f'lightzero_{name}.pth.tar'}", "env.n_evaluator_episode=3"]
    answer = evaluate(*arguments, "seed=1")
    assert (answer["train_iter"], answer["envstep"]) == (1234, 5678)
    assert len(answer["each_reward"]) == 3
    assert all(8 <= one <= 500 for one in answer["each_reward"])
    assert evaluate(*arguments, "seed=1") == answer


@pytest.mark.parametrize("name", ["residual", "plain"])
def test_lightzeros_weights_arrive_in_the_search(name: str) -> None:
    subject = load_subject([f"ckpt={GOLDEN / f'lightzero_{name}.pth.tar'}"], Ranks())
    expected = np.load(GOLDEN / f"lightzero_{name}_io.npz")
    root = subject.predictor.initial(expected["obs"])
    np.testing.assert_allclose(root.prior_logits, expected["policy_logits_0"], atol=1e-4)
    np.testing.assert_allclose(root.value, expected["value_scalar_0"][:, 0], rtol=2e-4)


PLAIN = f"ckpt={GOLDEN / 'lightzero_plain.pth.tar'}"
REFUSALS = [
    ([], "name one checkpoint: ckpt=run_folder/ckpt/ckpt_best.pth.tar"),
    (["ckpt="], "name one checkpoint: ckpt=run_folder/ckpt/ckpt_best.pth.tar"),
    (["ckpt=none"], "ckpt=none: there is no such file"),
    ([PLAIN, "sed=1"], "unknown key sed: did you mean seed?"),
    (
        [PLAIN, "env=acrobot"],
        f"{PLAIN}: the checkpoint is of another network: dynamics_network.fc_dynamics.0.weight is "
        "24x26 against 24x27 here: give the env and policy.model options that it was trained with",
    ),
]


@pytest.mark.parametrize(("arguments", "line"), REFUSALS)
def test_a_mistake_is_one_line(
    arguments: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *arguments])
    with pytest.raises(SystemExit) as end:
        SCRIPT["main"]()
    assert end.value.code == 2
    assert capsys.readouterr().err == f"error: {line}\n"


def test_a_group_cannot_replace_what_a_checkpoint_stores(run_folder: Path) -> None:
    path = f"ckpt={last_checkpoint(run_folder)}"
    with pytest.raises(ValueError, match="env is a section: set its keys"):
        load_subject([path, "env=acrobot"], Ranks())
