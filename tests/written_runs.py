"""Run folders that nothing was trained for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightzero_lite.config import Config, EnvConfig, config_to_dict
from lightzero_lite.runtime.config_files import write_config_files
from lightzero_lite.runtime.logging import RunLog


def write_run(folder: Path, returns: list[float], **options: Any) -> Path:
    """Leave a run folder with an evaluation and a buffer table every 100 env steps."""
    folder.mkdir(parents=True, exist_ok=True)
    env = EnvConfig(stop_value=options.pop("stop_value", 9.0))
    write_config_files(config_to_dict(Config(env=env, exp_name=str(folder), **options)), folder)
    log = RunLog(folder)
    for i, value in enumerate(returns):
        counters = {"train_iter": i, "envstep": 100 * i}
        log.scalars("evaluator", {"reward_mean": value, "train_iter": i}, **counters)
        log.scalars("buffer", {"current_have": 100 * i}, **counters)
    log.close()
    return folder
