"""Histograms, hyperparameters, texts, profiles: by hand, and read back as TensorBoard does."""

from __future__ import annotations

import gzip
import json
import math
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from lightzero_lite.config import config_to_dict
from lightzero_lite.monitoring import latent_norms
from lightzero_lite.runtime.clock import Part
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.logging import RunLog
from lightzero_lite.runtime.profiling import TABLE_ROWS
from lightzero_lite.runtime.summaries import flattened, histograms
from lightzero_lite.runtime.versions import git_commit
from lightzero_lite.search import (
    TreeCache,
    gumbel_muzero_policy,
    muzero_policy,
    simulation_depths,
    visit_entropy,
)
from lightzero_lite.train import build_trainer
from lightzero_lite.trainer import Trainer
from lightzero_lite.types import RecurrentOutput, RootOutput
from tests.builders import make_learner, random_batch, tiny_policy
from tests.launch import ROOT, TINY
from tests.test_replay import make_buffer, make_episode

FIXED = "env.env_id=tests.fake_envs:FixedCounter-v0"  # 7 steps an episode
HPARAMS = ("experiment", "session_start_info", "session_end_info")


def test_the_entropy_of_root_visits_by_hand() -> None:
    visits = np.array([[4, 0, 0, 0], [1, 1, 1, 1], [1, 3, 0, 0]], np.int32)
    third = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert visit_entropy(visits) == pytest.approx([0.0, math.log(4), third])


def test_the_depth_of_each_simulation_by_hand() -> None:
    # Root 0: a chain 0-1-2-4 and node 3 beside it. Root 1: four children of the root.
    parents = np.array([[-1, 0, 1, 0, 2], [-1, 0, 0, 0, 0]], np.int32)
    assert simulation_depths(parents).tolist() == [[1, 2, 1, 3], [1, 1, 1, 1]]


@pytest.mark.parametrize("search", [muzero_policy, gumbel_muzero_policy])
def test_a_search_with_one_action_goes_one_deeper_each_time(search: object) -> None:
    trees, ones = TreeCache(), np.ones(2, np.float32)
    answer = RecurrentOutput(ones, ones, ones[:, None])
    search(  # type: ignore[operator]
        RootOutput(ones[:, None], ones),
        lambda *_: answer,
        num_simulations=5,
        discount=1.0,
        rng=np.random.default_rng(0),
        trees=trees,
    )
    parents = trees.get(2, 5, 1).nodes["parent"]
    assert simulation_depths(parents).tolist() == [[1, 2, 3, 4, 5]] * 2


def test_priorities_are_those_that_were_set() -> None:
    buffer = make_buffer(size=10, use_priority=True, priority_alpha=0.5)
    for number in range(3):
        buffer.push(make_episode(number, 4))  # the third evicts the first
    buffer.update_priorities(np.array([2, 1]), np.array([3, 0]), np.array([7.0, 0.25]))
    found = buffer.priorities()
    assert len(found) == 8
    assert found[[0, 7]] == pytest.approx([0.25, 7.0], rel=1e-5)
    uniform = make_buffer(size=10)
    uniform.push(make_episode(0, 4))
    assert uniform.priorities().tolist() == [1.0] * 4


def test_latent_norms_are_those_of_the_model_step_by_step() -> None:
    model = make_learner(tiny_policy(norm_type="BN")).model.train()
    batch = random_batch(3)
    before = [buffer.clone() for buffer in model.buffers()]
    norms = latent_norms(model, batch, torch.device("cpu"))
    assert model.training
    assert all(map(torch.equal, before, model.buffers())), "running statistics were disturbed"
    model.eval()
    for b in range(2):  # one sample after the other
        latent = model.representation_network(torch.from_numpy(batch.observations[b : b + 1, 0]))
        for k in range(4):
            assert norms[k, b] == pytest.approx(math.hypot(*latent[0].tolist()), rel=1e-5)
            if k < 3:
                action = torch.tensor([int(batch.actions[b, k])])
                latent = model.dynamics_network(latent, action)


def test_a_histogram_holds_every_value_once() -> None:
    values = np.array([[0.0, 1.0], [1.0, 4.0]], np.float32)
    (value,) = histograms({"x_iter/y": values}).value
    histo = value.histo
    assert (histo.num, histo.min, histo.max, histo.sum, histo.sum_squares) == (4, 0, 4, 6, 18)
    counts = {round(limit, 6): n for limit, n in zip(histo.bucket_limit, histo.bucket, strict=True)}
    # 40 bins of 0.1: [0, 0.1) holds the 0, [1, 1.1) both ones, the last one the 4.
    assert {limit: n for limit, n in counts.items() if n} == {0.1: 1, 1.1: 2, 4.0: 1}


def test_options_are_flattened_to_the_names_of_the_command_line() -> None:
    nested = {"seed": 3, "env": {"kwargs": {}, "stop_value": None}, "policy": {"model": {"a": 1}}}
    assert flattened(nested) == {
        "seed": 3,
        "env.kwargs": {},
        "env.stop_value": None,
        "policy.model.a": 1,
    }


def test_the_commit_is_that_of_a_checkout_only(tmp_path: Path) -> None:
    commit = git_commit(ROOT)
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}", commit)
    assert git_commit(tmp_path) is None
    (tmp_path / ".git").mkdir()
    assert git_commit(tmp_path) is None


def test_each_start_says_once_what_runs(tmp_path: Path) -> None:
    for envstep in (0, 0, 70):  # the second start goes on from where the first one began
        log = RunLog(tmp_path, train_iter=envstep, envstep=envstep)
        log.start({"seed": envstep}, {"torch": "2"}, envstep=envstep)
        log.scalars("learner", {"loss": 1.0}, train_iter=envstep + 5, envstep=envstep + 90)
        log.close()
    starts = [
        HParamsPluginData.FromString(reader.SummaryMetadata(tag).plugin_data.content)
        for reader in readers(tmp_path)
        for tag in ["_hparams_/session_start_info"]
        if tag in reader.PluginTagToContent("hparams")
    ]
    assert [one.session_start_info.hparams["seed"].number_value for one in starts] == [0, 70]


def readers(run: Path) -> list[EventAccumulator]:
    """Read each events file of a run with TensorBoard's reader, all of it."""
    found = []
    for path in sorted((run / "log" / "serial").iterdir()):
        everything = {"scalars": 0, "histograms": 0, "tensors": 0}
        reader = EventAccumulator(str(path), size_guidance=everything, purge_orphaned_data=False)
        found.append(reader.Reload())
    return [reader for reader in found if reader.Tags()["scalars"]]


def train(*overrides: str) -> Trainer:
    trainer = build_trainer([*TINY, FIXED, "exp_name=run", *overrides], Ranks())
    trainer.run()
    return trainer


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trainer, str]:
    """Return a run with histograms, resumed without but with a profile, and what they said."""
    folder = tmp_path_factory.mktemp("watched")
    options = ["policy.use_priority=true", "policy.update_per_collect=5", "checkpoint.save_freq=5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        said: list[str] = []
        patch.setattr("builtins.print", lambda text, **_: said.append(text))
        trainer = train(*options, "log.histograms=true", "max_env_step=250")
        resume = "resume=run/ckpt/iteration_15.pth.tar"
        less = ["policy.n_episode=2", "policy.update_per_collect=1", "policy.num_simulations=1"]
        train(*options, resume, *less, "profile=true", f"max_env_step={168 + 6 * 14}")
    return folder / "run", trainer, "\n".join(said)


def steps(reader: EventAccumulator, tag: str) -> list[int]:
    kind = reader.Histograms if tag in reader.Tags()["histograms"] else reader.Scalars
    return [event.step for event in kind(tag)]


def test_histograms_show_networks_latents_priorities_and_searches(
    watched: tuple[Path, Trainer, str],
) -> None:
    run, trainer, _ = watched
    first, second = readers(run)
    tags = set(first.Tags()["histograms"])
    names = [name for name, _ in trainer.learner.model.named_parameters()]
    others = {"replay_iter/priority", "search_iter/visit_entropy", "search_iter/depth"}
    others |= {f"latent_norm_iter/k{k}" for k in range(6)}
    weights = {f"weights_iter/{name}" for name in names}
    gradients = {f"gradients_iter/{name}" for name in names}
    assert tags == others | weights | gradients
    assert second.Tags()["histograms"] == []
    # Five updates a phase, tables at the first and at 10, 20, ...; the resume cut 20 and 25 off.
    assert {tuple(steps(first, tag)) for tag in tags} == {(5, 10)}
    for name, parameter in trainer.learner.model.named_parameters():
        histogram = first.Histograms(f"weights_iter/{name}")[-1].histogram_value
        assert histogram.num == parameter.numel() == sum(histogram.bucket)
    depth = first.Histograms("search_iter/depth")[-1].histogram_value
    # 8 episodes of 7 steps, 4 simulations each: the first of each search is 1 deep.
    assert depth.num == 8 * 7 * 4
    assert (depth.min, depth.max) == (1, pytest.approx(3, abs=1))
    entropy = first.Histograms("search_iter/visit_entropy")[-1].histogram_value
    assert entropy.num == 8 * 7
    assert 0 <= entropy.min <= entropy.max <= math.log(4)
    assert first.Histograms("replay_iter/priority")[-1].histogram_value.num == 2 * 8 * 7


def test_every_curve_rises_in_steps_over_a_resume(watched: tuple[Path, Trainer, str]) -> None:
    run, _, _ = watched
    first, second = readers(run)
    tags = set(second.Tags()["scalars"])
    assert tags == set(first.Tags()["scalars"])
    for tag in tags:
        seen = steps(first, tag) + steps(second, tag)
        assert seen == sorted(set(seen)), tag


def test_the_age_of_samples_lies_within_the_buffer(watched: tuple[Path, Trainer, str]) -> None:
    run, _, _ = watched
    ages = [event.value for event in readers(run)[0].Scalars("learner_step/sampled_age_envsteps")]
    assert len(ages) == 2  # tables at 56 and 112 env steps; priorities draw unevenly
    assert all(0.2 * n < age < 0.8 * n for n, age in zip((56, 112), ages, strict=True))


def test_a_cycle_is_shared_out_whole(watched: tuple[Path, Trainer, str]) -> None:
    run, _, _ = watched
    first, _ = readers(run)
    names = [f"cycle_step/share_{part.name.lower()}" for part in Part]
    shares = np.array([[event.value for event in first.Scalars(name)] for name in names])
    assert shares.shape == (len(Part), 3)  # envsteps 56, 112, 168; the resume cut the rest off
    assert shares.sum(axis=0) == pytest.approx(1.0, abs=1e-5)
    assert (shares[Part.COLLECT_TREE] > 0).all()
    assert (shares[Part.LEARN] > 0).all()
    assert (shares[[Part.REANALYZE, Part.WAIT]] == 0).all()
    seconds = [event.value for event in first.Scalars("cycle_step/seconds")]
    times = [event.wall_time for event in first.Scalars("cycle_step/seconds")]
    assert seconds[1:] == pytest.approx(np.diff(times), abs=0.1)


def test_hyperparameters_are_the_configuration(watched: tuple[Path, Trainer, str]) -> None:
    run, trainer, _ = watched
    for reader, is_profiled in zip(readers(run), ("false", "true"), strict=True):
        tags = reader.PluginTagToContent("hparams")
        kept = HPARAMS if is_profiled == "true" else HPARAMS[:2]  # a resume takes the end back
        assert set(tags) == {f"_hparams_/{name}" for name in kept}
        contents = [HParamsPluginData.FromString(tags[f"_hparams_/{name}"]) for name in kept]
        hparams = contents[1].session_start_info.hparams
        assert set(hparams) == set(flattened(config_to_dict(trainer.config)))
        assert hparams["policy.num_unroll_steps"].number_value == 5
        assert hparams["env.stop_value"].string_value == "null"
        assert hparams["profile"].string_value == is_profiled
        metrics = {info.name.tag for info in contents[0].experiment.metric_infos}
        assert metrics <= set(reader.Tags()["scalars"])
    best = [event.value for event in readers(run)[0].Scalars("evaluator_step/best_reward_mean")]
    assert best == [28.0] * len(best)  # 1 + 2 + ... + 7


def text(reader: EventAccumulator, tag: str) -> str:
    (event,) = reader.Tensors(f"{tag}/text_summary")
    return str(event.tensor_proto.string_val[0].decode())


def test_versions_and_configuration_are_there_as_text(watched: tuple[Path, Trainer, str]) -> None:
    run, _, _ = watched
    for reader in readers(run):
        versions = text(reader, "run/versions")
        assert f"| python | {platform.python_version()} |" in versions
        assert f"| torch | {torch.__version__} |" in versions
        assert "| num_ranks | 1 |" in versions
        assert "| policy.use_priority | True |" in text(reader, "run/config")


def shown(said: str) -> Sequence[str]:
    """Return the rows of the table of costs."""
    lines = said.splitlines()
    start = next(i for i, line in enumerate(lines) if "self CPU ms" in line)
    return lines[start + 1 : start + 1 + TABLE_ROWS]


def test_a_profile_is_a_trace_of_two_cycles_and_a_table(watched: tuple[Path, Trainer, str]) -> None:
    run, _, said = watched
    (path,) = (run / "log" / "profile").iterdir()
    assert path.name == "rank0.pt.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = [event.get("name", "") for event in events if event.get("cat") == "user_annotation"]
    assert len({name for name in names if name.startswith("ProfilerStep#")}) == 2
    # Two cycles of 7 moves and one update, which comes after drawing and before priorities.
    assert names.count("sample") == 2 * 2
    assert names.count("collect_network") == 2 * 7 * 2  # the root and one simulation
    assert {"collect_env", "collect_network", "collect_tree", "learn", "other"} <= set(names)
    rows = shown(said)
    costs = [float(row.split()[0]) for row in rows]
    assert len(rows) == TABLE_ROWS
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 0
    told = [line for line in said.splitlines() if line.startswith("profile: ")]
    assert told == [
        "profile: writing the trace of 2 cycles",
        f"profile: {path.relative_to(run.parent)}",
    ]
