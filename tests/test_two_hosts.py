"""Two hosts, as network namespaces, train one run: only the first one writes it."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lightzero_lite.runtime.interfaces import choose_interface
from tests.launch import COUNTER, ROOT, TINY, train_well

SCRIPT = ROOT / "scripts" / "two_hosts.py"
RUN = (f"env.env_id={COUNTER}", "exp_name=run", "max_env_step=300", "policy.use_priority=true")


@pytest.mark.distributed
def test_two_hosts_train_as_one_with_as_many_ranks(tmp_path: Path) -> None:
    if reason := runpy.run_path(str(SCRIPT))["why_not"]():
        pytest.skip(reason)
    hosts = tmp_path / "hosts"
    command = [sys.executable, SCRIPT, "--folder", hosts, "--limit", "150", *TINY, *RUN]
    variables = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    variables.pop("GLOO_SOCKET_IFNAME", None)
    done = subprocess.run(
        command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((hosts / "host_1").iterdir()) == []
    train_well(tmp_path, *RUN, num_ranks=4)
    one, two = tmp_path / "run", hosts / "host_0" / "run"
    assert learner_log(one) == learner_log(two)
    assert names(one) == names(two)
    for path in (one / "ckpt").iterdir():
        states = [torch.load(folder / "ckpt" / path.name) for folder in (one, two)]
        assert states[0]["num_ranks"] == states[1]["num_ranks"] == 4
        for name, tensor in states[0]["model"].items():
            assert torch.equal(tensor, states[1]["model"][name]), name


@pytest.mark.distributed
def test_an_interrupted_script_leaves_no_host_and_no_process(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    if reason := script["why_not"]():
        pytest.skip(reason)
    command = [sys.executable, SCRIPT, "--folder", tmp_path, f"env.env_id={COUNTER}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    hosts = [f"lzl_{process.pid}_{number}" for number in (0, 1)]
    end = time.monotonic() + 60
    while not all(pids := [script["pids_of"](host) for host in hosts]):
        assert time.monotonic() < end
    for _ in range(2):  # as often as an impatient user presses it
        process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in output
    assert not any(is_alive(pid) for one in pids for pid in one)
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert [host for host in hosts if host in listed] == []


def is_alive(pid: int) -> bool:
    """Return whether a process has memory: what was killed is still listed for a moment."""
    try:
        return "VmRSS" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def learner_log(run: Path) -> str:
    """Return the log without timestamps."""
    text = (run / "log/learner/learner_logger.txt").read_text()
    return re.sub(r"(?m)^\[[-0-9: ,.]+\]", "", text)


def names(run: Path) -> set[str]:
    """Return all files, without the time and process in the name of TensorBoard's."""
    return {re.sub(r"tfevents.*", "", str(p.relative_to(run))) for p in run.rglob("*")}


def test_ranks_of_one_host_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    choose_interface("a-name-that-is-nobodys.invalid", is_one_host=True)
    assert os.environ.pop("GLOO_SOCKET_IFNAME") == "lo"
    # With several hosts gloo decides where rank 0's host is unknown, or seems to be this one.
    for address in ("a-name-that-is-nobodys.invalid", "127.0.0.1"):
        choose_interface(address, is_one_host=False)
        assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_the_interface_that_the_user_names_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    choose_interface("127.0.0.1", is_one_host=True)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"
