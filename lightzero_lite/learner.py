"""The learner: one optimizer step a batch, the same on all ranks."""

from __future__ import annotations

import copy
import warnings
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lightzero_lite import transforms
from lightzero_lite.config import PolicyConfig
from lightzero_lite.denormals import denormals_are_zero
from lightzero_lite.gradients import clip_norm, flat_gradients
from lightzero_lite.losses import (
    LossTargets,
    LossTerms,
    LossWeights,
    UnrolledOutput,
    scale_gradient,
    unrolled_loss,
)
from lightzero_lite.metrics import (
    Predictions,
    SupportUse,
    UpdateMetrics,
    support_use,
)
from lightzero_lite.networks import MuZeroModelMLP, NetworkShape
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.schedules import learning_rate_factor
from lightzero_lite.types import Float32Array, ReplayBatch, StateDict


class UpdateResult(NamedTuple):
    """What one update gives back."""

    metrics: Tensor  # [len(UpdateMetrics)], on the learner's device
    priorities: Float32Array | None  # [B], |predicted value - target|; None without priority
    predictions: Predictions  # from before the step, on the learner's device


class UnrolledModel(nn.Module):
    """The whole unroll as the forward of one module: every backward passes DDP's reducer."""

    def __init__(self, model: MuZeroModelMLP, weights: LossWeights, gradient_scale: float) -> None:
        """Wrap a model.

        Args:
            model: The networks that are trained.
            weights: How the loss terms are added up.
            gradient_scale: Factor of the gradient that enters each dynamics step.
        """
        super().__init__()
        self.model, self.weights, self.gradient_scale = model, weights, gradient_scale

    def forward(
        self, observations: Tensor, actions: Tensor, targets: LossTargets
    ) -> tuple[LossTerms, Tensor, Tensor]:
        """Return the loss terms, the value logits [B, K + 1, S] and the reward logits [B, K, S].

        Args:
            observations: [B, K + 1, O].
            actions: [B, K].
            targets: What the unroll is compared with.
        """
        output = self._unroll(observations, actions)
        terms = unrolled_loss(output, targets, self.weights)
        return terms, output.value_logits.detach(), output.reward_logits.detach()

    def _unroll(self, observations: Tensor, actions: Tensor) -> UnrolledOutput:
        """Step the model K times; heads run once, on the latents of all steps."""
        model, (batch, num_steps) = self.model, actions.shape
        latents = [model.representation_network(observations[:, 0])]
        for k in range(num_steps):
            source = scale_gradient(latents[-1], self.gradient_scale if k else 1.0)
            latents.append(model.dynamics_network(source, actions[:, k]))
        all_latents = torch.stack(latents, dim=1).flatten(0, 1)  # [B * (K + 1), D]
        value, policy = model.prediction_network(all_latents)
        stepped = torch.stack(latents[1:], dim=1).flatten(0, 1)  # [B * K, D]
        reward = model.dynamics_network.reward_logits(stepped)
        online = target = None
        if model.shape.has_projection:
            online = model.project(stepped, with_gradient=True).view(batch, num_steps, -1)
            with torch.no_grad():
                encoded = model.representation_network(observations[:, 1:].flatten(0, 1))
            target = model.project(encoded, with_gradient=False).view(batch, num_steps, -1)
        return UnrolledOutput(
            value_logits=value.view(batch, num_steps + 1, -1),
            reward_logits=reward.view(batch, num_steps, -1),
            policy_logits=policy.view(batch, num_steps + 1, -1),
            projection=online,
            target_projection=target,
        )


class Learner:
    """Model, target model and optimizer; `update` takes this rank's share of a batch."""

    def __init__(
        self, policy: PolicyConfig, shape: NetworkShape, *, ranks: Ranks, device: torch.device
    ) -> None:
        """Build the networks from torch's global seed, which is the same on all ranks."""
        self.policy, self.ranks, self.device = policy, ranks, device
        self.model = MuZeroModelMLP(shape).to(device)
        self.target_model = copy.deepcopy(self.model).eval().requires_grad_(requires_grad=False)
        weights = LossWeights(
            value=policy.value_loss_weight,
            reward=policy.reward_loss_weight,
            policy=policy.policy_loss_weight,
            consistency=policy.ssl_loss_weight,
            unroll_scale=policy.unroll_loss_scale,
        )
        scale = policy.dynamics_gradient_scale
        self.unrolled: nn.Module = UnrolledModel(self.model, weights, scale)
        self.gradients = flat_gradients(self.model)
        self.train_iter = 0

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, made when it is first asked for: that imports 1.6 s of torch._dynamo."""
        return make_optimizer(self.model, self.policy)

    def distribute(self) -> None:
        """Let gradients be averaged over ranks; all ranks must call it, with rank 0's weights."""
        if self.ranks.num_ranks == 1:
            return
        if self.device.type == "cuda":
            convert = nn.SyncBatchNorm.convert_sync_batchnorm
            self.unrolled = convert(self.unrolled)  # type: ignore[no-untyped-call]
        # Buffers are averaged after each update instead: see _average_buffers. Newer versions of
        # torch call the option forward_sync_buffers and warn of this name, the only one of others.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
            self.unrolled = DistributedDataParallel(self.unrolled, broadcast_buffers=False)

    @denormals_are_zero()
    def update(self, batch: ReplayBatch) -> UpdateResult:
        """Take one optimizer step on this rank's samples; gradients are averaged over ranks."""
        self._set_learning_rate()
        observations, actions = self._to_device(batch.observations), self._to_device(batch.actions)
        target_value = self._value_targets(batch)
        rewards = self._to_device(batch.rewards)
        targets, support = self._targets(batch, target_value, rewards)
        terms, value_logits, reward_logits = self.unrolled(observations, actions.long(), targets)
        self.gradients.zero_()
        terms.total.backward()
        norm = clip_norm(self.gradients, self.policy.grad_clip_value)
        self.optimizer.step()
        self._average_buffers()
        self.train_iter += 1
        if self.train_iter % self.policy.target_update_freq == 0:
            self.target_model.load_state_dict(self.model.state_dict())
        model = self.policy.model
        predicted = transforms.expected_value(value_logits[:, 0], model.value_support_scale)
        priorities = None
        if self.policy.use_priority:
            priorities = (predicted - target_value[:, 0]).abs().cpu().numpy()
        metrics = UpdateMetrics(
            total_loss=terms.total.detach(),
            value_loss=terms.value,
            reward_loss=terms.reward,
            policy_loss=terms.policy,
            consistency_loss=terms.consistency,
            policy_entropy=terms.policy_entropy,
            total_grad_norm_before_clip=norm,
            target_value=target_value[:, 0].mean(),
            predicted_value=predicted.mean(),
            clipped_target=support.clipped,
            largest_scaled_target=torch.maximum(support.largest_value, support.largest_reward),
            value_support_used=support.largest_value / model.value_support_scale,
            reward_support_used=support.largest_reward / model.reward_support_scale,
        )
        predictions = Predictions(
            value_logits,
            reward_logits,
            target_value,
            rewards,
            targets.value_mask,
            targets.reward_mask,
        )
        return UpdateResult(torch.stack(metrics), priorities, predictions)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        progress = self.train_iter / self.policy.lr_decay_iters
        factor = learning_rate_factor(
            self.policy.lr_schedule, self.policy.lr_final_factor, progress
        )
        return self.policy.learning_rate * factor

    def state_dict(self) -> StateDict:
        """Return model, target_model, optimizer and last_iter, under LightZero's keys."""
        return {
            "model": self.model.state_dict(),
            "target_model": self.target_model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "last_iter": self.train_iter,
        }

    def load_state_dict(self, state: StateDict) -> bool:
        """Continue from `state_dict`'s answer; return whether the optimizer's part of it fits.

        Where it does not, because another kind of optimizer wrote it, this one starts afresh.
        """
        self.model.load_state_dict(state["model"])
        self.target_model.load_state_dict(state["target_model"])
        self.train_iter = int(state["last_iter"])
        # Parameters are numbered in the order of the networks, and so must the saved ones be.
        is_same_order = list(state["model"]) == list(self.model.state_dict())
        if not (is_same_order and is_state_of(self.optimizer, state["optimizer"])):
            return False
        groups = self.optimizer.state_dict()["param_groups"]
        # Settings of the optimizer are the command line's; only what it learnt is restored.
        self.optimizer.load_state_dict({**state["optimizer"], "param_groups": groups})
        return True

    def _set_learning_rate(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate

    def _to_device(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    @torch.no_grad()
    def _value_targets(self, batch: ReplayBatch) -> Tensor:
        """Return z = value_prefix + bootstrap_discount * v, [B, K + 1].

        v is the target network's, or the value that a search found: where the configuration says
        so, and in every reanalyzed sample.
        """
        discount = self._to_device(batch.bootstrap_discount)
        values = self._to_device(batch.bootstrap_values)
        if self.policy.value_bootstrap == "target_network":
            is_fresh = self._to_device(batch.is_reanalyzed)[:, None] == 1
            network_values = self._target_network_values(batch.bootstrap_observations)
            values = torch.where(is_fresh, values, network_values)
        return self._to_device(batch.value_prefix) + discount * values

    def _target_network_values(self, observations: Float32Array) -> Tensor:
        """Return the target network's values [B, K + 1] of observations [B, K + 1, O]."""
        inputs = self._to_device(observations)
        latents = self.target_model.representation_network(inputs.flatten(0, 1))
        network = self.target_model.prediction_network
        logits = network.fc_value_head(network.fc_prediction_common(latents))
        values = transforms.expected_value(logits, self.policy.model.value_support_scale)
        return values.view(inputs.shape[:2])

    @torch.no_grad()
    def _targets(
        self, batch: ReplayBatch, target_value: Tensor, rewards: Tensor
    ) -> tuple[LossTargets, SupportUse]:
        """Return the targets, and how they fill the supports."""
        model = self.policy.model
        value = transforms.scale_value(target_value)
        reward = transforms.scale_value(rewards)
        value_mask = self._to_device(batch.value_mask)
        reward_mask = self._to_device(batch.reward_mask)
        support = support_use(
            value,
            reward,
            value_mask,
            reward_mask,
            value_scale=model.value_support_scale,
            reward_scale=model.reward_support_scale,
        )
        targets = LossTargets(
            value=transforms.two_hot(value, model.value_support_scale),
            reward=transforms.two_hot(reward, model.reward_support_scale),
            policy=self._to_device(batch.policies),
            value_mask=value_mask,
            reward_mask=reward_mask,
            policy_mask=self._to_device(batch.policy_mask),
            consistency_mask=self._to_device(batch.consistency_mask),
            importance_weights=self._to_device(batch.importance_weights),
        )
        return targets, support

    def _average_buffers(self) -> None:
        """Make running statistics the mean over ranks, so that all ranks act alike."""
        buffers = [b for b in self.model.buffers() if b.is_floating_point()]
        self.ranks.average(buffers)


def make_optimizer(model: nn.Module, policy: PolicyConfig) -> torch.optim.Optimizer:
    """Return the optimizer of the configuration, in its fused form."""
    rate, decay = policy.learning_rate, policy.weight_decay
    if policy.optim_type == "SGD":
        return torch.optim.SGD(
            model.parameters(), rate, momentum=policy.momentum, weight_decay=decay, fused=True
        )
    kind = torch.optim.Adam if policy.optim_type == "Adam" else torch.optim.AdamW
    return kind(model.parameters(), rate, weight_decay=decay, fused=True)


def is_state_of(optimizer: torch.optim.Optimizer, saved: StateDict) -> bool:
    """Return whether a saved optimizer state has this kind's entries, of its parameters' shapes.

    Args:
        optimizer: The optimizer to continue.
        saved: What `state_dict` of any optimizer answered; its settings do not matter.
    """
    is_sgd = isinstance(optimizer, torch.optim.SGD)
    names = {"momentum_buffer"} if is_sgd else {"exp_avg", "exp_avg_sq"}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    entries = saved.get("state", {})
    return bool(entries) and all(
        index < len(parameters)
        and entry.keys() - {"step"} == names
        and all(entry[name].shape == parameters[index].shape for name in names)
        for index, entry in entries.items()
    )
