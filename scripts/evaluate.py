"""Play greedy episodes with a checkpoint: one of ours, or one of LightZero's.

    python scripts/evaluate.py ckpt=cartpole_muzero_seed0/ckpt/ckpt_best.pth.tar
    python scripts/evaluate.py ckpt=PATH env.n_evaluator_episode=100 seed=3
    python scripts/evaluate.py ckpt=PATH 'env.opponents=[perfect]' env.n_evaluator_episode=200

Our checkpoints bring their configuration; what the command line says goes on top. LightZero's have
none: the networks are read from the file, the rest comes as in train.py, for example env=cartpole.
Prints the evaluator's table, and a line of JSON that is the same for the same seed and has the
returns of all episodes too.
"""

from __future__ import annotations

import json
import sys

from lightzero_lite.building import greedy_search
from lightzero_lite.evaluator import Evaluator, evaluator_fields
from lightzero_lite.loading import Subject, load_subject
from lightzero_lite.runtime.distributed import joined_ranks
from lightzero_lite.runtime.logging import Fields, table_text
from lightzero_lite.runtime.user_errors import one_line_errors, quiet_broken_pipe
from lightzero_lite.search import TreeCache


def json_line(subject: Subject, fields: Fields) -> str:
    """Return the numbers that a seed fixes: no times, so that equal runs give equal lines."""
    numbers = {name: value for name, value in fields.items() if "time" not in name}
    del numbers["avg_envstep_per_sec"], numbers["ckpt_name"]
    config, state = subject.config, subject.state
    about = {"ckpt": str(subject.path), "env_id": config.env.name, "seed": config.seed}
    return json.dumps({**about, "envstep": state["last_step"], **numbers})


def main() -> None:
    """Evaluate as the command line says; exit 2 where it cannot be done."""
    with joined_ranks() as ranks:
        with one_line_errors(ranks):
            subject = ranks.agreed(lambda: load_subject(sys.argv[1:], ranks))
            evaluator = ranks.agreed(lambda: Evaluator(subject.config, subject.predictor, ranks))
        evaluation = evaluator.evaluate(greedy_search(subject.config.policy, TreeCache()))
        evaluator.close()
        if ranks.is_main:
            fields = evaluator_fields(evaluation, int(subject.state["last_iter"]))
            with quiet_broken_pipe():
                print(table_text({k: v for k, v in fields.items() if not isinstance(v, list)}))
                print(json_line(subject, fields))


if __name__ == "__main__":
    main()
