"""Train on two hosts that are network namespaces of this one, joined by a virtual cable.

    sudo python scripts/two_hosts.py [--ranks N] [--folder F] [--limit S] [key=value ...]

Each host runs `torchrun --nnodes=2 --nproc_per_node=N train.py key=value ...` in a working folder
of its own, F/host_0 and F/host_1. Namespaces and processes are gone at the end, however it ends.
Exit status: 0 where both hosts trained to the end and only the first one has files, 77 where this
cannot be tried, which a line explains.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
ADDRESSES = ("10.213.0.1", "10.213.0.2")
SKIPPED = 77
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def why_not() -> str | None:
    """Return why this host cannot play two; None where it can."""
    if not sys.platform.startswith("linux") or shutil.which("ip") is None:
        return "network namespaces need Linux and the command ip (iproute2)"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    probe = f"lzl_{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"ip netns add: {made.stderr.strip()}" if made.returncode else None


def ip(*words: str) -> None:
    """Call ip, which must succeed."""
    subprocess.run(["ip", *words], check=True)


@contextmanager
def two_hosts() -> Iterator[list[str]]:
    """Make two namespaces that reach each other and nothing else; end all in them and remove them.

    Yields:
        Their names.
    """
    number = os.getpid()
    hosts = [f"lzl_{number}_{i}" for i in (0, 1)]
    plugs = [f"lzl{number}p{i}" for i in (0, 1)]
    try:
        for host in hosts:
            ip("netns", "add", host)
        cable = ["link", "add", plugs[0], "netns", hosts[0], "type", "veth"]
        ip(*cable, "peer", plugs[1], "netns", hosts[1])
        for host, plug, address in zip(hosts, plugs, ADDRESSES, strict=True):
            ip("-n", host, "address", "add", f"{address}/24", "dev", plug)
            for device in ("lo", plug):
                ip("-n", host, "link", "set", device, "up")
        yield hosts
    finally:
        for number in SIGNALS:  # a second Ctrl-C must not leave half of it
            signal.signal(number, signal.SIG_IGN)
        # All at once, and again for what a dying process has just started.
        while pids := [pid for host in hosts for pid in pids_of(host)]:
            for pid in pids:
                with suppress(ProcessLookupError):  # ended by itself meanwhile
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True)  # the cable with it


def pids_of(host: str) -> list[int]:
    """Return the processes of a namespace; none where there is no such namespace."""
    found = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def start(
    host: str, number: int, folder: Path, num_ranks: int, overrides: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start torchrun on a host, in its own folder."""
    command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"]
    command += ["--nnodes=2", f"--nproc_per_node={num_ranks}"]
    command += ["--rdzv_backend=c10d", f"--rdzv_endpoint={ADDRESSES[0]}:29500", "--rdzv_id=two"]
    # Both hosts have the name of this one, by which they cannot find each other.
    command += [f"--local_addr={ADDRESSES[number]}", f"--rdzv_conf=is_host={number == 0}"]
    command += [str(TRAIN), *overrides]
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(command, cwd=folder)


def train(folder: Path, num_ranks: int, limit: float, overrides: Sequence[str]) -> list[int]:
    """Train on both hosts and return their exit statuses.

    Raises:
        subprocess.TimeoutExpired: A host takes longer than `limit` seconds.
    """
    with two_hosts() as hosts:
        running = [
            start(host, number, folder / f"host_{number}", num_ranks, overrides)
            for number, host in enumerate(hosts)
        ]
        return [one.wait(limit) for one in running]


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> int:
    """Train, and say where the files are."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2, help="ranks of each host")
    parser.add_argument("--folder", type=Path, help="where the hosts' folders are made")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for the whole run")
    options, overrides = parser.parse_known_args()
    if reason := why_not():
        print(f"skipped: {reason}")
        return SKIPPED
    for number in SIGNALS:
        signal.signal(number, _leave)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="two_hosts_"))
    statuses = train(folder, options.ranks, options.limit, overrides)
    files = [sum(path.is_file() for path in (folder / f"host_{i}").rglob("*")) for i in (0, 1)]
    for number, (status, count) in enumerate(zip(statuses, files, strict=True)):
        print(f"host {number}: exit status {status}, {count} files in {folder}/host_{number}")
    return 0 if statuses == [0, 0] and files[0] and not files[1] else 1


if __name__ == "__main__":
    sys.exit(main())
