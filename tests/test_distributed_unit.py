"""Shares of global counts, and ranks without a process group."""

from __future__ import annotations

import socket

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightzero_lite.runtime.distributed import (
    Ranks,
    choose_device,
    joined_ranks,
    share,
    share_offset,
)
from lightzero_lite.runtime.interfaces import known_host
from lightzero_lite.types import UserError
from tests.builders import on_ranks

totals, numbers = st.integers(0, 10_000), st.integers(1, 64)


@given(totals, numbers)
def test_shares_add_up_and_differ_by_one_at_most(total: int, num_ranks: int) -> None:
    shares = [share(total, rank, num_ranks) for rank in range(num_ranks)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


@given(totals, numbers)
def test_offsets_are_the_sums_of_the_shares_before(total: int, num_ranks: int) -> None:
    taken: list[int] = []
    for rank in range(num_ranks):
        offset = share_offset(total, rank, num_ranks)
        taken += range(offset, offset + share(total, rank, num_ranks))
    assert taken == list(range(total))


def test_shares_by_hand() -> None:
    assert [share(10, rank, 4) for rank in range(4)] == [3, 3, 2, 2]
    assert [share_offset(10, rank, 4) for rank in range(4)] == [0, 3, 6, 8]


def test_one_rank_answers_at_once() -> None:
    ranks = Ranks()
    assert ranks.is_main
    assert ranks.sum([1, 2.5]) == [1.0, 2.5]
    assert ranks.max([1, 2.5]) == [1, 2.5]
    assert ranks.any(True)
    assert not ranks.any(False)
    assert ranks.gather("x") == ["x"]
    assert ranks.from_main(lambda: 3) == 3
    tensor = torch.ones(2)
    ranks.average([tensor])
    assert tensor.tolist() == [1, 1]
    ranks.barrier()


def test_a_mistake_of_one_rank_is_raised_on_all() -> None:
    def act(ranks: Ranks) -> str:
        def fail_on_two() -> None:
            if ranks.rank == 2:
                raise UserError("rank two's line")

        with pytest.raises(UserError) as refused:
            ranks.agreed(fail_on_two)
        return str(refused.value)

    assert on_ranks(4, act) == ["rank two's line"] * 4


def test_the_first_mistake_is_the_one_that_all_report() -> None:
    def act(ranks: Ranks) -> str:
        def fail() -> None:
            raise UserError(f"line of rank {ranks.rank}")

        with pytest.raises(UserError) as refused:
            ranks.agreed(fail)
        return str(refused.value)

    assert on_ranks(3, act) == ["line of rank 0"] * 3


def test_only_the_main_rank_makes_what_all_get() -> None:
    made: list[int] = []

    def act(ranks: Ranks) -> str:
        def make() -> str:
            made.append(ranks.rank)
            return f"made by {ranks.rank}"

        return ranks.from_main(make)

    assert on_ranks(3, act) == ["made by 0"] * 3
    assert made == [0]


def test_variables_of_another_job_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with joined_ranks() as ranks:
        assert ranks == Ranks()


def rank_of_two(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    """Set the variables that torchrun gives to rank 0 of two."""
    given = {"TORCHELASTIC_RUN_ID": "x", "RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0}
    for name, value in (given | variables).items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


def test_a_busy_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        rank_of_two(monkeypatch, LOCAL_WORLD_SIZE=2, **address)
        with pytest.raises(UserError) as refused, joined_ranks():
            raise AssertionError
    assert str(refused.value) == (
        f"rank 0 cannot use port {port} of 127.0.0.1: another program listens there: "
        "start torchrun with --standalone, or with another port in --rdzv_endpoint"
    )


def test_a_host_name_that_leads_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-name-that-is-nobodys.invalid"
    assert known_host(name, is_one_host=True) == "127.0.0.1"
    assert known_host("localhost", is_one_host=False) == "localhost"
    rank_of_two(monkeypatch, LOCAL_WORLD_SIZE=1, MASTER_ADDR=name, MASTER_PORT=1)
    with pytest.raises(UserError) as refused, joined_ranks():
        raise AssertionError
    assert str(refused.value).startswith(f"MASTER_ADDR={name}: this host cannot resolve the name (")


def test_more_ranks_than_gpus_are_refused_where_gpus_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    ranks = Ranks(rank=1, num_ranks=2, local_rank=1, num_local_ranks=2)
    with pytest.raises(UserError) as refused:
        choose_device("cuda", ranks)
    assert str(refused.value) == (
        "device=cuda: this host runs 2 ranks but has 1 GPUs: start fewer ranks, or set device=cpu"
    )
    assert choose_device("auto", ranks) == torch.device("cpu")
    assert capsys.readouterr().out == ""  # rank 0 of the host says it, once
    assert choose_device("auto", Ranks(num_ranks=2, num_local_ranks=2)) == torch.device("cpu")
    line = "device=auto: this host runs 2 ranks but has 1 GPUs: all ranks use the CPU\n"
    assert capsys.readouterr().out == line
    assert choose_device("cpu", Ranks()) == torch.device("cpu")
