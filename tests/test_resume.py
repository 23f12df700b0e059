"""Resuming: exactly, by itself, on a way that was given up, and without what was not stored."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lightzero_lite.runtime.checkpoint import load_checkpoint, load_replay_buffer, newest_checkpoint
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.train import build_trainer
from lightzero_lite.trainer import Trainer
from tests.launch import COUNTER, TINY, TRAIN, launch, train_well

KILLED = COUNTER.replace("Counter", "KilledCounter")
# Priorities, running statistics, a falling temperature: everything that a resume could get wrong.
EXACT = (
    "checkpoint.replay_buffer=true",
    "checkpoint.save_freq=10",
    "policy.use_priority=true",
    "policy.model.norm_type=BN",
    "env.normalize_observation=true",
    "policy.initial_temperature=1",
    "policy.replay_buffer_size=400",  # episodes are evicted
    "policy.model.value_support_scale=1",  # the warning of clipped targets comes once
    "max_env_step=1000",
)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(name: str, *overrides: str) -> Trainer:
    """Train tiny networks to the end in a run folder."""
    command = [*TINY, f"env.env_id={COUNTER}", f"exp_name={name}", *overrides]
    trainer = build_trainer(command, Ranks())
    trainer.run()
    return trainer


def iterations(name: str) -> list[Path]:
    """Return the iteration checkpoints, oldest first."""
    paths = Path(name, "ckpt").glob("iteration_*")
    return sorted(paths, key=lambda path: int(path.name.split("_")[1].split(".")[0]))


def log_of(name: str, channel: str) -> str:
    """Return a text log without timestamps."""
    text = Path(name, "log", channel, f"{channel}_logger.txt").read_text()
    return re.sub(r"(?m)^\[[-0-9: ,.]+\]", "", text)


def is_equal(left: Any, right: Any) -> bool:
    """Compare nested dictionaries of tensors and plain values bit for bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_equal(left[k], right[k]) for k in left)
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else bool(left == right)


def assert_same_run(left: str, right: str) -> None:
    """Compare learner logs, weights, optimizer, counters and replay buffers of two runs."""
    assert log_of(left, "learner") == log_of(right, "learner")
    paths = [iterations(name)[-1] for name in (left, right)]
    assert paths[0].name == paths[1].name
    states = [torch.load(path) for path in paths]
    for state in states:
        del state["counters"]["collect_seconds"]
    for key in ("model", "target_model", "optimizer", "last_iter", "last_step", "counters"):
        assert is_equal(states[0][key], states[1][key]), key
    buffers = [
        torch.load(p.with_name(s["replay_buffer"])) for p, s in zip(paths, states, strict=True)
    ]
    for ours, theirs in zip(*(b["replay_buffers"] for b in buffers), strict=True):
        assert is_equal(ours, theirs)


def test_a_run_resumed_from_any_checkpoint_is_the_undisturbed_one() -> None:
    run("whole", *EXACT)
    run("first", *EXACT, "max_env_step=600")
    shutil.rmtree("first/log/serial")
    for path in iterations("first")[1:-1]:
        path.unlink()
    # What it evaluated and saved at its own end is not part of the longer run.
    assert len(list(Path("first/ckpt").glob("replay_buffer_*"))) == 1
    run("first", *EXACT, f"resume={iterations('first')[-1]}")
    assert log_of("whole", "learner").count("warning: ") == 1
    assert_same_run("whole", "first")
    assert log_of("whole", "collector").count("collector end") == log_of(
        "first", "collector"
    ).count("collector end")


@pytest.mark.distributed
def test_torchrun_restarts_a_killed_rank_into_the_same_run(tmp_path: Path) -> None:
    train_well(tmp_path, f"env.env_id={COUNTER}", "exp_name=whole", *EXACT, num_ranks=2)
    command = [TRAIN, *TINY, f"env.env_id={KILLED}", "exp_name=killed", *EXACT, "resume=auto"]
    outcome = launch(command, tmp_path, num_ranks=2, options=["--max-restarts=1"])
    assert outcome.returncode == 0, outcome.output
    assert "resume=auto: killed/ckpt/iteration_" in outcome.output
    assert_same_run("whole", "killed")
    totals = re.findall(r"total_envstep_count +\| (\d+)", log_of("killed", "collector"))
    assert totals == re.findall(r"total_envstep_count +\| (\d+)", log_of("whole", "collector"))
    assert len(iterations("killed")) == len(iterations("whole"))


def test_the_newest_good_checkpoint_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    assert newest_checkpoint(Path("run"), say=said.append) is None
    run("run", "max_env_step=700", "checkpoint.save_freq=5")
    paths = iterations("run")
    assert len(paths) > 3
    best = Path("run/ckpt/ckpt_best.pth.tar")
    assert newest_checkpoint(Path("run"), say=said.append) == paths[-1]
    content = paths[-1].read_bytes()
    paths[-1].write_bytes(content[: len(content) // 2])
    damaged = bytearray(paths[-2].read_bytes())
    middle = slice(len(damaged) // 2, len(damaged) // 2 + 2000)  # more than headers
    damaged[middle] = bytes(byte ^ 1 for byte in damaged[middle])
    paths[-2].write_bytes(damaged)
    assert said == []
    assert newest_checkpoint(Path("run"), say=said.append) == paths[-3]
    assert [line.partition(" (")[0] for line in said] == [
        f"resume=auto: passing over {path}: not a readable checkpoint" for path in paths[:-3:-1]
    ]
    state = load_checkpoint(best)
    torch.save(state | {"saved_at": time.time() + 60}, best)
    assert newest_checkpoint(Path("run"), say=said.append) == best
    assert newest_checkpoint(Path("run"), say=said.append, is_exact=True) == paths[-3]


def test_auto_goes_on_with_a_run_that_was_set_back_and_not_with_what_it_gave_up() -> None:
    """Resume from an older checkpoint by its name: the later ones are of no use from then on."""
    run("run", *EXACT, "max_env_step=600")
    middle, last = iterations("run")[-2:]
    run("run", *EXACT, f"resume={middle}", "max_env_step=1")  # ended before it came any further
    assert torch.load(middle)["saved_at"] > torch.load(last)["saved_at"]
    assert newest_checkpoint(Path("run"), say=print) == middle
    # Copying gives all files new dates, in any order.
    for path in (middle, last):
        Path(shutil.copyfile(path, f"{path}.copy")).replace(path)
    assert newest_checkpoint(Path("run"), say=print) == middle
    totals = re.findall(r"total_envstep_count +\| (\d+)", log_of("run", "collector"))
    assert int(totals[-1]) == torch.load(middle)["last_step"]
    # Clocks that run behind change nothing: a run's checkpoints are newer than what it resumed.
    torch.save(torch.load(middle) | {"saved_at": time.time() + 1000}, middle)
    resumed = run("run", *EXACT, "resume=auto", "max_env_step=500")
    assert newest_checkpoint(Path("run"), say=print) == Path(
        f"run/ckpt/iteration_{resumed.train_iter}.pth.tar"
    )


def test_auto_starts_afresh_where_there_is_nothing_to_continue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("fresh", "resume=auto", "max_env_step=300")
    assert "resume=auto: fresh has no good checkpoint: a fresh start" in capsys.readouterr().err
    assert torch.load(iterations("fresh")[-1])["config"]["resume"] is None
    lines = log_of("fresh", "collector")
    # A run that was killed before its first checkpoint has logs, which the next start replaces.
    shutil.rmtree("fresh/ckpt")
    run("fresh", "resume=auto", "max_env_step=300")
    numbers = r"(count|reward_\w+) +\| (\S+)"
    again = log_of("fresh", "collector")
    assert re.findall(numbers, again) == re.findall(numbers, lines)
    run("fresh", "resume=auto", "max_env_step=600")
    totals = re.findall(r"total_envstep_count +\| (\d+)", log_of("fresh", "collector"))
    assert totals == sorted(set(totals), key=int)
    assert int(totals[-1]) >= 600


def test_a_buffer_that_is_not_stored_fills_again_before_the_first_update(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("run", "max_env_step=700")
    capsys.readouterr()
    resumed = run("run", "resume=auto", "max_env_step=1000")
    text = "no readable replay buffer is stored for 1 ranks: it fills again with the restored"
    assert capsys.readouterr().out.count(text) == 1
    assert resumed.buffer.num_transitions == resumed.buffer.num_pushed_transitions < 700
    for damage in ("cut", "other ranks"):
        shutil.rmtree("run")
        run("run", "max_env_step=300", "checkpoint.replay_buffer=true")
        (path,) = Path("run/ckpt").glob("replay_buffer_*")
        states = torch.load(path)["replay_buffers"]
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:-100])
        else:
            torch.save({"replay_buffers": states * 2}, path)
            assert load_replay_buffer(path, 1, 2) is not None
        capsys.readouterr()
        run("run", "resume=auto", "max_env_step=600")
        assert capsys.readouterr().out.count(text) == 1
