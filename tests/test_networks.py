"""Networks, transforms and predictor against LightZero's own answers and against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lightzero_lite import transforms
from lightzero_lite.networks import MuZeroModelMLP, NetworkShape
from lightzero_lite.predictor import Predictor

GOLDEN = Path(__file__).parent / "golden"


def lightzero_shape(*, residual: bool) -> NetworkShape:
    """Return the options of the golden checkpoints, as their page states them."""
    return NetworkShape(
        observation_dim=4,
        action_num=2,
        latent_state_dim=24,
        head_hidden_dim=32,
        reward_support_scale=10,
        value_support_scale=30,
        norm_type="BN",
        res_connection_in_dynamics=residual,
        has_projection=True,
        projection_dim=40,
        prediction_hidden_dim=20,
        representation_activation="gelu",
        representation_norm=True,
    )


def golden_model(name: str) -> MuZeroModelMLP:
    model = MuZeroModelMLP(lightzero_shape(residual=name == "residual"))
    model.load_state_dict(torch.load(GOLDEN / f"lightzero_{name}.pth.tar")["model"])
    return model.eval()


@pytest.mark.parametrize("name", ["residual", "plain"])
def test_model_answers_as_lightzero(name: str) -> None:
    model = golden_model(name)
    expected = {
        k: torch.from_numpy(v) for k, v in np.load(GOLDEN / f"lightzero_{name}_io.npz").items()
    }
    with torch.no_grad():
        latent = model.representation_network(expected["obs"])
        for k in range(4):
            if k:
                latent = model.dynamics_network(latent, expected["actions"][:, k - 1].long())
                reward = model.dynamics_network.reward_logits(latent)
                torch.testing.assert_close(
                    reward, expected[f"reward_logits_{k}"], atol=1e-5, rtol=0
                )
            value, policy = model.prediction_network(latent)
            torch.testing.assert_close(latent, expected[f"latent_state_{k}"], atol=1e-5, rtol=0)
            torch.testing.assert_close(value, expected[f"value_logits_{k}"], atol=1e-5, rtol=0)
            torch.testing.assert_close(policy, expected[f"policy_logits_{k}"], atol=1e-5, rtol=0)
            if k == 0:
                scalar = transforms.expected_value(value, 30)
                # LightZero decodes by a float32 form of h^-1 that cancels: 2e-5 is its own error.
                golden = expected["value_scalar_0"][:, 0]
                torch.testing.assert_close(scalar, golden, atol=0, rtol=5e-5)
        online = model.project(latent, with_gradient=True)
        target = model.project(latent, with_gradient=False)
    torch.testing.assert_close(online, expected["projection"], atol=1e-5, rtol=0)
    torch.testing.assert_close(target, expected["projection_target"], atol=1e-5, rtol=0)


def test_transform_and_two_hot_as_lightzero() -> None:
    golden = np.load(GOLDEN / "lightzero_transform.npz")
    scalar = torch.from_numpy(golden["scalar"])
    scaled = transforms.scale_value(scalar)
    np.testing.assert_allclose(scaled, golden["transformed"], atol=1e-5, rtol=1e-6)
    two_hot = transforms.two_hot(torch.from_numpy(golden["transformed"]), 30)
    np.testing.assert_allclose(two_hot, golden["two_hot"], atol=1e-5)


def test_two_hot_rows_by_hand() -> None:
    rows = transforms.two_hot(torch.tensor([0.0, 1.25, -1.5, 2.0, 7.0, -7.0]), 2)
    expected = [
        [0, 0, 1, 0, 0],
        [0, 0, 0, 0.75, 0.25],
        [0.5, 0.5, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(rows, expected)
    clipped = transforms.is_clipped(torch.tensor([2.0, 2.1, -2.1]), 2)
    assert clipped.tolist() == [False, True, True]


def test_value_transform_is_undone() -> None:
    x = torch.tensor([-500.0, -3.0, -1e-3, 0.0, 1e-3, 0.5, 99.0, 1e4])
    back = transforms.unscale_value(transforms.scale_value(x))
    torch.testing.assert_close(back, x, rtol=1e-5, atol=1e-6)
    # h(3) = sqrt(4) - 1 + 0.003, by hand.
    assert float(transforms.scale_value(torch.tensor(3.0))) == pytest.approx(1.003)


def random_model(shape: NetworkShape) -> MuZeroModelMLP:
    """Return a model with no zero weight and batch norms that have seen data."""
    torch.manual_seed(1)
    model = MuZeroModelMLP(shape)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


@pytest.mark.parametrize("norm_type", ["BN", "LN", "none"])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("batch", [1, 7])
def test_predictor_equals_the_model(norm_type: str, residual: bool, batch: int) -> None:
    shape = NetworkShape(**{**vars(lightzero_shape(residual=residual)), "norm_type": norm_type})
    model = random_model(shape)
    predictor = Predictor(shape, num_simulations=3, device=torch.device("cpu"))
    predictor.initial(np.zeros((batch + 2, 4), dtype=np.float32))  # another size first
    predictor.load(model)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(batch, 4)).astype(np.float32)
    root = predictor.initial(observations)
    with torch.no_grad():
        latents = [model.representation_network(torch.from_numpy(observations))]
        value, policy = model.prediction_network(latents[0])
    np.testing.assert_allclose(root.prior_logits, policy, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(
        root.value, transforms.expected_value(value, 30), atol=1e-3, rtol=1e-3
    )
    for new_node in (1, 2, 3):
        parent = rng.integers(0, new_node, batch).astype(np.int32)
        action = rng.integers(0, 2, batch).astype(np.int32)
        answer = predictor.recurrent_fn(parent, action, new_node)
        source = torch.stack([latents[p][b] for b, p in enumerate(parent)])
        with torch.no_grad():
            latents.append(model.dynamics_network(source, torch.from_numpy(action).long()))
            reward = model.dynamics_network.reward_logits(latents[-1])
            value, policy = model.prediction_network(latents[-1])
        np.testing.assert_allclose(answer.prior_logits, policy, atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(
            answer.value, transforms.expected_value(value, 30), atol=1e-3, rtol=1e-3
        )
        np.testing.assert_allclose(
            answer.reward, transforms.expected_value(reward, 10), atol=1e-3, rtol=1e-3
        )


def leave_numpy_to_the_cpu(predictor: Predictor, batch: int) -> None:
    """Let a predictor on a CPU take the way of a GPU: torch alone, no kernels."""
    buffers = predictor.buffers[batch]
    buffers.latent_array = None
    for work in (buffers.first, buffers.transition, buffers.trunk, buffers.features, buffers.heads):
        work.array = None


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm_type", ["BN", "LN", "none"])
def test_the_way_of_a_gpu_answers_as_that_of_the_cpu(norm_type: str, residual: bool) -> None:
    batch, rng = 5, np.random.default_rng(0)
    shape = NetworkShape(**{**vars(lightzero_shape(residual=residual)), "norm_type": norm_type})
    model = random_model(shape)
    with_kernels, with_torch = (
        Predictor(shape, num_simulations=3, device=torch.device("cpu")) for _ in range(2)
    )
    with_torch.initial(np.zeros((batch, 4), dtype=np.float32))
    leave_numpy_to_the_cpu(with_torch, batch)
    observations = rng.normal(size=(batch, 4)).astype(np.float32)
    answers = []
    for predictor in (with_kernels, with_torch):
        predictor.load(model)
        answers.append([*predictor.initial(observations)])
    for new_node in (1, 2, 3):
        parent = rng.integers(0, new_node, batch).astype(np.int32)
        action = rng.integers(0, 2, batch).astype(np.int32)
        for predictor, answer in zip((with_kernels, with_torch), answers, strict=True):
            answer += [x.copy() for x in predictor.recurrent_fn(parent, action, new_node)]
    for ours, theirs in zip(*answers, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-4)
