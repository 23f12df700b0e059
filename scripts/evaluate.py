"""Play greedy episodes with a checkpoint: one of ours, or one of LightZero's.

    python scripts/evaluate.py ckpt=cartpole_muzero_seed0/ckpt/ckpt_best.pth.tar
    python scripts/evaluate.py ckpt=PATH env.n_evaluator_episode=100 seed=3

Our checkpoints bring their configuration; what the command line says goes on top. LightZero's have
none: the networks are read from the file, the rest comes as in train.py, for example env=cartpole.
Prints the evaluator's table, and a line of JSON that is the same for the same seed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lightzero_lite.building import greedy_search, network_shape
from lightzero_lite.config import Config, config_from_dict, load_config
from lightzero_lite.envs.factory import env_shape, make_env
from lightzero_lite.evaluator import Evaluator, evaluator_fields
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.checkpoint import check_same_shapes, load_checkpoint
from lightzero_lite.runtime.distributed import Ranks, choose_device, joined_ranks
from lightzero_lite.runtime.lightzero_checkpoint import with_model_options
from lightzero_lite.runtime.logging import Fields, table_text
from lightzero_lite.runtime.user_errors import one_line_errors
from lightzero_lite.search import TreeCache
from lightzero_lite.types import StateDict, UserError


class Subject(NamedTuple):
    """What is evaluated."""

    path: Path
    state: StateDict  # the checkpoint, in the form of ours
    config: Config
    evaluator: Evaluator  # its predictor has the checkpoint's weights


def load_subject(arguments: Sequence[str], ranks: Ranks) -> Subject:
    """Read a checkpoint and build what plays it.

    Args:
        arguments: ckpt=PATH and overrides of the configuration.
        ranks: The processes that share out the episodes.

    Raises:
        UserError: The checkpoint or an override cannot be used.
    """
    paths = [text.removeprefix("ckpt=") for text in arguments if text.startswith("ckpt=")]
    if len(paths) != 1 or not paths[0]:
        raise UserError("name one checkpoint: ckpt=run_folder/ckpt/ckpt_best.pth.tar")
    path = Path(paths[0])
    overrides = [text for text in arguments if not text.startswith("ckpt=")]
    state = load_checkpoint(path, "ckpt")
    if "config" in state:
        config = load_config(overrides, config_from_dict(state["config"]))
    else:
        config = with_model_options(load_config(overrides), state["model"])
    return Subject(path, state, config, _build(config, path, state, ranks))


def _build(config: Config, path: Path, state: StateDict, ranks: Ranks) -> Evaluator:
    """Build networks and environments for a checkpoint, and load its weights."""
    env = make_env(config.env)
    shape = network_shape(config.policy, env_shape(env))
    env.close()
    model = MuZeroModelMLP(shape)
    check_same_shapes(model.state_dict(), path, state, "ckpt")
    model.load_state_dict(state["model"])
    device = choose_device(config.device, ranks)
    num_simulations = config.policy.num_simulations
    predictor = Predictor(shape, num_simulations=num_simulations, device=device)
    predictor.load(model)
    return Evaluator(config, predictor, ranks)


def json_line(subject: Subject, fields: Fields) -> str:
    """Return the numbers that a seed fixes: no times, so that equal runs give equal lines."""
    numbers = {name: value for name, value in fields.items() if "time" not in name}
    del numbers["avg_envstep_per_sec"], numbers["ckpt_name"]
    config, state = subject.config, subject.state
    about = {"ckpt": str(subject.path), "env_id": config.env.env_id, "seed": config.seed}
    return json.dumps({**about, "envstep": state["last_step"], **numbers})


def main() -> None:
    """Evaluate as the command line says; exit 2 where it cannot be done."""
    with joined_ranks() as ranks:
        with one_line_errors(ranks):
            subject = ranks.agreed(lambda: load_subject(sys.argv[1:], ranks))
        evaluator = subject.evaluator
        evaluation = evaluator.evaluate(greedy_search(subject.config.policy, TreeCache()))
        evaluator.close()
        if ranks.is_main:
            fields = evaluator_fields(evaluation, int(subject.state["last_iter"]))
            print(table_text(fields))
            print(json_line(subject, fields))


if __name__ == "__main__":
    main()
