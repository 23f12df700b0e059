"""Two hosts, as network namespaces, train one run: only the first one writes it."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
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
