"""The frozen inference copy of the network that the search calls.

A step of the search on a small network is nearly all dispatch, so the work is arranged as few and
wide calls: batch norms are folded into their linears, layers that read one input share a matmul,
the action's one-hot is a row of a table, and both categorical heads are decoded in one softmax.
The latents of all nodes stay here, on the network's device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lightzero_lite import transforms
from lightzero_lite.networks import MuZeroModelMLP, NetworkShape
from lightzero_lite.types import Float32Array, Int32Array, RecurrentOutput, RootOutput


class _Dense(NamedTuple):
    """Linear, optional layer norm, and ReLU, as plain tensors."""

    weight: Tensor  # [in, out]
    bias: Tensor  # [out]
    norm: nn.LayerNorm | None

    def run(self, x: Tensor, out: Tensor) -> Tensor:
        """Return relu(norm(x @ weight + bias)), [B, out]; `out` is used where it can be."""
        torch.addmm(self.bias, x, self.weight, out=out)
        return self.activate(out)

    def activate(self, x: Tensor) -> Tensor:
        """Return relu(norm(x)), in place without a norm."""
        if self.norm is None:
            return x.relu_()
        norm = self.norm
        return functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps).relu_()


def _dense(linear: nn.Module, norm: nn.Module) -> _Dense:
    """Take a linear and what follows it; a batch norm in eval mode is folded into the linear."""
    assert isinstance(linear, nn.Linear)
    weight, bias = linear.weight.detach().t().clone(), linear.bias.detach().clone()
    if isinstance(norm, nn.BatchNorm1d):
        assert norm.running_var is not None
        assert norm.running_mean is not None
        factor = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
        weight *= factor
        bias = (bias - norm.running_mean) * factor + norm.bias.detach()
    if not isinstance(norm, nn.LayerNorm):
        return _Dense(weight.contiguous(), bias, None)
    frozen = nn.LayerNorm(norm.normalized_shape, norm.eps, device=weight.device)
    frozen.load_state_dict(norm.state_dict())
    return _Dense(weight.contiguous(), bias, frozen.requires_grad_(requires_grad=False))


def _hidden_layers(block: nn.Sequential) -> list[_Dense]:
    """Return every linear of a block that has an activation behind it, in order."""
    layers = list(block)
    linears = [i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
    return [_dense(layers[i], layers[i + 1]) for i in linears if i + 1 < len(layers)]


class _SharedInput:
    """Layers that read one input: one matmul for all where no layer norm stands between."""

    def __init__(self, layers: Sequence[_Dense]) -> None:
        self.layers = layers
        self.widths = [layer.bias.shape[0] for layer in layers]
        self.is_fused = all(layer.norm is None for layer in layers)
        self.fused = _Dense(
            torch.cat([layer.weight for layer in layers], dim=1).contiguous(),
            torch.cat([layer.bias for layer in layers]),
            None,
        )

    def run(self, x: Tensor, out: Tensor) -> Sequence[Tensor]:
        """Return each layer's activations; `out` is [B, sum of widths]."""
        torch.addmm(self.fused.bias, x, self.fused.weight, out=out)
        parts = out.split_with_sizes(self.widths, dim=1)
        if self.is_fused:
            out.relu_()
            return parts
        return [layer.activate(part) for layer, part in zip(self.layers, parts, strict=True)]


class _CategoricalHeads:
    """The last linears of categorical heads, padded to one number of atoms, decoded together."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        sizes = [linear.out_features for linear in linears]
        width, inputs = max(sizes), linears[0].in_features
        device = linears[0].weight.device
        self.weight = torch.zeros(len(linears), inputs, width, device=device)
        # A padded atom gets no probability: exp(-inf) = 0.
        self.bias = torch.full((len(linears), 1, width), -torch.inf, device=device)
        self.atoms = torch.zeros(len(linears), width, 1, device=device)
        for i, (linear, size) in enumerate(zip(linears, sizes, strict=True)):
            self.weight[i, :, :size] = linear.weight.detach().t()
            self.bias[i, 0, :size] = linear.bias.detach()
            self.atoms[i, :size, 0] = transforms.atoms(size // 2)

    def run(self, hidden: Tensor, out: Tensor) -> None:
        """Write the mean atom of each head into out [heads, B, 1]; hidden is [heads, B, H]."""
        logits = torch.baddbmm(self.bias, hidden, self.weight)
        torch.bmm(torch.softmax(logits, dim=-1), self.atoms, out=out)


class _Buffers:
    """Preallocated work space for batches of one size."""

    def __init__(self, batch: int, shape: NetworkShape, device: torch.device) -> None:
        width, hidden = shape.latent_state_dim, shape.head_hidden_dim
        trunk = width if shape.res_connection_in_dynamics else hidden

        def empty(*size: int) -> Tensor:
            return torch.empty(size, device=device)

        self.latent, self.action_rows = empty(batch, width), empty(batch, width)
        self.dense, self.trunk = empty(batch, width), empty(batch, width + trunk)
        self.heads, self.head_hidden = empty(batch, 2 * hidden), empty(2, batch, hidden)
        # reward [B], value [B] and prior logits [B, A] leave the device in one copy.
        self.packed = empty(batch * (2 + shape.action_num))
        is_cuda = device.type == "cuda"
        self.host = (
            torch.empty_like(self.packed, device="cpu", pin_memory=True) if is_cuda else self.packed
        )
        self.rows = np.arange(batch, dtype=np.int64)
        self.index = torch.empty(2, batch, dtype=torch.int64, pin_memory=is_cuda)
        self.index_view = self.index.numpy()
        self.reward_value = self.host[: 2 * batch].numpy().reshape(2, batch)
        self.prior_logits = self.host[2 * batch :].numpy().reshape(batch, shape.action_num)


class Predictor:
    """Answers roots and steps of B searches from a snapshot of a MuZeroModelMLP."""

    def __init__(self, shape: NetworkShape, *, num_simulations: int, device: torch.device) -> None:
        """Reserve nothing yet: buffers are made for each batch size when it first comes.

        Args:
            shape: The network's options.
            num_simulations: A search makes this many nodes beside the root.
            device: Where the snapshot and the latents live.
        """
        self.shape, self.device, self.num_nodes = shape, device, num_simulations + 1
        self.model = MuZeroModelMLP(shape).to(device).eval().requires_grad_(requires_grad=False)
        self.buffers: dict[int, _Buffers] = {}
        self.storage = torch.empty(0, device=device)
        self.load(self.model)

    def load(self, model: MuZeroModelMLP) -> None:
        """Take a snapshot of the model's parameters and running statistics."""
        self.model.load_state_dict(model.state_dict())
        dynamics, prediction = self.model.dynamics_network, self.model.prediction_network
        is_residual = self.shape.res_connection_in_dynamics
        transition = dynamics.fc_dynamics_1 if is_residual else dynamics.fc_dynamics
        first, self.transition = _hidden_layers(transition)
        width = self.shape.latent_state_dim
        self.first = _Dense(first.weight[:width].contiguous(), first.bias, first.norm)
        self.action_table = first.weight[width:] + first.bias
        common_first, self.common = _hidden_layers(prediction.fc_prediction_common)
        (reward_hidden,) = _hidden_layers(dynamics.fc_reward_head)
        (value_hidden,) = _hidden_layers(prediction.fc_value_head)
        (policy_hidden,) = _hidden_layers(prediction.fc_policy_head)
        self.reward_layers = [reward_hidden]
        if is_residual:
            self.reward_layers = [*_hidden_layers(dynamics.fc_dynamics_2), reward_hidden]
        self.trunk = _SharedInput([common_first, self.reward_layers[0]])
        self.heads = _SharedInput([value_hidden, policy_hidden])
        self.scalar_heads = _CategoricalHeads(
            [_last(dynamics.fc_reward_head), _last(prediction.fc_value_head)]
        )
        policy = _last(prediction.fc_policy_head)
        self.policy_weight, self.policy_bias = policy.weight.t().contiguous(), policy.bias

    @torch.inference_mode()
    def initial(self, observations: Float32Array) -> RootOutput:
        """Encode observations [B, O] as the latents of node 0 and evaluate them."""
        batch = len(observations)
        buffers = self._buffers_of(batch)
        size = self.num_nodes * batch
        self.latents = self.storage[:size].view(self.num_nodes, batch, -1)
        self.flat_latents = self.storage[:size]
        inputs = torch.from_numpy(np.ascontiguousarray(observations)).to(self.device)
        torch.add(self.model.representation_network(inputs), 0.0, out=self.latents[0])
        self._evaluate(self.latents[0], buffers)
        return RootOutput(buffers.prior_logits.copy(), buffers.reward_value[1].copy())

    @torch.inference_mode()
    def recurrent_fn(
        self, parent_node: Int32Array, action: Int32Array, new_node: int
    ) -> RecurrentOutput:
        """Step every root's model; the arrays returned are overwritten by the next call.

        Args:
            parent_node: Node to step from, [B].
            action: Action taken there, [B].
            new_node: The node that the result is stored as, the same for all roots.
        """
        batch = len(parent_node)
        buffers = self.buffers[batch]
        np.multiply(parent_node, batch, out=buffers.index_view[0], casting="unsafe")
        buffers.index_view[0] += buffers.rows
        buffers.index_view[1] = action
        index = buffers.index.to(self.device, non_blocking=True)
        latent = torch.index_select(self.flat_latents, 0, index[0], out=buffers.latent)
        torch.index_select(self.action_table, 0, index[1], out=buffers.action_rows)
        hidden = torch.addmm(buffers.action_rows, latent, self.first.weight, out=buffers.dense)
        hidden = self.first.activate(hidden)
        new_latent = self.latents[new_node]
        torch.addmm(self.transition.bias, hidden, self.transition.weight, out=new_latent)
        activated = self.transition.activate(new_latent)
        if self.shape.res_connection_in_dynamics:
            torch.add(activated, latent, out=new_latent)
        elif activated is not new_latent:
            new_latent.copy_(activated)
        self._evaluate(new_latent, buffers)
        reward, value = buffers.reward_value
        return RecurrentOutput(reward, value, buffers.prior_logits)

    def _evaluate(self, latent: Tensor, buffers: _Buffers) -> None:
        """Write reward, value and prior logits of latents [B, D] into the host buffer."""
        common, reward = self.trunk.run(latent, buffers.trunk)
        for layer in self.reward_layers[1:]:
            reward = layer.activate(torch.addmm(layer.bias, reward, layer.weight))
        features = self.common.run(common, buffers.dense)
        value, policy = self.heads.run(features, buffers.heads)
        torch.stack((reward, value), out=buffers.head_hidden)
        batch = len(latent)
        scalars = buffers.packed[: 2 * batch].view(2, batch, 1)
        self.scalar_heads.run(buffers.head_hidden, scalars)
        prior_logits = buffers.packed[2 * batch :].view(batch, -1)
        torch.addmm(self.policy_bias, policy, self.policy_weight, out=prior_logits)
        if self.device.type == "cuda":
            buffers.host.copy_(buffers.packed, non_blocking=True)
            torch.cuda.current_stream(self.device).synchronize()
        _unscale_in_place(buffers.reward_value)

    def _buffers_of(self, batch: int) -> _Buffers:
        """Return the work space for a batch size, made when it first comes."""
        if batch not in self.buffers:
            self.buffers[batch] = _Buffers(batch, self.shape, self.device)
            rows = self.num_nodes * max(self.buffers)
            if len(self.storage) < rows:
                self.storage = torch.empty(rows, self.shape.latent_state_dim, device=self.device)
        return self.buffers[batch]


def _last(head: nn.Sequential) -> nn.Linear:
    """Return the linear that ends a head."""
    linear = head[-1]
    assert isinstance(linear, nn.Linear)
    return linear


def _unscale_in_place(y: Float32Array) -> None:
    """Apply h^-1 (`transforms.unscale_value`) to a small host array: five calls, no tensor."""
    root = np.abs(y)
    root += np.float32(1.0 + transforms.EPSILON)
    divisor = np.sqrt(np.float32(4.0 * transforms.EPSILON) * root + np.float32(1.0))
    divisor += np.float32(1.0)
    root *= np.float32(2.0)
    root /= divisor
    np.square(root, out=root)
    root -= np.float32(1.0)
    np.copysign(root, y, out=y)
