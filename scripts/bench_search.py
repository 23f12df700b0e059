"""Time searches: microseconds a simulation, env steps a second, and where the time goes.

    python scripts/bench_search.py                            # 1, 8, 32 and 256 roots
    python scripts/bench_search.py --tree-only                # a model that costs nothing
    python scripts/bench_search.py --collect                  # CartPole, every environment active
    python scripts/bench_search.py --versus mctx              # the same network under mctx on JAX

One thread; every figure is the median of --repeats moves. A move is the root's
evaluation and --simulations simulations; us/sim is a move's time over its simulations, and env
steps a second is what the search alone would allow. With --versus the two take turns on one core.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from lightzero_lite.config import load_config
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.networks import MuZeroModelMLP, NetworkShape
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.user_errors import quiet_broken_pipe
from lightzero_lite.search import TreeCache, gumbel_muzero_policy, muzero_policy, policies
from lightzero_lite.types import Float32Array, RecurrentOutput, RootOutput, SearchOutput

Move = Callable[[Float32Array], Any]  # from observations [B, O]
KERNELS = (
    "plant", "mix_root_noise", "puct_first", "puct_next", "puct_last", "sample_visited",
    "gumbel_first", "gumbel_next", "gumbel_last",
)  # fmt: skip
DISCOUNT = 0.997
EPSILON = 0.001  # of the value transform


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roots", type=int, nargs="+", default=[1, 8, 32, 256])
    parser.add_argument("--simulations", type=int, default=25)
    parser.add_argument("--actions", type=int, default=2)
    parser.add_argument("--observation", type=int, default=4, help="numbers of an observation")
    parser.add_argument("--latent", type=int, default=128, help="width of the network")
    parser.add_argument("--head", type=int, default=32, help="hidden width of the heads")
    parser.add_argument("--atoms", type=int, default=601, help="atoms of value and reward, odd")
    parser.add_argument("--norm", choices=["BN", "LN", "none"], default="BN")
    parser.add_argument("--policy", choices=["muzero", "gumbel"], default="muzero")
    parser.add_argument("--repeats", type=int, default=100, help="moves a median is over")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tree-only", action="store_true", help="leave the network out")
    parser.add_argument("--collect", action="store_true", help="play CartPole with the search")
    parser.add_argument("--versus", choices=["mctx"], help="run another library too")
    return parser.parse_args()


class Stopwatch:
    """Adds up the time spent inside the calls that it wraps."""

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds = 0.0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, timed."""

        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            result = call(*args)
            self.seconds += time.perf_counter() - start
            return result

        return timed


def make_model(args: argparse.Namespace) -> MuZeroModelMLP:
    """Return a random network whose heads do not start at zero, so that trees have a shape."""
    torch.manual_seed(0)
    shape = NetworkShape(
        observation_dim=args.observation,
        action_num=args.actions,
        latent_state_dim=args.latent,
        head_hidden_dim=args.head,
        reward_support_scale=args.atoms // 2,
        value_support_scale=args.atoms // 2,
        norm_type=args.norm,
        res_connection_in_dynamics=True,
        has_projection=False,
        projection_dim=1,
        prediction_hidden_dim=1,
    )
    model = MuZeroModelMLP(shape).eval()
    for linear in (module for module in model.modules() if isinstance(module, nn.Linear)):
        if not linear.weight.any():
            nn.init.normal_(linear.weight, std=0.3)
    return model


def search_move(args: argparse.Namespace, initial: Any, recurrent_fn: Any) -> Move:
    """Return a move of ours: evaluate the roots, then search."""
    rng, trees = np.random.default_rng(0), TreeCache()
    policy = muzero_policy if args.policy == "muzero" else gumbel_muzero_policy

    def move(observations: Float32Array) -> SearchOutput:
        return policy(
            initial(observations),
            recurrent_fn,
            num_simulations=args.simulations,
            discount=DISCOUNT,
            rng=rng,
            trees=trees,
        )

    return move


def fake_model(args: argparse.Namespace, num_roots: int) -> tuple[Any, Any]:
    """Return initial and recurrent_fn that hand out random arrays made beforehand."""
    rng = np.random.default_rng(0)
    answers = [
        RecurrentOutput(
            rng.normal(size=num_roots).astype(np.float32),
            rng.normal(size=num_roots).astype(np.float32),
            rng.normal(size=(num_roots, args.actions)).astype(np.float32),
        )
        for _ in range(args.simulations + 1)
    ]
    root = RootOutput(answers[0].prior_logits, answers[0].value)
    return lambda _: root, lambda _parents, _actions, new_node: answers[new_node]


def move_seconds(moves: list[Move], observations: Float32Array, repeats: int) -> list[float]:
    """Return the median time of each kind of move; they take turns."""
    for move in moves:
        for _ in range(3):
            move(observations)
    times = np.empty((repeats, len(moves)))
    for row in times:
        for i, move in enumerate(moves):
            start = time.perf_counter()
            move(observations)
            row[i] = time.perf_counter() - start
    return [float(x) for x in np.median(times, axis=0)]


def time_parts(run: Callable[[Stopwatch], None]) -> tuple[float, float, float]:
    """Run with a watch for the network and one on the kernels; return both and all seconds."""
    network, tree = Stopwatch(), Stopwatch()
    originals = {name: getattr(policies, name) for name in KERNELS}
    for name, kernel in originals.items():
        setattr(policies, name, tree.wrap(kernel))
    try:
        start = time.perf_counter()
        run(network)
        return network.seconds, tree.seconds, time.perf_counter() - start
    finally:
        for name, kernel in originals.items():
            setattr(policies, name, kernel)


def bench_roots(args: argparse.Namespace, num_roots: int, model: MuZeroModelMLP) -> str:
    """Return the line of the table for one number of roots."""
    observations = np.random.default_rng(1).normal(size=(num_roots, args.observation))
    observations = observations.astype(np.float32)
    if args.tree_only:
        initial, recurrent_fn = fake_model(args, num_roots)
    else:
        device = torch.device(args.device)
        predictor = Predictor(model.shape, num_simulations=args.simulations, device=device)
        predictor.load(model)
        initial, recurrent_fn = predictor.initial, predictor.recurrent_fn
    moves = [search_move(args, initial, recurrent_fn)]
    if args.versus:
        moves.append(mctx_move(args, model))
    seconds = move_seconds(moves, observations, args.repeats)

    def run(network: Stopwatch) -> None:
        move = search_move(args, network.wrap(initial), network.wrap(recurrent_fn))
        for _ in range(args.repeats):
            move(observations)

    network, tree, total = time_parts(run)
    microseconds = [1e6 * x / args.simulations for x in seconds]
    line = f"{num_roots:>6} {microseconds[0]:>10.1f} {num_roots / seconds[0]:>12.0f}"
    for share in (network, tree, total - network - tree):
        line += f" {share / total:>8.1%}"
    if args.versus:
        line += f" {microseconds[1]:>12.1f} {microseconds[0] / microseconds[1]:>8.2f}"
    return line


def bench_collect(args: argparse.Namespace, num_envs: int, model: MuZeroModelMLP) -> str:
    """Return what playing costs when an environment that ends is reset at once."""
    envs = VectorEnv(load_config(["env=cartpole"]).env, num_envs)
    device = torch.device(args.device)
    predictor = Predictor(model.shape, num_simulations=args.simulations, device=device)
    predictor.load(model)
    indices = range(num_envs)
    observations = np.stack([one.observation for one in envs.reset_all(indices, indices)])

    def run(network: Stopwatch, steps: int = args.repeats) -> None:
        initial, recurrent_fn = predictor.initial, predictor.recurrent_fn
        move = search_move(args, network.wrap(initial), network.wrap(recurrent_fn))
        for _ in range(steps):
            results = envs.step_all(indices, move(observations).action)
            observations[:] = [result.observation for result in results]
            over = [i for i in indices if results[i].is_terminated or results[i].is_truncated]
            for i, start in zip(over, envs.reset_all(over, over), strict=True):
                observations[i] = start.observation

    run(Stopwatch(), steps=3)
    network, tree, total = time_parts(run)
    envs.close()
    rest = 1 - (network + tree) / total
    rate = args.repeats * num_envs / total
    return f"{num_envs:>6} {rate:>12.0f} {network / total:>8.1%} {tree / total:>8.1%} {rest:>8.1%}"


def to_jax(jnp: Any, layers: nn.Module) -> Callable[[Any], Any]:
    """Return linears, norms and ReLUs as a function of a JAX array."""
    steps: list[Callable[[Any], Any]] = []
    for layer in layers.children() if isinstance(layers, nn.Sequential) else [layers]:
        values = {name: tensor.detach().numpy() for name, tensor in layer.state_dict().items()}
        if isinstance(layer, nn.Linear):
            weight, bias = jnp.array(values["weight"].T), jnp.array(values["bias"])
            steps.append(lambda x, w=weight, b=bias: x @ w + b)
        elif isinstance(layer, nn.BatchNorm1d):
            factor = values["weight"] / np.sqrt(values["running_var"] + layer.eps)
            shift = values["bias"] - values["running_mean"] * factor
            # As in our predictor, the norm is folded into the linear before it.
            previous = steps.pop()
            bias = previous.__defaults__[1] * factor + shift
            steps.append(lambda x, w=previous.__defaults__[0] * factor, b=bias: x @ w + b)
        elif isinstance(layer, nn.LayerNorm):
            gamma, beta, eps = jnp.array(values["weight"]), jnp.array(values["bias"]), layer.eps
            steps.append(
                lambda x, g=gamma, b=beta, e=eps: (x - x.mean(-1, keepdims=True))
                / jnp.sqrt(x.var(-1, keepdims=True) + e) * g + b
            )  # fmt: skip
        elif isinstance(layer, nn.ReLU):
            steps.append(lambda x: jnp.maximum(x, 0))

    def apply(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return apply


def mctx_move(args: argparse.Namespace, model: MuZeroModelMLP) -> Move:
    """Return a move of mctx on JAX with the same network."""
    import jax
    import jax.numpy as jnp
    import mctx

    dynamics, prediction = model.dynamics_network, model.prediction_network
    represent, transition, reward_trunk, reward_head, common, value_head, policy_head = (
        to_jax(jnp, part)
        for part in (
            model.representation_network.fc_representation, dynamics.fc_dynamics_1,
            dynamics.fc_dynamics_2, dynamics.fc_reward_head, prediction.fc_prediction_common,
            prediction.fc_value_head, prediction.fc_policy_head,
        )
    )  # fmt: skip
    atoms = jnp.arange(args.atoms, dtype=jnp.float32) - args.atoms // 2

    def scalar(logits: Any) -> Any:
        x = jax.nn.softmax(logits) @ atoms
        root = (jnp.sqrt(1 + 4 * EPSILON * (jnp.abs(x) + 1 + EPSILON)) - 1) / (2 * EPSILON)
        return jnp.sign(x) * (root**2 - 1)

    def recurrent_fn(_params: Any, _key: Any, action: Any, latent: Any) -> Any:
        encoding = jnp.concatenate([latent, jax.nn.one_hot(action, args.actions)], axis=1)
        latent = latent + transition(encoding)
        features = common(latent)
        output = mctx.RecurrentFnOutput(
            reward=scalar(reward_head(reward_trunk(latent))),
            discount=jnp.full(action.shape, DISCOUNT),
            prior_logits=policy_head(features),
            value=scalar(value_head(features)),
        )
        return output, latent

    policy = mctx.muzero_policy if args.policy == "muzero" else mctx.gumbel_muzero_policy

    @jax.jit
    def search(key: Any, observations: Any) -> Any:
        latent = represent(observations)
        features = common(latent)
        root = mctx.RootFnOutput(
            prior_logits=policy_head(features), value=scalar(value_head(features)), embedding=latent
        )
        answer = policy((), key, root, recurrent_fn, num_simulations=args.simulations)
        return answer.action, answer.action_weights

    keys = iter(jax.random.split(jax.random.PRNGKey(0), args.repeats + 10))
    return lambda observations: jax.block_until_ready(search(next(keys), observations))


@quiet_broken_pipe()
def main() -> None:
    """Print a table."""
    args = parse_arguments()
    torch.set_num_threads(1)
    if args.versus and hasattr(os, "sched_setaffinity"):  # JAX may start threads all the same
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    model = make_model(args)
    print(
        f"{args.policy}, {args.simulations} simulations, {args.actions} actions, "
        f"latent {args.latent}, {args.atoms} atoms, norm {args.norm}, {args.device}"
    )
    if args.collect:
        print(f"{'envs':>6} {'env steps/s':>12} {'network':>8} {'tree':>8} {'rest':>8}")
    else:
        versus = f" {'mctx us/sim':>12} {'ratio':>8}" if args.versus else ""
        print(
            f"{'roots':>6} {'us/sim':>10} {'env steps/s':>12} {'network':>8} {'tree':>8} "
            f"{'glue':>8}{versus}"
        )
    for num_roots in args.roots:
        bench = bench_collect if args.collect else bench_roots
        print(bench(args, num_roots, model), flush=True)


if __name__ == "__main__":
    main()
