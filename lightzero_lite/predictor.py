"""The frozen inference copy of the network that the search calls.

A step of the search on a small network is nearly all dispatch, so the work is arranged as few and
wide calls: batch norms are folded into their linears, layers that read one input share a matmul,
the action's one-hot is a row of a table, and both categorical heads are decoded in one softmax.
The latents of all nodes stay here, on the network's device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from lightzero_lite import transforms
from lightzero_lite.networks import MuZeroModelMLP, NetworkShape
from lightzero_lite.normalization import ObservationNormalizer
from lightzero_lite.predictor_kernels import bias_relu, gather, norm_relu, unscale
from lightzero_lite.types import Float32Array, Int32Array, RecurrentOutput, RootOutput


class _Work:
    """A preallocated [B, W] tensor, views of its layers' columns, and numpy's view on a CPU."""

    def __init__(self, batch: int, hidden: _Hidden, device: torch.device) -> None:
        self.tensor = torch.empty(batch, hidden.width, device=device)
        self.groups = _columns(self.tensor, hidden.group_widths)
        self.layers = _columns(self.tensor, hidden.layer_widths)
        self.array = self.tensor.numpy() if device.type == "cpu" else None
        self.first_row = np.zeros(batch, np.int32)


class _Hidden:
    """Hidden layers side by side: their linears, then each one's norm, then ReLU.

    The layers of one group read one input and share a matmul. Batch norms are folded into the
    linears; layer norms run over all layers at once. On a CPU one kernel adds the biases too: addmm
    would copy them into its output first, which costs as much as the matmul of eight roots.
    """

    def __init__(self, *groups: Sequence[tuple[nn.Module, nn.Module]]) -> None:
        """Take linears, each with what follows it: a norm, or the activation itself."""
        folded = [[_fold(linear, norm) for linear, norm in group] for group in groups]
        self.weights = [torch.cat([w for w, _ in group], dim=1).contiguous() for group in folded]
        self.biases = [torch.cat([bias for _, bias in group]) for group in folded]
        self.group_widths = [len(bias) for bias in self.biases]
        self.layer_widths = [len(bias) for group in folded for _, bias in group]
        self.width = sum(self.layer_widths)
        self.starts = np.cumsum([0, *self.layer_widths], dtype=np.int64)
        self.bias_rows = torch.cat(self.biases).cpu().numpy()[None]
        norms = [n for group in groups for _, n in group if isinstance(n, nn.LayerNorm)]
        self.has_norm = bool(norms)
        if norms:
            self.epsilon = norms[0].eps
            self.gamma = torch.cat([norm.weight.detach() for norm in norms])
            self.beta = torch.cat([norm.bias.detach() for norm in norms])
            self.gamma_array, self.beta_array = self.gamma.cpu().numpy(), self.beta.cpu().numpy()

    def run(self, work: _Work, *inputs: Tensor) -> Sequence[Tensor]:
        """Return the activations [B, width] of each layer; one input [B, in] a group."""
        if work.array is None:
            for i, x in enumerate(inputs):
                torch.addmm(self.biases[i], x, self.weights[i], out=work.groups[i])
            self.activate(work)
        else:
            for i, x in enumerate(inputs):
                torch.mm(x, self.weights[i], out=work.groups[i])
            self.finish(work.array, self.bias_rows, work.first_row)
        return work.layers

    def finish(self, x: Float32Array, bias: Float32Array, row: Int32Array) -> None:
        """Replace x by relu(norm(x + bias[row])), in place, on a CPU."""
        if self.has_norm:
            gamma, beta = self.gamma_array, self.beta_array
            norm_relu(x, bias, row, self.starts, gamma, beta, self.epsilon)
        else:
            bias_relu(x, bias, row)

    def activate(self, work: _Work) -> None:
        """Replace the linears' answers by relu(norm(...)), in place, on a GPU."""
        if not self.has_norm:
            work.tensor.relu_()
            return
        gammas, betas = (x.split_with_sizes(self.layer_widths) for x in (self.gamma, self.beta))
        for part, gamma, beta in zip(work.layers, gammas, betas, strict=True):
            normed = torch.layer_norm(part, part.shape[1:], gamma, beta, self.epsilon)
            part.copy_(normed.relu_())


class _Scalars:
    """The last linears of the value and reward heads, on one support, decoded together."""

    def __init__(self, value: nn.Linear, reward: nn.Linear) -> None:
        scale = max(value.out_features, reward.out_features) // 2
        device = value.weight.device
        self.atoms = transforms.atoms(scale, device)
        self.weight = torch.zeros(2, value.in_features, 2 * scale + 1, device=device)
        # An atom that only the other head has gets no probability: exp(-inf) = 0.
        self.bias = torch.full((2, 1, 2 * scale + 1), -torch.inf, device=device)
        for i, linear in enumerate((value, reward)):
            first = scale - linear.out_features // 2
            columns = slice(first, first + linear.out_features)
            self.weight[i, :, columns] = linear.weight.detach().t()
            self.bias[i, 0, columns] = linear.bias.detach()

    def run(self, hidden: Tensor, logits: Tensor, flat_logits: Tensor, out: Tensor) -> None:
        """Write the mean atom of each head and row.

        Args:
            hidden: [2, B, H], the value and the reward head's hidden layers.
            logits: [2, B, S], work space.
            flat_logits: The same, seen as [2 * B, S].
            out: [2 * B], written.
        """
        torch.baddbmm(self.bias, hidden, self.weight, out=logits)
        torch.softmax(logits, dim=-1, out=logits)
        torch.mv(flat_logits, self.atoms, out=out)


class _Network:
    """The stages of a model step, from the latent and the action to reward, value and policy."""

    def __init__(self, model: MuZeroModelMLP) -> None:
        dynamics, prediction = model.dynamics_network, model.prediction_network
        width, self.is_residual = model.shape.latent_state_dim, dynamics.is_residual
        block = dynamics.fc_dynamics_1 if self.is_residual else dynamics.fc_dynamics
        first, second = _pairs(block)
        self.first, self.transition = _Hidden([first]), _Hidden([second])
        # The one-hot's part of the first linear is a row for each action, bias included.
        self.table = (self.first.weights[0][width:] + self.first.biases[0]).contiguous()
        self.first.weights[0] = self.first.weights[0][:width].contiguous()
        common_first, common_second = _pairs(prediction.fc_prediction_common)
        (value,), (policy,) = _pairs(prediction.fc_value_head), _pairs(prediction.fc_policy_head)
        (reward,) = _pairs(dynamics.fc_reward_head)
        if self.is_residual:
            reward_first, reward_second = _pairs(dynamics.fc_dynamics_2)
            self.trunk = _Hidden([common_first, reward_first])
            self.features = _Hidden([common_second], [reward_second])
        else:
            self.trunk = _Hidden([common_first])
            self.features = _Hidden([common_second])
        self.heads = _Hidden([value, policy], [reward])
        self.scalars = _Scalars(_last(prediction.fc_value_head), _last(dynamics.fc_reward_head))
        last = _last(prediction.fc_policy_head)
        self.policy_weight = last.weight.detach().t().contiguous()
        self.policy_bias = last.bias.detach().clone()


class _Buffers:
    """Preallocated work space for batches of one size."""

    def __init__(self, batch: int, network: _Network, device: torch.device) -> None:
        num_actions = len(network.policy_bias)
        self.first, self.transition, self.trunk, self.features, self.heads = (
            _Work(batch, hidden, device)
            for hidden in (
                network.first, network.transition, network.trunk, network.features, network.heads
            )
        )  # fmt: skip
        self.latent = torch.empty_like(self.transition.tensor)
        self.latent_array = self.latent.numpy() if device.type == "cpu" else None
        self.rows = torch.empty_like(self.first.tensor)
        # The hidden layers stand as [value, policy, reward], all of one width.
        width = network.heads.layer_widths[0]
        self.scalar_hidden = self.heads.tensor.as_strided(
            (2, batch, width), (2 * width, 3 * width, 1)
        )
        self.logits = torch.empty(2, batch, len(network.scalars.atoms), device=device)
        self.flat_logits = self.logits.view(2 * batch, -1)
        # value [B], reward [B] and prior logits [B, A] leave the device in one copy.
        self.packed = torch.empty(batch * (2 + num_actions), device=device)
        self.scalars = self.packed[: 2 * batch]
        self.policy = self.packed[2 * batch :].view(batch, num_actions)
        is_cuda = device.type == "cuda"
        self.host = torch.empty(self.packed.shape, pin_memory=True) if is_cuda else self.packed
        array = self.host.numpy()
        self.scalar_array = array[: 2 * batch]
        self.value, self.reward = self.scalar_array.reshape(2, batch)
        self.prior_logits = array[2 * batch :].reshape(batch, num_actions)
        self.index = torch.empty(2, batch, dtype=torch.int64, pin_memory=is_cuda)
        self.index_array = self.index.numpy()
        self.root = np.arange(batch)


class Predictor:
    """Answers roots and steps of B searches from a snapshot of a MuZeroModelMLP."""

    def __init__(
        self,
        shape: NetworkShape,
        *,
        num_simulations: int,
        device: torch.device,
        normalizer: ObservationNormalizer | None = None,
    ) -> None:
        """Reserve nothing yet: buffers are made for each batch size when it first comes.

        Args:
            shape: The network's options.
            num_simulations: A search makes this many nodes beside the root.
            device: Where the snapshot and the latents live.
            normalizer: Applied to all observations, always as it is then; None: none is.
        """
        self.normalizer = normalizer or ObservationNormalizer(
            shape.observation_dim, is_enabled=False
        )
        self.device, self.num_nodes, self.width = (
            device,
            num_simulations + 1,
            shape.latent_state_dim,
        )
        self.model = MuZeroModelMLP(shape).to(device).eval().requires_grad_(requires_grad=False)
        self.buffers: dict[int, _Buffers] = {}
        self.storage = torch.empty(0, self.width, device=device)
        self.load(self.model)

    def load(self, model: MuZeroModelMLP) -> None:
        """Take a snapshot of the model's parameters and running statistics."""
        self.model.load_state_dict(model.state_dict())
        self.network = _Network(self.model)

    @torch.inference_mode()
    def initial(self, observations: Float32Array) -> RootOutput:
        """Encode observations [B, O] as the latents of node 0 and evaluate them."""
        batch = len(observations)
        buffers = self._buffers_of(batch)
        self.flat_latents = self.storage[: self.num_nodes * batch]
        self.latents = self.flat_latents.view(self.num_nodes, batch, self.width)
        self.nodes = self.latents.unbind()
        if self.device.type == "cpu":
            self.latent_array = self.latents.numpy()
            self.table_array = self.network.table.numpy()
        seen = self.normalizer.normalize(observations)
        inputs = torch.from_numpy(np.ascontiguousarray(seen)).to(self.device)
        self.nodes[0].copy_(self.model.representation_network(inputs))
        self._evaluate(self.nodes[0], buffers)
        return RootOutput(buffers.prior_logits.copy(), buffers.value.copy())

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
        network, buffers = self.network, self.buffers[len(parent_node)]
        self._step_first(parent_node, action, buffers)
        network.transition.run(buffers.transition, buffers.first.tensor)
        new_latent = self.nodes[new_node]
        if network.is_residual:
            torch.add(buffers.transition.tensor, buffers.latent, out=new_latent)
        else:
            new_latent.copy_(buffers.transition.tensor)
        self._evaluate(new_latent, buffers)
        return RecurrentOutput(buffers.reward, buffers.value, buffers.prior_logits)

    def _step_first(self, parent_node: Int32Array, action: Int32Array, buffers: _Buffers) -> None:
        """Run the first layer on the parents' latents, with the actions' rows for a bias."""
        first, work, latent = self.network.first, buffers.first, buffers.latent
        if work.array is not None and buffers.latent_array is not None:
            gather(self.latent_array, parent_node, buffers.latent_array)
            torch.mm(latent, first.weights[0], out=work.tensor)
            first.finish(work.array, self.table_array, action)
            return
        batch = len(parent_node)
        buffers.index_array[0] = parent_node * batch + buffers.root
        buffers.index_array[1] = action
        index = buffers.index.to(self.device, non_blocking=True)
        torch.index_select(self.flat_latents, 0, index[0], out=latent)
        torch.index_select(self.network.table, 0, index[1], out=buffers.rows)
        torch.addmm(buffers.rows, latent, first.weights[0], out=work.tensor)
        first.activate(work)

    def _evaluate(self, latent: Tensor, buffers: _Buffers) -> None:
        """Write reward, value and prior logits of latents [B, D] into the host's buffer."""
        network = self.network
        if network.is_residual:
            common, reward = network.trunk.run(buffers.trunk, latent)
            features, reward = network.features.run(buffers.features, common, reward)
        else:
            (common,) = network.trunk.run(buffers.trunk, latent)
            (features,), reward = network.features.run(buffers.features, common), latent
        _, policy, _ = network.heads.run(buffers.heads, features, reward)
        hidden, logits = buffers.scalar_hidden, buffers.logits
        network.scalars.run(hidden, logits, buffers.flat_logits, buffers.scalars)
        torch.addmm(network.policy_bias, policy, network.policy_weight, out=buffers.policy)
        if self.device.type == "cuda":
            buffers.host.copy_(buffers.packed, non_blocking=True)
            torch.cuda.current_stream(self.device).synchronize()
        unscale(buffers.scalar_array)

    def _buffers_of(self, batch: int) -> _Buffers:
        """Return the work space for a batch size, made when it first comes."""
        if batch not in self.buffers:
            self.buffers[batch] = _Buffers(batch, self.network, self.device)
            num_rows = self.num_nodes * max(self.buffers)
            if len(self.storage) < num_rows:
                self.storage = torch.empty(num_rows, self.width, device=self.device)
        return self.buffers[batch]


def _columns(tensor: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Return views of neighbouring columns of the given widths."""
    return list(tensor.split_with_sizes(list(widths), dim=1))


def _fold(linear: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return weight [in, out] and bias [out], with a batch norm in eval mode folded in."""
    assert isinstance(linear, nn.Linear)
    weight, bias = linear.weight.detach().t().clone(), linear.bias.detach().clone()
    if isinstance(norm, nn.BatchNorm1d):
        assert norm.running_var is not None
        assert norm.running_mean is not None
        factor = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
        weight *= factor
        bias = (bias - norm.running_mean) * factor + norm.bias.detach()
    return weight, bias


def _pairs(block: nn.Sequential) -> list[tuple[nn.Module, nn.Module]]:
    """Return every linear that has something behind it, with what is behind it."""
    layers = list(block)
    return [
        (layer, following) for layer, following in pairwise(layers) if isinstance(layer, nn.Linear)
    ]


def _last(head: nn.Sequential) -> nn.Linear:
    """Return the linear that ends a head."""
    linear = head[-1]
    assert isinstance(linear, nn.Linear)
    return linear
