"""Whole runs in processes of their own: python alone, and ranks with gloo on one machine."""

from __future__ import annotations

import itertools
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.builders import make_learner, random_batch
from tests.distributed_worker import JOINED
from tests.launch import COUNTER, ROOT, TINY, TRAIN, fork, launch, train, train_well

pytestmark = pytest.mark.distributed

COUNTER_RUN = (f"env.env_id={COUNTER}", "exp_name=run")
LONGEST_PHASE = 8 * 20  # env steps: 8 episodes of at most 20


def iterations(run: Path) -> list[Path]:
    """Return the iteration checkpoints, oldest first."""
    return sorted((run / "ckpt").glob("iteration_*"), key=iteration_of)


def iteration_of(path: Path) -> int:
    return int(path.name.removeprefix("iteration_").removesuffix(".pth.tar"))


def newest(run: Path) -> Path:
    return iterations(run)[-1]


def state_of(path: Path) -> dict[str, Any]:
    return torch.load(path)


def log_of(run: Path, channel: str) -> str:
    """Return a text log without its timestamps."""
    text = (run / "log" / channel / f"{channel}_logger.txt").read_text()
    return re.sub(r"(?m)^\[[-0-9: ,.]+\]", "", text)


def assert_same_tensors(left: Any, right: Any, where: str = "") -> None:
    """Compare nested dictionaries and lists of tensors and plain values bit for bit."""
    assert type(left) is type(right), where
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same_tensors(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    else:
        assert left == right, where


def assert_same_learning(left: Path, right: Path) -> None:
    """Compare two runs' learner logs and final states."""
    assert log_of(left, "learner") == log_of(right, "learner")
    states = [state_of(newest(run)) for run in (left, right)]
    for key in ("model", "target_model", "optimizer", "last_iter", "last_step"):
        assert_same_tensors(states[0][key], states[1][key], key)
    assert states[0]["last_iter"] > 10


def assert_is_seeds_tree(folder: Path, name: str) -> None:
    """Check that the working directory holds the run folder of the seed and nothing else."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    fixed = {
        f"{name}/{file}"
        for file in (
            "ckpt/ckpt_best.pth.tar",
            "ckpt/iteration_0.pth.tar",
            "log/buffer/buffer_logger.txt",
            "log/collector/collector_logger.txt",
            "log/evaluator/evaluator_logger.txt",
            "log/learner/learner_logger.txt",
            "formatted_total_config.py",
            "total_config.py",
        )
    }
    assert fixed <= found
    others = found - fixed
    events = [
        file
        for file in others
        if re.fullmatch(rf"{name}/log/serial/events\.out\.tfevents\.\d+\.\S+", file)
    ]
    iterations = [
        file for file in others if re.fullmatch(rf"{name}/ckpt/iteration_\d+\.pth\.tar", file)
    ]
    assert len(events) == 1
    assert iterations
    assert others == {*events, *iterations}
    folders = {
        str(path.relative_to(folder / name)) for path in (folder / name).rglob("*") if path.is_dir()
    }
    channels = ("buffer", "collector", "evaluator", "learner", "serial")
    assert folders == {"ckpt", "log", *(f"log/{channel}" for channel in channels)}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the working directory of `python train.py env=cartpole`."""
    folder = tmp_path_factory.mktemp("alone")
    outcome = launch([TRAIN, *TINY, "env=cartpole", "max_env_step=800"], folder)
    assert outcome.returncode == 0, outcome.output
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the working directory of a run of 2,000 env steps that torchrun started."""
    folder = tmp_path_factory.mktemp("pair")
    options = ("max_env_step=2000", "log.histograms=true")  # which must change no number
    outcome = launch([TRAIN, *TINY, *COUNTER_RUN, *options], folder, num_ranks=2)
    assert outcome.returncode == 0, outcome.output
    return folder


@pytest.fixture(scope="module")
def resumed(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run folder of the pair's run, resumed to 4,000 and then, alone, to 6,000 steps.

    Its ckpt_best claims a score that no later evaluation reaches. The second resume starts from a
    checkpoint in the middle of what the first one added.
    """
    folder = tmp_path_factory.mktemp("resumed")
    run = folder / "run"
    shutil.copytree(pair / "run", run)
    best = state_of(run / "ckpt" / "ckpt_best.pth.tar")
    best["counters"]["best_score"] = 1e6
    torch.save(best, run / "ckpt" / "ckpt_best.pth.tar")
    shutil.copy(run / "ckpt" / "ckpt_best.pth.tar", folder / "best_before")
    at_2000 = newest(run)
    resume = f"resume={at_2000.relative_to(folder)}"
    train_well(folder, *COUNTER_RUN, resume, "max_env_step=4000", num_ranks=2)
    middle = next(p for p in iterations(run) if iteration_of(p) > iteration_of(at_2000))
    assert middle != newest(run)
    shutil.copy(middle, folder / "middle")
    shutil.copy(newest(run), folder / "at_4000")
    resume = f"resume={middle.relative_to(folder)}"
    train_well(folder, *COUNTER_RUN, resume, "max_env_step=6000")
    return run


def test_one_process_writes_the_seeds_tree(alone: Path) -> None:
    assert_is_seeds_tree(alone, "cartpole_muzero_seed0")


def test_two_ranks_write_the_seeds_tree(pair: Path) -> None:
    assert_is_seeds_tree(pair, "run")


def test_four_ranks_write_the_seeds_tree(tmp_path: Path) -> None:
    train_well(tmp_path, *COUNTER_RUN, "max_env_step=300", num_ranks=4)
    assert_is_seeds_tree(tmp_path, "run")
    counters = state_of(newest(tmp_path / "run"))["counters"]
    assert counters["envstep"] in range(300, 300 + LONGEST_PHASE)
    assert counters["episodes"] == 8 * counters["collect_phases"]


def test_rank_0_alone_writes_what_two_ranks_watch(pair: Path) -> None:
    (path,) = (pair / "run" / "log" / "serial").iterdir()
    reader = EventAccumulator(str(path), size_guidance={"histograms": 0}).Reload()
    assert {"weights_iter", "gradients_iter", "latent_norm_iter", "replay_iter", "search_iter"} == {
        tag.partition("/")[0] for tag in reader.Tags()["histograms"]
    }
    steps = [event.step for event in reader.Histograms("search_iter/depth")]
    assert steps == [event.step for event in reader.Scalars("learner_iter/total_loss_avg")]
    assert all(event.value > 0 for event in reader.Scalars("cycle_iter/share_wait"))


def test_both_config_files_are_the_configuration_of_the_checkpoint(pair: Path) -> None:
    run = pair / "run"
    config = state_of(newest(run))["config"]
    assert config["env"]["env_id"] == COUNTER
    for name in ("total_config.py", "formatted_total_config.py"):
        assert runpy.run_path(str(run / name))["exp_config"] == config


def test_two_runs_of_two_ranks_are_equal_whoever_started_them(pair: Path, tmp_path: Path) -> None:
    train_well(tmp_path, *COUNTER_RUN, "max_env_step=2000", num_ranks=2)
    assert_same_learning(pair / "run", tmp_path / "run")


def test_torchrun_with_one_process_is_python_alone(alone: Path, tmp_path: Path) -> None:
    train_well(tmp_path, "env=cartpole", "max_env_step=800", num_ranks=1)
    name = "cartpole_muzero_seed0"
    assert_same_learning(alone / name, tmp_path / name)


def test_ckpt_best_is_replaced_only_by_a_strictly_better_score(pair: Path) -> None:
    # Whatever is played in this environment, every evaluation has the return of the first one.
    best = state_of(pair / "run" / "ckpt" / "ckpt_best.pth.tar")
    final = state_of(newest(pair / "run"))
    assert best["last_iter"] == 0 < final["counters"]["last_eval_iter"]
    assert final["counters"]["last_return"] == best["counters"]["best_score"]


def collected(run: Path, field: str) -> list[tuple[int, int]]:
    """Return (total before, total after) of each collect phase of the log, in order."""
    text = log_of(run, "collector")
    counts = [int(n) for n in re.findall(rf"\| {field}_count +\| (\d+)", text)]
    totals = [int(n) for n in re.findall(rf"\| total_{field}_count +\| (\d+)", text)]
    return [(total - count, total) for count, total in zip(counts, totals, strict=True)]


@pytest.mark.parametrize(("field", "counter"), [("envstep", "envstep"), ("episode", "episodes")])
def test_counters_continue_over_resumes(resumed: Path, field: str, counter: str) -> None:
    middle = state_of(resumed.parent / "middle")["counters"]
    phases = collected(resumed, field)
    assert phases[0][0] == 0
    # The second resume starts from an older checkpoint, and cuts back what was logged after it.
    assert all(before == start for (_, before), (start, _) in itertools.pairwise(phases))
    assert middle[counter] in [before for before, _ in phases]
    assert phases[-1][1] == state_of(newest(resumed))["counters"][counter]


def test_totals_are_those_of_the_command_line_and_not_their_sum(resumed: Path) -> None:
    at_4000, final = state_of(resumed.parent / "at_4000"), state_of(newest(resumed))
    assert at_4000["last_step"] in range(4000, 4000 + LONGEST_PHASE)
    assert final["last_step"] in range(6000, 6000 + LONGEST_PHASE)
    assert (at_4000["num_ranks"], final["num_ranks"]) == (2, 1)
    for state in (at_4000, final):
        assert state["counters"]["envstep"] == state["last_step"]
        assert state["counters"]["episodes"] == 8 * state["counters"]["collect_phases"]
        # 0.05 updates an env step, rounded down in each phase of about 120 env steps.
        assert 0.04 < state["last_iter"] / state["last_step"] <= 0.05


def test_ckpt_best_survives_resumes_in_which_the_agent_is_worse(resumed: Path) -> None:
    best = (resumed / "ckpt" / "ckpt_best.pth.tar").read_bytes()
    assert best == (resumed.parent / "best_before").read_bytes()
    assert state_of(newest(resumed))["counters"]["best_score"] == 1e6


def scalars(path: Path) -> dict[str, list[int]]:
    """Return the steps of every tag of an events file, or of a folder's in order, all of them."""
    reader = EventAccumulator(str(path), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    reader.Reload()
    return {t: [point.step for point in reader.Scalars(t)] for t in reader.Tags()["scalars"]}


def test_tensorboard_tags_never_step_back_over_resumes(resumed: Path) -> None:
    steps, final = scalars(resumed / "log" / "serial"), state_of(newest(resumed))
    assert {tag.partition("/")[0] for tag in steps} == {
        f"{channel}_{axis}"
        for channel in ("buffer", "collector", "cycle", "evaluator", "learner")
        for axis in ("iter", "step")
    }
    for tag, values in steps.items():
        assert values == sorted(set(values)), tag
    assert steps["learner_iter/total_loss_avg"][-1] <= final["last_iter"]
    assert steps["collector_step/reward_mean"][-1] == final["last_step"]
    assert steps["evaluator_iter/reward_mean"][-1] == final["last_iter"]


def test_tensorboard_holds_no_point_that_a_resume_threw_away(resumed: Path) -> None:
    middle = state_of(resumed.parent / "middle")
    _, second, third = (scalars(p) for p in sorted((resumed / "log" / "serial").iterdir()))
    for tag, values in second.items():
        last = middle["last_iter" if "_iter/" in tag else "last_step"]
        assert values[-1] <= last, tag
        assert third[tag][0] >= values[-1], tag
    totals: list[int] = []
    for start, total in collected(resumed, "envstep"):
        totals = [*(t for t in totals if t <= start), total]
    assert middle["last_step"] in totals
    points = scalars(resumed / "log" / "serial")
    assert points["collector_step/total_envstep_count"] == totals


@pytest.fixture(scope="module")
def ranks_states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return what two ranks' learners of `distributed_worker.py` ended with."""
    folder = tmp_path_factory.mktemp("worker")
    worker = ROOT / "tests" / "distributed_worker.py"
    outcome = fork([worker, folder], folder, num_ranks=2).finish()
    assert outcome.returncode == 0, outcome.output
    names = ("LN", "BN", "share")
    return {n: [state_of(folder / f"{n}_{rank}.pth.tar") for rank in (0, 1)] for n in names}


@pytest.mark.parametrize("norm_type", ["LN", "BN"])
def test_ranks_are_bit_equal_after_100_updates_on_different_data(
    norm_type: str, ranks_states: dict[str, list[dict[str, Any]]]
) -> None:
    first, second = ranks_states[norm_type]
    assert first["last_iter"] == 100
    for key in ("model", "target_model", "optimizer"):
        assert_same_tensors(first[key], second[key], key)
    buffers = [name for name in first["model"] if "running" in name]
    assert bool(buffers) == (norm_type == "BN")
    start = make_learner(JOINED).model.state_dict()
    name = "representation_network.fc_representation.0.weight"
    assert (first["model"][name] - start[name]).abs().max() > 1e-3


def test_an_update_of_two_ranks_is_that_of_one_rank_on_the_joined_batch(
    ranks_states: dict[str, list[dict[str, Any]]],
) -> None:
    learner = make_learner(JOINED)
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    for number in range(5):
        learner.update(random_batch(number, size=16))
    shared, expected = ranks_states["share"][0], learner.state_dict()
    for key in ("model", "target_model"):
        for name, tensor in expected[key].items():
            torch.testing.assert_close(shared[key][name], tensor, rtol=0, atol=1e-6)
    moved = max(float((t - before[n]).abs().max()) for n, t in expected["model"].items())
    assert moved > 1e-2


def test_a_rank_that_raises_ends_the_job_with_its_message(tmp_path: Path) -> None:
    failing = "env.env_id=tests.fake_envs:FailingCounter-v0"
    outcome = launch([TRAIN, *TINY, failing], tmp_path, num_ranks=2, timeout=60)
    assert outcome.returncode != 0
    assert "RuntimeError: the counter was told to fail" in outcome.output
    assert outcome.seconds < 30


BAD_FOR_TWO_RANKS = {
    "polcy.batch_size=32": ("error: unknown key polcy.batch_size: did you mean policy.batch_size?"),
    "policy.batch_size=33": (
        "error: policy.batch_size=33 cannot be shared by 2 ranks: choose a multiple of 2"
    ),
    "resume=none.pth.tar": "error: resume=none.pth.tar: there is no such file",
}


@pytest.mark.parametrize("override", BAD_FOR_TWO_RANKS)
def test_two_ranks_end_together_after_one_line(tmp_path: Path, override: str) -> None:
    outcome = train(tmp_path, "env=cartpole", override, num_ranks=2, timeout=60)
    assert outcome.returncode != 0
    assert outcome.error_lines() == [BAD_FOR_TWO_RANKS[override]]
    assert "lightzero_lite/" not in outcome.output, "a traceback"
    assert outcome.seconds < 30
    assert list(tmp_path.iterdir()) == []
