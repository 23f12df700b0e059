"""What environments there may be: one's own, their arguments, spaces, rewards and time limits."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from lightzero_lite.config import Config, EnvConfig, load_config
from lightzero_lite.envs import factory
from lightzero_lite.envs.factory import env_shape, make_env
from lightzero_lite.envs.rollout import play_episodes
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.run_folder import run_folder
from lightzero_lite.train import build_trainer
from lightzero_lite.trainer import Trainer
from lightzero_lite.types import UserError
from tests import fake_search
from tests.builders import on_ranks
from tests.fake_envs import Counter, Showing
from tests.launch import ROOT, TINY

COUNTER = "tests.fake_envs:Counter"
OWN = """
import gymnasium

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size=3):
        self.size = {}[size] if size > 9 else size

made = []

def second():
    made.append(Own())
    if len(made) == 2:
        raise OSError("only one of them can be made")
    return made[-1]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder of its own; forget what is imported from there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("own_env", "broken", "corridor"):
        sys.modules.pop(name, None)


def showing(**kwargs: Any) -> VectorEnv:
    return VectorEnv(EnvConfig(entry_point="tests.fake_envs:Showing", kwargs=kwargs), 1)


def refusal(**options: Any) -> str:
    """Return the line with which an environment is refused."""
    with pytest.raises(UserError) as refused:
        make_env(EnvConfig(**options))
    line = str(refused.value)
    assert "\n" not in line
    return line


def test_a_class_of_ones_own_is_made_with_its_arguments() -> None:
    env = make_env(EnvConfig(entry_point=COUNTER, kwargs={"min_length": 3, "max_length": 4}))
    assert isinstance(env.unwrapped, Counter)
    assert (env.unwrapped.min_length, env.unwrapped.max_length) == (3, 4)
    assert env_shape(env)[:2] == (2, 3)


def test_arguments_reach_an_environment_that_gymnasium_knows() -> None:
    for is_slippery, outcomes in ((False, 1), (True, 3)):
        env = make_env(EnvConfig(env_id="FrozenLake-v1", kwargs={"is_slippery": is_slippery}))
        assert len(env.unwrapped.P[0][2]) == outcomes  # type: ignore[attr-defined]


def test_wrappers_are_put_around_it_innermost_first() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    wanted = {"image": image, "text": "go"}
    space = spaces.Dict(image=spaces.Box(0, 255, (2, 2, 3), np.uint8), text=spaces.Text(9))
    config = EnvConfig(
        entry_point="tests.fake_envs:Showing",
        kwargs={"observation": wanted, "observation_space": space},
        wrappers=["tests.test_environments:image_of", "gymnasium.wrappers:FlattenObservation"],
    )
    envs = VectorEnv(config, 1)
    assert envs.local[0].reset(1).observation.tolist() == list(range(12))


def image_of(env: Any) -> Any:
    """Return a wrapper that keeps the image of a dictionary."""
    from gymnasium.wrappers import TransformObservation

    return TransformObservation(env, lambda seen: seen["image"], env.observation_space["image"])


def test_a_module_of_the_current_folder_is_found(folder: Path) -> None:
    (folder / "own_env.py").write_text(OWN)
    env = make_env(EnvConfig(entry_point="own_env:Own", kwargs={"size": 4}))
    assert env.unwrapped.size == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"entry_point": "own_env"}, "env.entry_point=own_env: write it as package.module:Class"),
        (
            {"entry_point": "nowhere:Own"},
            "env.entry_point=nowhere:Own: ModuleNotFoundError: No module named 'nowhere'",
        ),
        (
            {"entry_point": "own_env:Owm"},
            "env.entry_point=own_env:Owm: own_env has no class or function Owm",
        ),
        (
            {"entry_point": "broken:Own"},
            "env.entry_point=broken:Own: NameError: name 'nothing' is not defined "
            "(broken.py, line 2)",
        ),
        (
            {"entry_point": "own_env:Own", "kwargs": {"size": 10}},
            "env.entry_point=own_env:Own: KeyError: 10 (own_env.py, line 9)",
        ),
        (
            {"entry_point": "own_env:Own", "kwargs": {"sise": 5}},
            "env.entry_point=own_env:Own: TypeError: Own.__init__() got an unexpected keyword "
            "argument 'sise'",
        ),
        (
            {"entry_point": "own_env:Own", "wrappers": ["own_env:Wrapped"]},
            "env.wrappers=own_env:Wrapped: own_env has no class or function Wrapped",
        ),
        (
            {"entry_point": "collections:OrderedDict"},
            "env.entry_point=collections:OrderedDict: a OrderedDict is not a gymnasium.Env",
        ),
    ],
)
def test_code_that_cannot_be_used_is_refused_in_one_line(
    options: dict[str, Any], line: str, folder: Path
) -> None:
    (folder / "own_env.py").write_text(OWN)
    (folder / "broken.py").write_text("value = 1\nnothing\n")
    assert refusal(**options) == line


def test_an_argument_that_a_known_environment_does_not_take_is_refused() -> None:
    line = refusal(env_id="CartPole-v1", kwargs={"size": 3})
    assert line.startswith("env.env_id=CartPole-v1: TypeError: ")
    assert "unexpected keyword argument 'size'" in line


REFUSED_BY_ALL = {
    "env.env_id=Pendulum-v1": "env.env_id=Pendulum-v1: the action space is Box",
    "env.env_id=tests.fake_envs:Image-v0": "env.env_id=tests.fake_envs:Image-v0: observations of",
    "env.entry_point=own_env:Owm": "env.entry_point=own_env:Owm: own_env has no class",
    "env.entry_point=own_env:second": "env.entry_point=own_env:second: OSError: only one",
}


@pytest.mark.parametrize("override", REFUSED_BY_ALL)
def test_all_ranks_refuse_before_anything_is_written(override: str, folder: Path) -> None:
    (folder / "own_env.py").write_text(OWN)
    config = load_config([*TINY, override, "env.collector_env_num=2"])

    def line_of(ranks: Ranks) -> str:
        def build() -> Trainer:
            return Trainer(config, folder=Path("run"), ranks=ranks, device=torch.device("cpu"))

        with pytest.raises(UserError) as refused:
            ranks.agreed(build)
        return str(refused.value)

    first, second = on_ranks(2, line_of)
    assert first == second
    assert first.startswith(REFUSED_BY_ALL[override])
    assert {path.name for path in folder.iterdir()} <= {"own_env.py", "__pycache__"}


def test_a_run_is_named_by_its_entry_point() -> None:
    config = Config(env=EnvConfig(entry_point="my_envs.grid:GridWorld"), seed=3)
    assert str(run_folder(config)) == "my_envs_grid_gridworld_muzero_seed3"


SEEN = [
    (spaces.Box(-9, 9, (2,), np.float64), np.array([1.5, -2.0]), [1.5, -2]),
    (spaces.Box(0, 9, (2,), np.uint8), np.array([1, 2], np.uint8), [1, 2]),
    (spaces.Box(-9, 9, (), np.int64), np.array(3), [3]),
    (spaces.Box(-9, 9, (2,), np.float32), [1.0, 2.0], [1, 2]),
    (spaces.Discrete(3), 2, [0, 0, 1]),
    (spaces.Discrete(3, start=-1), np.int64(-1), [1, 0, 0]),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
    (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
    (spaces.MultiBinary([2, 2]), np.array([[1, 0], [0, 1]], np.int8), [1, 0, 0, 1]),
    (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]), (1, np.array([0.5])), [0, 1, 0.5]),
    (
        spaces.Dict(a=spaces.Dict(b=spaces.MultiBinary(1)), c=spaces.Discrete(2)),
        {"a": {"b": np.array([1])}, "c": 0},
        [1, 1, 0],
    ),
]


@pytest.mark.parametrize(("space", "seen", "vector"), SEEN, ids=lambda value: str(value)[:24])
def test_observations_become_vectors(space: Any, seen: Any, vector: list[float]) -> None:
    envs = showing(observation_space=space, observation=seen)
    assert env_shape(envs.envs[0]).observation_dim == len(vector)
    for observation in (envs.local[0].reset(1).observation, envs.local[0].step(0).observation):
        assert observation.dtype == np.float32
        assert observation.tolist() == vector


IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
IMAGE_LINE = (
    "observations of shape (8, 8, 3) are images, but must be vectors "
    "(env.wrappers=[gymnasium.wrappers:FlattenObservation] makes them such: docs/environments.md)"
)
PART_LINE = (
    "observations of shape (8, 8, 3) are images, but must be vectors "
    "(env.wrappers can make them such: docs/environments.md)"
)


@pytest.mark.parametrize(
    ("space", "line"),
    [
        ({"observation_space": IMAGE}, IMAGE_LINE),
        ({"observation_space": spaces.Dict(a=spaces.Tuple([IMAGE]))}, PART_LINE),
        (
            {"observation_space": spaces.Dict(mission=spaces.Text(5, charset="a"))},
            "observations in Text(1, 5, charset=a) cannot be made a vector",
        ),
        (
            {"observation_space": spaces.Sequence(spaces.Discrete(3))},
            "observations in Sequence(Discrete(3), stack=False) cannot be made a vector",
        ),
        (
            {"action_space": spaces.Box(-1, 1, (2,))},
            "the action space is Box(-1.0, 1.0, (2,), float32), but must be Discrete",
        ),
        (
            {"action_space": spaces.MultiDiscrete([2, 2])},
            "the action space is MultiDiscrete([2 2]), but must be Discrete",
        ),
        (
            {"action_space": spaces.MultiBinary(2)},
            "the action space is MultiBinary(2), but must be Discrete",
        ),
        (
            {"action_space": spaces.Tuple([spaces.Discrete(2)])},
            "the action space is Tuple(Discrete(2)), but must be Discrete",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_spaces_that_do_not_fit_are_refused(space: dict[str, Any], line: str) -> None:
    refused = refusal(entry_point="tests.fake_envs:Showing", kwargs=space)
    assert refused == f"env.entry_point=tests.fake_envs:Showing: {line}"


@pytest.mark.parametrize(
    ("reward", "number"),
    [
        (0.5, 0.5),
        (2, 2.0),
        (True, 1.0),
        (np.float64(0.25), 0.25),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3.0),
        (np.bool_(1), 1.0),
        (np.array(4.0), 4.0),
        (np.array([5]), 5.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rewards_become_numbers(reward: Any, number: float) -> None:
    envs = showing(reward=reward)
    envs.local[0].reset(1)
    result = envs.local[0].step(0)
    assert (result.reward, type(result.reward)) == (number, float)


@pytest.mark.parametrize("reward", [np.array([1.0, 2.0]), None, "high"])
def test_a_reward_that_is_no_number_is_named(reward: Any) -> None:
    envs = showing(reward=reward)
    envs.local[0].reset(1)
    with pytest.raises(ValueError, match="env 0 returned the reward "):
        envs.local[0].step(0)


def test_an_observation_of_another_shape_than_its_space_is_named() -> None:
    envs = showing(observation=np.zeros(3))
    with pytest.raises(ValueError, match=r"env 0 returned an observation \(3,\), but it is Box"):
        envs.local[0].reset(1)


@pytest.mark.parametrize("start", [-1, 0, 5])
def test_the_environment_receives_an_element_of_its_action_space(start: int) -> None:
    for dtype in (np.int64, np.int32):
        envs = showing(action_space=spaces.Discrete(3, start=start, dtype=dtype))
        envs.local[0].reset(1)
        for action in range(3):
            envs.local[0].step(action)
        env = envs.envs[0].unwrapped
        assert isinstance(env, Showing)
        assert env.actions == [start, start + 1, start + 2]


def test_the_configured_time_limit_cuts_a_class_of_ones_own() -> None:
    kwargs = {"min_length": 7, "max_length": 7}
    envs = VectorEnv(EnvConfig(entry_point=COUNTER, kwargs=kwargs, max_episode_steps=4), 1)
    assert env_shape(envs.envs[0]).max_episode_steps == 4
    (finished,) = play_episodes(envs, [3], fake_search.decide)
    assert len(finished.episode.actions) == 4
    assert finished.episode.is_terminated is False


def test_a_function_may_make_the_environment_with_a_limit_of_its_own() -> None:
    config = EnvConfig(entry_point="tests.fake_envs:made_by_a_function", kwargs={"length": 9})
    env = make_env(config)
    assert isinstance(env.unwrapped, Counter)
    assert env.unwrapped.max_length == 9
    assert env_shape(env).max_episode_steps == 50


def test_an_episode_without_end_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "LONGEST_EPISODE", 6)
    envs = showing()
    assert env_shape(envs.envs[0]).max_episode_steps == 6
    for _ in range(2):  # the count starts again with each episode
        envs.local[0].reset(1)
        ends = [envs.local[0].step(0).is_truncated for _ in range(5)]
        assert not any(ends)
        line = "after 6 steps cut an episode that had not ended: set env.max_episode_steps"
        with pytest.warns(UserWarning, match=f"env.entry_point=tests.fake_envs:Showing: {line}"):
            assert envs.local[0].step(0).is_truncated


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("length", [5, 6])
def test_an_episode_that_ends_in_time_is_not_cut(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factory, "LONGEST_EPISODE", 6)
    kwargs = {"min_length": length, "max_length": length}
    envs = VectorEnv(EnvConfig(entry_point=COUNTER, kwargs=kwargs), 1)
    (finished,) = play_episodes(envs, [3], fake_search.decide)
    assert len(finished.episode.actions) == length
    assert finished.episode.is_terminated is True


def test_a_registered_limit_needs_no_guard() -> None:
    assert env_shape(make_env(EnvConfig(env_id="CartPole-v1"))).max_episode_steps == 500
    assert not isinstance(make_env(EnvConfig(env_id="CartPole-v1")), factory.EpisodeGuard)


def test_the_environment_of_the_documentation_trains(folder: Path) -> None:
    page = (ROOT / "docs" / "environments.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(code.splitlines()) <= 30
    (folder / "corridor.py").write_text(code)
    (command,) = re.findall(r"^python train.py (env.entry_point=.*?[^\\])\n", page, re.M | re.S)[
        1:2
    ]
    overrides = [*shlex.split(command.replace("\\\n", "")), *TINY]
    trainer = build_trainer([*overrides, "max_env_step=100", "exp_name=run"], Ranks())
    check_env(trainer.collector.envs.envs[0].unwrapped, skip_render_check=True)
    trainer.run()
    assert trainer.train_iter > 0
    # The first of the corridor's cells is drawn from the seed: 0 to 4 of 10.
    envs = trainer.collector.envs
    firsts = {float(envs.local[0].reset(seed).observation[0]) for seed in range(50)}
    assert firsts == {float(np.float32(position / 10)) for position in range(5)}


def played(env: Any, num_actions: int) -> list[tuple[float, float, bool]]:
    """Return the count of the Counter, the reward and whether the episode is over, by action."""
    env.reset(seed=1)
    steps = [env.step(0) for _ in range(num_actions)]
    return [(round(10 * float(o[1])), r, t or c) for o, r, t, c, _ in steps]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_an_action_lasts_and_its_rewards_add_up_to_the_end_of_the_episode(end: str) -> None:
    kwargs = {"min_length": 8, "max_length": 8, "reward": "count", "end": end}
    env = make_env(EnvConfig(entry_point=COUNTER, kwargs=kwargs, action_repeat=3))
    # Rewards 1, 2, ..., 8: three, three, and the two that are left.
    assert played(env, 3) == [(3, 6.0, False), (6, 15.0, False), (8, 15.0, True)]


def test_the_time_limit_counts_the_steps_of_the_environment() -> None:
    kwargs = {"min_length": 50, "max_length": 50}
    env = make_env(
        EnvConfig(entry_point=COUNTER, kwargs=kwargs, action_repeat=4, max_episode_steps=10)
    )
    assert played(env, 3) == [(4, 4.0, False), (8, 4.0, False), (10, 2.0, True)]
    assert env_shape(env).max_episode_steps == 10
