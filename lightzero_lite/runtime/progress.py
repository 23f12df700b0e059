"""The progress line on rank 0's terminal; plain lines where the output is no terminal."""

from __future__ import annotations

import sys
import time

from tqdm import tqdm


class NullProgress:
    """The progress of the ranks that print nothing."""

    def say(self, text: str) -> None:
        """Print a line."""

    def show(self, *, envstep: int, train_iter: int, last_return: float | None) -> None:
        """Show where the run is."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Progress(NullProgress):
    """Rank 0's progress: envstep of max_env_step, train_iter, last evaluation, env steps/s."""

    def __init__(self, max_env_step: int, envstep: int, *, seconds_a_line: float = 10.0) -> None:
        """Start at an env step; without a terminal, print a line at most every so many seconds."""
        self.max_env_step, self.first_envstep = max_env_step, envstep
        self.seconds_a_line, self.start = seconds_a_line, time.perf_counter()
        self.last_line = self.start
        self.bar = None
        if sys.stderr.isatty():
            self.bar = tqdm(total=max_env_step, initial=envstep, unit="step", dynamic_ncols=True)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.bar is None:
            print(text, flush=True)
        else:
            self.bar.write(text)

    def show(self, *, envstep: int, train_iter: int, last_return: float | None) -> None:
        """Show where the run is."""
        score = "-" if last_return is None else f"{last_return:.1f}"
        if self.bar is not None:
            self.bar.set_postfix_str(f"train_iter {train_iter}, return {score}", refresh=False)
            self.bar.update(envstep - self.bar.n)
            return
        now = time.perf_counter()
        if now - self.last_line < self.seconds_a_line:
            return
        self.last_line = now
        speed = (envstep - self.first_envstep) / (now - self.start)
        print(
            f"envstep {envstep}/{self.max_env_step}, train_iter {train_iter}, return {score}, "
            f"{speed:.0f} env steps/s",
            flush=True,
        )

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.bar is not None:
            self.bar.close()
