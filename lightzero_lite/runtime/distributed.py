"""The ranks of a run: the one place that starts and ends the process group.

Host-side values go through gloo, gradients of CUDA models through NCCL. Without torchrun there is
one rank and no process group, and every method below answers at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from lightzero_lite.runtime.clock import Clock, Part
from lightzero_lite.runtime.interfaces import choose_interface, known_host
from lightzero_lite.types import UserError

T = TypeVar("T")


def share(total: int, rank: int, num_ranks: int) -> int:
    """Return a rank's part of a global count; the parts differ by one at most and add up."""
    return total // num_ranks + (rank < total % num_ranks)


def share_offset(total: int, rank: int, num_ranks: int) -> int:
    """Return how much of a global count the ranks before this one take."""
    return rank * (total // num_ranks) + min(rank, total % num_ranks)


@dataclass(frozen=True)
class Ranks:
    """This process among the processes of the run."""

    rank: int = 0
    num_ranks: int = 1
    local_rank: int = 0
    num_local_ranks: int = 1
    clock: Clock = field(default_factory=Clock, compare=False, repr=False)

    @property
    def is_main(self) -> bool:
        """True on rank 0, the only one that writes."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up vectors of floats over all ranks, elementwise, in double precision."""
        if self.num_ranks == 1:
            return [float(value) for value in values]
        total = torch.tensor(list(values), dtype=torch.float64)
        with self.clock.counting(Part.WAIT):
            distributed.all_reduce(total)
        result: list[float] = total.tolist()
        return result

    def max(self, values: Sequence[float]) -> list[float]:
        """Return the largest over all ranks, elementwise."""
        return [max(column) for column in zip(*self.gather(list(values)), strict=True)]

    def any(self, flag: bool) -> bool:
        """Return True on all ranks where the flag is true on one."""
        return self.sum([float(flag)])[0] > 0

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, in rank order, on all ranks."""
        if self.num_ranks == 1:
            return [value]
        values: list[T | None] = [None] * self.num_ranks
        with self.clock.counting(Part.WAIT):
            distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def gather_on_main(self, value: T) -> list[T]:
        """Return every rank's value, in rank order, on rank 0; an empty list on the others."""
        if self.num_ranks == 1:
            return [value]
        values: list[T | None] = [None] * self.num_ranks if self.is_main else []
        with self.clock.counting(Part.WAIT):
            distributed.gather_object(value, values if self.is_main else None)
        return values  # type: ignore[return-value]

    def from_main(self, make: Callable[[], T]) -> T:
        """Make a value on rank 0 and return it on all ranks; its UserError is raised on all."""
        made = self.agreed(lambda: make() if self.is_main else None)
        return self.gather(made)[0]  # type: ignore[return-value]

    def agreed(self, act: Callable[[], T]) -> T:
        """Run something that may fail on some ranks; a UserError of one is raised on all.

        Raises:
            UserError: The first failing rank's line.
        """
        result: T | None = None
        message = ""
        try:
            result = act()
        except UserError as error:
            message = str(error)
        for failure in self.gather(message):
            if failure:
                raise UserError(failure)
        return result  # type: ignore[return-value]

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors by their mean over all ranks, in place."""
        if self.num_ranks == 1 or not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors]) / self.num_ranks
        with self.clock.counting(Part.WAIT):
            distributed.all_reduce(flat)
        parts = torch.split_with_sizes(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def post(self, note: str) -> None:
        """Leave a note that every rank can read at any time, without waiting for the others."""
        if self.num_ranks > 1:
            self._store().set(note, "")

    def is_posted(self, note: str) -> bool:
        """Return whether some rank left the note."""
        return self.num_ranks > 1 and bool(self._store().check([note]))

    def pulse(self) -> None:
        """Give a sign of life to the ranks that wait in `gather_late`."""
        if self.num_ranks > 1:
            self._store().add("pulse", 1)

    def gather_late(self, value: T, *, is_leaving: Callable[[], bool]) -> list[T]:
        """Gather where ranks arrive far apart: the late ones may take any time that they pulse in.

        A collective by itself waits no longer than the process group's timeout.

        Args:
            value: This rank's.
            is_leaving: True: wait in the collective, which notices a rank that is gone.
        """
        if self.num_ranks > 1:
            with self.clock.counting(Part.WAIT):
                self._wait_for_everyone(is_leaving)
        return self.gather(value)

    def _wait_for_everyone(self, is_leaving: Callable[[], bool]) -> None:
        """Return when all ranks are here, one leaves, or the late ones are silent too long."""
        store, start = self._store(), time.monotonic()
        arrivals, life, pause = store.add("arrivals", 1), 0, 0.0005
        everyone = -(-arrivals // self.num_ranks) * self.num_ranks
        while store.add("arrivals", 0) < everyone and not is_leaving():
            if (pulses := store.add("pulse", 0)) > life:
                life, start = pulses, time.monotonic()
            if time.monotonic() - start > _LONGEST_SILENCE:
                break
            time.sleep(pause)
            pause = min(1.25 * pause, 0.05)  # a fifth too long at most

    def _store(self) -> Any:
        """Return the keys and values that all ranks can read and write."""
        return distributed.distributed_c10d._get_default_store()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.num_ranks > 1:
            distributed.barrier()


def choose_device(requested: str, ranks: Ranks) -> torch.device:
    """Return this rank's device.

    Args:
        requested: "cpu", "cuda", or "auto" (a GPU a rank where this host has enough, else the CPU).
        ranks: The processes of the run.

    Raises:
        UserError: device=cuda, and this host has fewer GPUs than ranks.
    """
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if requested == "cuda" and num_gpus < ranks.num_local_ranks:
        raise UserError(
            f"device=cuda: this host runs {ranks.num_local_ranks} ranks but has {num_gpus} GPUs: "
            "start fewer ranks, or set device=cpu"
        )
    if requested == "auto" and 0 < num_gpus < ranks.num_local_ranks and ranks.local_rank == 0:
        counts = f"{ranks.num_local_ranks} ranks but has {num_gpus} GPUs"
        print(f"device=auto: this host runs {counts}: all ranks use the CPU", flush=True)
    if requested == "cpu" or num_gpus < ranks.num_local_ranks:
        return torch.device("cpu")
    device = torch.device("cuda", ranks.local_rank)
    torch.cuda.set_device(device)
    return device


@contextmanager
def joined_ranks(timeout: timedelta | None = None) -> Iterator[Ranks]:
    """Join the processes that torchrun started, and leave them at the end.

    RANK and WORLD_SIZE alone are not believed: a shell may still have them from another job.

    Args:
        timeout: Longest wait in a collective; None: torch's default.

    Raises:
        UserError: The ranks cannot meet where torchrun says.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        _share_threads(1)
        yield Ranks()
        return
    ranks = Ranks(
        rank=int(os.environ["RANK"]),
        num_ranks=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ["LOCAL_RANK"]),
        num_local_ranks=int(os.environ["LOCAL_WORLD_SIZE"]),
    )
    _share_threads(ranks.num_local_ranks)
    if ranks.num_ranks > 1:
        is_one_host = ranks.num_local_ranks == ranks.num_ranks
        host = known_host(os.environ["MASTER_ADDR"], is_one_host=is_one_host)
        choose_interface(host, is_one_host=is_one_host)
        has_gpus = torch.cuda.is_available() and torch.cuda.device_count() >= ranks.num_local_ranks
        backend = "cpu:gloo,cuda:nccl" if has_gpus else "gloo"
        distributed.init_process_group(
            backend,
            store=_store_of_this_start(ranks, host),
            rank=ranks.rank,
            world_size=ranks.num_ranks,
            timeout=timeout,
        )
    try:
        yield ranks
    finally:
        if ranks.num_ranks > 1:
            distributed.destroy_process_group()


def _store_of_this_start(ranks: Ranks, host: str) -> Any:
    """Return the store through which the ranks find one another, without what dead ranks wrote.

    torchrun keeps its store when it restarts the ranks of a host (torch 2.13), so that a rank could
    wait for the address of a process that is gone.
    """
    is_kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    port, is_server = int(os.environ["MASTER_PORT"]), not is_kept and ranks.is_main
    try:
        store = distributed.TCPStore(host, port, ranks.num_ranks, is_master=is_server)  # type: ignore[attr-defined]
    except distributed.DistNetworkError as error:
        reason = "another program listens there" if "EADDRINUSE" in str(error) else error
        raise UserError(
            f"rank {ranks.rank} cannot use port {port} of {host}: {reason}: "
            "start torchrun with --standalone, or with another port in --rdzv_endpoint"
        ) from None
    if ranks.num_local_ranks < ranks.num_ranks:
        # Hosts may count their restarts differently: see docs/cluster.md.
        return store
    number = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return distributed.PrefixStore(f"start_{number}", store)  # type: ignore[attr-defined]


def _share_threads(num_local_ranks: int) -> None:
    """Give each rank its part of the cores, unless OMP_NUM_THREADS says otherwise."""
    if "OMP_NUM_THREADS" not in os.environ:
        num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        torch.set_num_threads(max(1, min(num_cores // num_local_ranks, _MAX_THREADS)))


_LONGEST_SILENCE = 600.0  # seconds without a sign of life before a collective judges the late rank
_MAX_THREADS = 1  # Networks of this size do not fill a second core; it would only wait.
