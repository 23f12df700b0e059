"""Search for good options with Optuna: each trial a training run in a folder of its own.

    pip install -c constraints.txt -e '.[sweep]'
    python scripts/optuna_sweep.py --trials 20 --minutes 3 env=cartpole max_env_step=10000

Edit `suggestions` for other options or ranges. One trial runs at a time, in a process of its own.
One that takes longer than --minutes is asked to end, as by Ctrl-C, and judged by what it reached.
All is written below --out: trial_0, trial_1, ... (run folders like any other) and study.db, by
which the same command adds trials to those that are there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.run_reader import read_run
from lightzero_lite.runtime.user_errors import USER_ERROR_EXIT, one_line_errors
from lightzero_lite.types import UserError

if TYPE_CHECKING:
    import optuna

SECONDS_TO_SAVE = 60  # that a run which was asked to end may take for it


def suggestions(trial: optuna.Trial) -> list[str]:
    """Return the options that this trial tries."""
    values = {
        "learning_rate": trial.suggest_float("learning_rate", 3e-4, 1e-2, log=True),
        "td_steps": trial.suggest_int("td_steps", 3, 20),
        "discount_factor": trial.suggest_categorical("discount_factor", [0.98, 0.99, 0.997]),
        "target_update_freq": trial.suggest_int("target_update_freq", 10, 200, log=True),
    }
    return [f"policy.{name}={value:.4g}" for name, value in values.items()]


def score(folder: Path) -> float:
    """Return the mean return over all env steps that the run was allowed, the higher the better.

    A run that ended before max_env_step counts on with its last evaluation, so that one that solves
    the task early beats one that solves it late.
    """
    run = read_run(folder)
    curve = run.curves["evaluator_step/reward_mean"]
    grid = np.linspace(0, float(run.options["max_env_step"]), 1001)
    return float(np.interp(grid, curve.envsteps, curve.values).mean())


def train(overrides: Sequence[str], folder: Path, seconds: float) -> None:
    """Train in a process of its own, for at most so many seconds.

    Raises:
        UserError: The options are refused; the program has said why.
        RuntimeError: The run failed.
    """
    command = [sys.executable, "-m", "lightzero_lite.train", *overrides, f"exp_name={folder}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # the run saves and ends well
        process.wait(SECONDS_TO_SAVE)
    finally:
        process.kill()  # nothing, where it has ended
    if process.returncode == USER_ERROR_EXIT:
        raise UserError(f"{' '.join(command)} was refused")
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


def main() -> None:
    """Run the trials that the command line asks for, and print all, the best first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10.0, help="of a trial, at most (10)")
    parser.add_argument("--out", type=Path, default=Path("sweep"), help="folder of it all (sweep)")
    parser.add_argument("overrides", nargs="*", help="options of all trials, as for train.py")
    arguments = parser.parse_args()
    with one_line_errors(Ranks()):
        try:
            import optuna
        except ModuleNotFoundError:
            line = "optuna is not installed: pip install 'lightzero-lite[sweep]'"
            raise UserError(line) from None

        def objective(trial: optuna.Trial) -> float:
            options = [*arguments.overrides, *suggestions(trial)]
            folder = arguments.out / f"trial_{trial.number}"
            trial.set_user_attr("options", " ".join(options))
            train(options, folder, 60 * arguments.minutes)
            return score(folder)

        arguments.out.mkdir(parents=True, exist_ok=True)
        study = optuna.create_study(
            study_name="lightzero_lite",
            storage=f"sqlite:///{arguments.out}/study.db",
            sampler=optuna.samplers.TPESampler(seed=0),
            direction="maximize",
            load_if_exists=True,
        )
        study.optimize(objective, n_trials=arguments.trials, catch=(RuntimeError,))
    done = [trial for trial in study.trials if trial.value is not None]
    for trial in sorted(done, key=lambda one: one.value, reverse=True):
        print(f"{trial.value:10.4g}  trial_{trial.number}  {trial.user_attrs['options']}")


if __name__ == "__main__":
    main()
