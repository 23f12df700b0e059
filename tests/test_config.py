"""The command line becomes one typed configuration, or one line that says why not."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from omegaconf import OmegaConf

from lightzero_lite import config as config_module
from lightzero_lite import policy_options
from lightzero_lite.config import (
    Config,
    EnvConfig,
    PolicyConfig,
    check_shares,
    config_from_dict,
    config_to_dict,
    load_config,
)
from lightzero_lite.types import UserError

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
ENV_FILES = sorted((CONFIGS / "env").glob("*.yaml"))
POLICY_FILES = sorted((CONFIGS / "policy").glob("*.yaml"))


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested dictionaries under its full key."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def refusal(*overrides: str) -> str:
    """Return the line with which a command line is refused."""
    with pytest.raises(UserError) as refused:
        load_config(overrides)
    line = str(refused.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("path", ENV_FILES + POLICY_FILES, ids=lambda path: path.stem)
def test_every_yaml_file_composes_and_its_values_arrive(path: Path) -> None:
    composed = dict(leaves(config_to_dict(load_config([f"{path.parent.name}={path.stem}"]))))
    for key, value in leaves(OmegaConf.to_container(OmegaConf.load(path)) or {}):  # type: ignore[arg-type]
        assert composed[key] == (float(value) if "rate" in key else value), key


@pytest.mark.parametrize("path", ENV_FILES, ids=lambda path: path.stem)
def test_every_env_file_names_a_registered_environment(path: Path) -> None:
    # The registry knows LunarLander whether or not the extra box2d is installed.
    module, _, name = load_config([f"env={path.stem}"]).env.env_id.rpartition(":")
    if module:
        pytest.importorskip(module)
    assert gymnasium.spec(name) is not None


def test_policy_files_are_named_by_the_policy_type() -> None:
    assert [path.stem for path in POLICY_FILES] == ["gumbel_muzero", "muzero"]
    for path in POLICY_FILES:
        assert load_config([f"policy={path.stem}"]).policy.type == path.stem


def test_cartpole_is_the_default() -> None:
    assert load_config([]) == load_config(["env=cartpole"])
    assert load_config([]).env.env_id == "CartPole-v1"


def test_a_bare_env_id_takes_no_recipe_and_no_stop_value_of_another_environment() -> None:
    config = load_config(["env.env_id=Acrobot-v1"])
    assert config == Config(env=EnvConfig(env_id="Acrobot-v1"))
    assert config.env.stop_value is None
    beside_cartpole = load_config(["env=cartpole", "env.env_id=CartPole-v0"])
    assert beside_cartpole.env.stop_value == 475


def test_arguments_of_the_environment_are_whatever_it_takes() -> None:
    line = (
        "env=cartpole env.kwargs.size=5 +env.kwargs.name=a ++env.kwargs.name=b env.kwargs={p:0.5} "
        "env.kwargs.is_slippery=false env.kwargs.map=[SF,HG] env.kwargs.a.b=null"
    )
    config = load_config(line.split())
    expected = {"size": 5, "name": "b", "p": 0.5, "is_slippery": False, "map": ["SF", "HG"]}
    assert config.env.kwargs == {**expected, "a": {"b": None}}
    # What a run was trained with can be changed and taken back.
    changed = load_config(["env.kwargs.size=6", "~env.kwargs.a", "~env.kwargs.map"], config)
    assert changed.env.kwargs == {"size": 6, "name": "b", "p": 0.5, "is_slippery": False}


def test_an_entry_point_is_the_environment() -> None:
    config = load_config(["env.entry_point=my.module:Grid", "env.wrappers=[a.b:C,d:E]"])
    wanted = EnvConfig(entry_point="my.module:Grid", wrappers=["a.b:C", "d:E"])
    assert config == Config(env=wanted)  # the recipe of no other environment
    assert load_config(["env=cartpole", "env.entry_point=a:B"]).env.stop_value == 475
    both = "env.entry_point=a:B takes the place of env.env_id: give one of the two"
    assert refusal("env.entry_point=a:B", "env.env_id=CartPole-v1") == both
    with pytest.raises(UserError, match=both):
        load_config(["env.env_id=CartPole-v1"], load_config(["env.entry_point=a:B"]))


@pytest.mark.parametrize("text", ["1e5", "100000", "100_000", "1.0e5"])
def test_an_integer_is_written_in_any_way(text: str) -> None:
    value = load_config([f"max_env_step={text}"]).max_env_step
    assert (value, type(value)) == (100_000, int)


@pytest.mark.parametrize("text", ["null", "None", "none", ""])
def test_nothing_is_written_in_any_way(text: str) -> None:
    config = load_config(
        [f"resume={text}", f"env.stop_value={text}", f"policy.update_per_collect={text}"]
    )
    assert config.resume is config.env.stop_value is config.policy.update_per_collect is None


def test_numbers_of_a_text_and_integers_of_a_number_are_converted() -> None:
    config = load_config(["exp_name=12", "env.stop_value=475", "policy.pb_c_base=19652"])
    assert config.exp_name == "12"
    assert repr(config.env.stop_value) == "475.0"
    assert repr(config.policy.pb_c_base) == "19652.0"


REFUSALS = {
    "polcy.batch_size=3": "unknown key polcy.batch_size: did you mean policy.batch_size?",
    "policy.batchsize=3": "unknown key policy.batchsize: did you mean policy.batch_size?",
    "batch_size=3": "unknown key batch_size: did you mean policy.batch_size?",
    "policy.latent_state_dim=3": (
        "unknown key policy.latent_state_dim: did you mean policy.model.latent_state_dim?"
    ),
    "foo=1": "unknown key foo",
    "+new=1": "unknown key new",
    "++new=1": "unknown key new",
    "+policy.new=1": "unknown key policy.new",
    "policy.foo.bar=1": "unknown key policy.foo.bar",
    "~policy.foo": "unknown key policy.foo",
    "hydra.run.dir=x": "hydra.run.dir: Hydra's own settings are not used here",
    "policy.batch_size=abc": "policy.batch_size=abc is not an integer",
    "policy.batch_size=1.5": "policy.batch_size=1.5 is not an integer",
    "policy.batch_size=null": "policy.batch_size=None is not an integer",
    "policy.batch_size=true": "policy.batch_size=True is not an integer",
    "policy.batch_size=[1]": "policy.batch_size=[1] is not an integer",
    "policy.batch_size={a:1}": "policy.batch_size={'a': 1} is not an integer",
    "policy.learning_rate=fast": "policy.learning_rate=fast is not a finite number",
    "policy.learning_rate=nan": "policy.learning_rate=nan is not a finite number",
    "policy.grad_clip_value=inf": "policy.grad_clip_value=inf is not a finite number",
    "env.stop_value=high": "env.stop_value=high is not a finite number",
    "policy.use_priority=1": "policy.use_priority=1 is not true or false",
    "env.env_id=null": "env.env_id=None is not a text",
    "env.env_id=[a]": "env.env_id=['a'] is not a text",
    "policy.batch_size=0": "policy.batch_size=0 is too small: it must be at least 1",
    "seed=-1": "seed=-1 is too small: it must be at least 0",
    "policy.replay_ratio=0": "policy.replay_ratio=0.0 is too small: it must be above 0",
    "policy.discount_factor=1.1": "policy.discount_factor=1.1 is too large: it must be at most 1",
    "policy.model.norm_type=XN": "policy.model.norm_type=XN is none of BN, LN, none",
    "policy.type=alphazero": "policy.type=alphazero is none of muzero, gumbel_muzero",
    "device=gpu": "device=gpu is none of auto, cpu, cuda",
    "env=pong": "env=pong is none of acrobot, cartpole, connect_four, frozenlake, gymnasium, "
    "lunarlander, minigrid, mountaincar, tictactoe",
    "policy=alphazero": "policy=alphazero is none of gumbel_muzero, muzero",
    "policy.model=3": "policy.model is a section: set its keys, not the section itself",
    "policy.model=null": "policy.model is a section: set its keys, not the section itself",
    "policy={a:1}": "policy is a section: set its keys, not the section itself",
    "log=1": "log is a section: set its keys, not the section itself",
    "env.kwargs=5": "env.kwargs=5 is no set of named values: write env.kwargs.NAME=VALUE",
    "env.kwargs=null": "env.kwargs=None is no set of named values: write env.kwargs.NAME=VALUE",
    "env.wrappers=a:B": "env.wrappers=a:B is not a list: write env.wrappers=[a,b]",
    "env.wrappers=[[a]]": "env.wrappers=['a'] is not a text",
    "--seed=1": "--seed=1: options are written key=value, for example seed=1",
}


@pytest.mark.parametrize("override", REFUSALS)
def test_a_mistake_is_refused_in_one_line_with_its_key(override: str) -> None:
    assert refusal(override) == REFUSALS[override]


@pytest.mark.parametrize("override", ["seed", "=3", "seed=1,2", "exp_name=a=b", "seed=${nope}"])
def test_what_hydra_cannot_read_is_refused_in_one_line(override: str) -> None:
    assert refusal(override)


def test_refusal_comes_whatever_else_is_on_the_line() -> None:
    assert refusal("env=acrobot", "seed=3", "policy.eps=2").startswith("policy.eps=2.0 is too lar")


def test_dictionaries_with_unknown_keys_are_refused() -> None:
    with pytest.raises(UserError, match=r"unknown key env\.env_ids: did you mean env\.env_id\?"):
        config_from_dict({"env": {"env_ids": "CartPole-v1"}})


def test_composing_writes_nothing_and_stays_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    load_config(["env=acrobot"])
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_configuration_survives_the_way_through_plain_dictionaries() -> None:
    line = (
        "env=lunarlander policy=gumbel_muzero seed=7 exp_name=a/b env.stop_value=1 "
        "policy.model.norm_type=BN policy.use_priority=true policy.update_per_collect=3"
    )
    config = load_config(line.split())
    plain = config_to_dict(config)
    assert config_from_dict(plain) == config
    assert config_from_dict(json.loads(json.dumps(plain))) == config
    assert plain["policy"]["model"]["norm_type"] == "BN"
    assert config_from_dict({}) == Config()


def test_sections_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().policy.batch_size = 3  # type: ignore[misc]


def test_every_field_has_a_sentence_under_it() -> None:
    sources = [inspect.getsource(module) for module in (config_module, policy_options)]
    nodes = [node for source in sources for node in ast.parse(source).body]
    fields = 0
    for section in (node for node in nodes if isinstance(node, ast.ClassDef)):
        for node, below in zip(section.body, [*section.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign):
                continue
            fields += 1
            name = f"{section.name}.{ast.unparse(node.target)}"
            assert isinstance(below, ast.Expr), name
            assert isinstance(below.value, ast.Constant), name
            sentence = below.value.value
            assert sentence[0].isupper(), name
            assert sentence.endswith("."), name
    assert fields > 60


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    config = Config(policy=PolicyConfig(batch_size=33))
    check_shares(config, 1)
    check_shares(config, 3)
    with pytest.raises(UserError) as refused:
        check_shares(config, 2)
    assert str(refused.value) == (
        "policy.batch_size=33 cannot be shared by 2 ranks: choose a multiple of 2"
    )


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("env.collector_env_num=3", "env.collector_env_num=3"),
        ("policy.n_episode=3", "policy.n_episode=3"),
        ("policy.random_collect_episode_num=3", "policy.random_collect_episode_num=3"),
        ("policy.replay_buffer_size=3", "policy.replay_buffer_size=3"),
    ],
)
def test_a_count_of_fewer_than_one_a_rank_is_refused(override: str, key: str) -> None:
    config = load_config([override])
    check_shares(config, 2)
    with pytest.raises(UserError) as refused:
        check_shares(config, 4)
    assert str(refused.value) == f"{key} is fewer than 4 ranks: set at least one each"
