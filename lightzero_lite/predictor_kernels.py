"""What stands between the matmuls of the predictor on a CPU, one call each.

On 8 roots a torch operation is nearly all dispatch; these kernels cost half a microsecond to call.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from lightzero_lite.compiled import compiled
from lightzero_lite.transforms import EPSILON
from lightzero_lite.types import Float32Array, Int32Array, Int64Array

_EPSILON = np.float32(EPSILON)
_ZERO, _ONE, _TWO, _FOUR = np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(4.0)


@compiled
def gather(latents: Float32Array, parent_node: Int32Array, latent: Float32Array) -> None:
    """Copy each root's parent latent.

    Args:
        latents: [N, B, D].
        parent_node: [B].
        latent: [B, D], written.
    """
    for root in range(len(parent_node)):
        latent[root] = latents[parent_node[root], root]


@compiled
def bias_relu(x: Float32Array, bias: Float32Array, row: Int32Array) -> None:
    """Replace x [B, W] by relu(x + bias[row]), in place; bias is [R, W], row is [B]."""
    for root in range(len(x)):
        added = bias[row[root]]
        for i in range(x.shape[1]):
            x[root, i] = max(x[root, i] + added[i], _ZERO)


@partial(compiled, may_reorder=True)
def norm_relu(
    x: Float32Array,
    bias: Float32Array,
    row: Int32Array,
    starts: Int64Array,
    gamma: Float32Array,
    beta: Float32Array,
    epsilon: float,
) -> None:
    """Replace each group of columns by relu(layer_norm(group + bias[row])), in place.

    Args:
        x: [B, W].
        bias: [R, W].
        row: [B], which row of bias is added to each row of x.
        starts: [G + 1], group g is the columns starts[g] .. starts[g + 1] - 1.
        gamma: [W], weights of the layer norms.
        beta: [W], biases of the layer norms.
        epsilon: Added to each variance.
    """
    for root in range(len(x)):
        for group in range(len(starts) - 1):
            columns = slice(starts[group], starts[group + 1])
            values, added = x[root, columns], bias[row[root], columns]
            weight, shift = gamma[columns], beta[columns]
            for i in range(len(values)):
                values[i] += added[i]
            mean = values.sum() / np.float32(len(values))
            variance = _ZERO
            for i in range(len(values)):
                variance += (values[i] - mean) * (values[i] - mean)
            scale = _ONE / np.sqrt(variance / np.float32(len(values)) + np.float32(epsilon))
            for i in range(len(values)):
                values[i] = max((values[i] - mean) * scale * weight[i] + shift[i], _ZERO)


@compiled
def unscale(y: Float32Array) -> None:
    """Apply h^-1 (`transforms.unscale_value`) in place; y is [M]."""
    for i in range(len(y)):
        u = abs(y[i]) + _ONE + _EPSILON
        root = _TWO * u / (np.sqrt(_ONE + _FOUR * _EPSILON * u) + _ONE)
        y[i] = np.sign(y[i]) * (root * root - _ONE)
