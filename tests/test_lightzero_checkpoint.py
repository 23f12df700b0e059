"""LightZero's checkpoints: options read from the file, training continued from them."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from lightzero_lite.building import network_shape
from lightzero_lite.config import Config, ModelConfig, PolicyConfig, load_config
from lightzero_lite.envs.factory import EnvShape
from lightzero_lite.networks import MuZeroModelMLP, NetworkShape
from lightzero_lite.runtime.checkpoint import load_checkpoint
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.lightzero_checkpoint import taken_options, with_model_options
from lightzero_lite.sections import known_keys
from lightzero_lite.train import build_trainer
from lightzero_lite.types import UserError
from tests.launch import ROOT
from tests.test_networks import lightzero_shape

GOLDEN = ROOT / "tests" / "golden"
NAMES = ["residual", "plain"]
CARTPOLE = EnvShape(4, 2, 500)


def golden(name: str) -> Path:
    return GOLDEN / f"lightzero_{name}.pth.tar"


def shape_read_from(model: dict[str, torch.Tensor]) -> NetworkShape:
    return network_shape(with_model_options(Config(), model).policy, CARTPOLE)


@pytest.mark.parametrize("name", NAMES)
def test_all_options_are_read_from_the_file(name: str) -> None:
    shape = shape_read_from(torch.load(golden(name))["model"])
    assert shape == lightzero_shape(residual=name == "residual")


@pytest.mark.parametrize("norm_type", ["BN", "LN", "none"])
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("ssl_loss_weight", [0.0, 2.0])
def test_options_of_any_network_are_read(
    norm_type: Any, is_new: bool, ssl_loss_weight: float
) -> None:
    model = ModelConfig(
        latent_state_dim=7,
        head_hidden_dim=5,
        norm_type=norm_type,
        res_connection_in_dynamics=is_new,
        reward_support_scale=3,
        value_support_scale=11,
        projection_dim=6 if ssl_loss_weight else ModelConfig().projection_dim,
        prediction_hidden_dim=9 if ssl_loss_weight else ModelConfig().prediction_hidden_dim,
        representation_activation="gelu" if is_new else "relu",
        representation_norm=is_new,
    )
    shape = network_shape(PolicyConfig(model=model, ssl_loss_weight=ssl_loss_weight), CARTPOLE)
    assert shape_read_from(MuZeroModelMLP(shape).state_dict()) == shape


def test_a_scalar_head_is_refused() -> None:
    model = torch.load(golden("plain"))["model"]
    model["dynamics_network.fc_reward_head.3.weight"] = torch.zeros(1, 32)
    with pytest.raises(UserError, match=r"has 1 outputs in dynamics_network\.fc_reward_head"):
        with_model_options(Config(), model)


def test_the_options_taken_can_be_given_on_a_command_line() -> None:
    model = torch.load(golden("plain"))["model"]
    taken = with_model_options(Config(), {k: v for k, v in model.items() if "proj" not in k})
    again = load_config(taken_options(taken).split())
    assert again.policy.model == taken.policy.model
    assert again.policy.ssl_loss_weight == taken.policy.ssl_loss_weight == 0


@pytest.mark.parametrize("missing", [[], ["optimizer"], ["target_model", "last_iter", "last_step"]])
def test_what_a_checkpoint_lacks_is_completed(tmp_path: Path, missing: list[str]) -> None:
    state = torch.load(golden("plain"))
    for key in missing:
        del state[key]
    torch.save(state, tmp_path / "a.pth.tar")
    read = load_checkpoint(tmp_path / "a.pth.tar")
    last_step = 0 if "last_step" in missing else 5678
    assert read["last_iter"] == (0 if "last_iter" in missing else 1234)
    assert read["counters"] == {"envstep": last_step} == {"envstep": read["last_step"]}
    assert read["target_model"].keys() == state["model"].keys()


def resumed(path: Path, folder: Path, *overrides: str) -> dict[str, Any]:
    """Continue a checkpoint for two phases of at least one update; return the final state."""
    small = ["policy.num_simulations=2", "policy.batch_size=8", "env.n_evaluator_episode=2"]
    end = ["max_env_step=5679", "policy.update_per_collect=3", "policy.n_episode=2"]
    options = [*small, *end, "device=cpu", f"exp_name={folder}", *overrides]
    trainer = build_trainer(["env=cartpole", f"resume={path}", *options], Ranks())
    before = {name: t.clone() for name, t in trainer.learner.model.state_dict().items()}
    for name, tensor in torch.load(path)["model"].items():
        assert torch.equal(before[name], tensor), name
    trainer.run()
    name = f"iteration_{trainer.train_iter}.pth.tar"
    state: dict[str, Any] = torch.load(folder / "ckpt" / name)
    weight = "representation_network.fc_representation.0.weight"
    assert not torch.equal(state["model"][weight], before[weight])
    return state


@pytest.mark.parametrize("name", NAMES)
def test_training_continues_from_lightzeros_counters(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = resumed(golden(name), tmp_path / "run")
    output = capsys.readouterr().out
    assert "is LightZero's; options taken: policy.model.latent_state_dim=24 " in output
    assert "starts afresh" not in output
    assert state["last_iter"] == 1234 + 3
    assert state["last_step"] == state["counters"]["envstep"] > 5678
    # Adam went on counting where LightZero's had taken one step.
    assert float(state["optimizer"]["state"][0]["step"]) == 1 + 3
    # The options are in our checkpoint, and it has every key that LightZero's loader reads.
    assert state["config"]["policy"]["model"]["latent_state_dim"] == 24
    theirs = torch.load(golden(name))
    assert theirs.keys() <= state.keys()
    assert list(state["model"]) == list(theirs["model"])
    shapes = [{k: v.shape for k, v in one["model"].items()} for one in (state, theirs)]
    assert shapes[0] == shapes[1]


def test_a_folder_that_lightzero_wrote_is_not_written_into(tmp_path: Path) -> None:
    path = tmp_path / "lightzero" / "ckpt" / "ckpt_best.pth.tar"
    path.parent.mkdir(parents=True)
    path.write_bytes(golden("plain").read_bytes())
    with pytest.raises(UserError, match="is LightZero's: set exp_name to a new folder"):
        build_trainer(["env=cartpole", f"resume={path}"], Ranks())


@pytest.mark.parametrize("what", ["missing", "another kind", "other parameters"])
def test_an_optimizer_that_does_not_fit_starts_afresh(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.pth.tar"
    state = torch.load(golden("plain"))
    if what == "missing":
        del state["optimizer"]
    elif what == "other parameters":
        state["optimizer"]["state"][0]["exp_avg"] = torch.zeros(3)
    torch.save(state, path)
    kind = "SGD" if what == "another kind" else "Adam"
    final = resumed(path, tmp_path / "run", f"policy.optim_type={kind}")
    line = f"resume={path}: no optimizer state for {kind}: it starts afresh"
    assert capsys.readouterr().out.count(line) == 1
    entry = final["optimizer"]["state"][0]
    assert float(entry["step"]) == 3 if kind == "Adam" else entry.keys() == {"momentum_buffer"}


def test_a_kind_of_optimizer_changed_between_our_runs_starts_afresh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = resumed(golden("plain"), tmp_path / "first")
    path = tmp_path / "first" / "ckpt" / f"iteration_{first['last_iter']}.pth.tar"
    model = ModelConfig(**first["config"]["policy"]["model"])
    options = [f"policy.model.{name}={value}" for name, value in asdict(model).items()]
    capsys.readouterr()
    for kind, is_said in (("SGD", True), ("AdamW", False)):
        overrides = [*options, f"policy.optim_type={kind}", "env.n_evaluator_episode=2"]
        build_trainer([f"resume={path}", f"exp_name={tmp_path / 'b'}", *overrides], Ranks())
        assert ("starts afresh" in capsys.readouterr().out) == is_said


def test_every_option_that_the_page_for_newcomers_names_exists() -> None:
    text = (ROOT / "docs" / "from_lightzero.md").read_text()
    same = text.partition("Not listed:")[2].partition(").")[0]
    rows = re.findall(r"^\|[^|]+\|([^|]+)\|[^|]*\|$", text.partition("## Options")[2], re.M)
    named = set(re.findall(r"`([a-z_.]+\.[a-z_.]+|exp_name)[`=]", same + "".join(rows)))
    assert len(named) > 40
    assert named <= set(known_keys(Config))
