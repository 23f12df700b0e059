"""Checkpoint files: whole or not at all, and every bad file answered in one line."""

from __future__ import annotations

import pickle
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from lightzero_lite.runtime.checkpoint import (
    KEYS,
    check_same_shapes,
    iteration_name,
    load_checkpoint,
    save_checkpoint,
)
from lightzero_lite.runtime.run_folder import make_run_folder
from lightzero_lite.trainer import Counters
from lightzero_lite.types import UserError
from tests.builders import make_learner, random_batch, tiny_policy


def make_state() -> dict[str, Any]:
    learner = make_learner(tiny_policy())
    learner.update(random_batch(0))
    return {
        **learner.state_dict(),
        "last_step": 640,
        "config": {},
        "counters": asdict(Counters(envstep=640, best_score=9.5)),
    }


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as refused:
        load_checkpoint(path)
    line = str(refused.value)
    assert "\n" not in line
    assert line.startswith(f"resume={path}: ")
    return line.removeprefix(f"resume={path}: ")


def test_torch_load_reads_it_with_its_defaults(tmp_path: Path) -> None:
    state = make_state()
    save_checkpoint(state, tmp_path / "a.pth.tar")
    read = torch.load(tmp_path / "a.pth.tar")
    assert read.keys() == state.keys() >= set(KEYS)
    for name, tensor in state["model"].items():
        assert torch.equal(read["model"][name], tensor)
    assert (read["last_iter"], read["last_step"]) == (1, 640)
    assert Counters(**read["counters"]) == Counters(envstep=640, best_score=9.5)
    assert load_checkpoint(tmp_path / "a.pth.tar").keys() == state.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["a.pth.tar"]


def test_names_are_lightzeros() -> None:
    assert iteration_name(10000) == "iteration_10000.pth.tar"


def test_a_failure_while_saving_leaves_the_old_file(tmp_path: Path) -> None:
    make_run_folder(tmp_path)
    path = tmp_path / "ckpt" / "ckpt_best.pth.tar"
    save_checkpoint(make_state(), path)
    before = path.read_bytes()
    unsaveable = {**make_state(), "counters": lambda: None}
    with pytest.raises((AttributeError, pickle.PicklingError)):
        save_checkpoint(unsaveable, path)
    assert path.read_bytes() == before
    # What the failure left behind has another kind of name, and the next run clears it.
    assert [p.name for p in path.parent.glob("*.pth.tar")] == ["ckpt_best.pth.tar"]
    make_run_folder(tmp_path)
    assert [p.name for p in path.parent.iterdir()] == ["ckpt_best.pth.tar"]


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.pth.tar") == "there is no such file"
    assert refusal(tmp_path) == "there is no such file"


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.pth.tar"
    path.touch()
    expected = "not a readable checkpoint (0 bytes): name another file of ckpt/"
    assert refusal(path) == expected


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "cut.pth.tar"
    save_checkpoint(make_state(), path)
    content = path.read_bytes()
    for size in (1, 2, 4, 100, 1000, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        assert refusal(path).startswith(f"not a readable checkpoint ({size} bytes)")


class Foreign:
    """An object that torch.load does not trust."""


@pytest.mark.parametrize(
    "content", [{"a": 1}, [1, 2], Foreign(), "text"], ids=lambda content: type(content).__name__
)
def test_a_pickle_of_something_else(tmp_path: Path, content: object) -> None:
    path = tmp_path / "pickle.pth.tar"
    path.write_bytes(pickle.dumps(content, protocol=2))
    assert refusal(path).startswith("not a readable checkpoint (")


def test_a_torch_file_with_an_object_that_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "foreign.pth.tar"
    torch.save({**make_state(), "config": Foreign()}, path)
    assert refusal(path).startswith("not a readable checkpoint (")


@pytest.mark.parametrize("text", ["exp_config = {'seed': 0}\n", "[INFO]: line\n", "N.", "}", "(e"])
def test_a_text_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "text.pth.tar"
    path.write_text(text)
    assert refusal(path).startswith("not a readable checkpoint (")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_bytes_of_any_kind_are_refused_and_never_raise_anything_else(tmp_path: Path) -> None:
    path, rng = tmp_path / "noise.pth.tar", random.Random(0)
    pickled = bytes(range(40, 126)) + b"\x80\x02\x85\x87\x88\x94"
    for _ in range(300):
        size = rng.randrange(1, 80)
        path.write_bytes(bytes(rng.choice(pickled) for _ in range(size)))
        refusal(path)


@pytest.mark.parametrize("content", [torch.zeros(3), [1], {}, 3], ids=["tensor", "list", "{}", "3"])
def test_a_torch_file_of_something_else(tmp_path: Path, content: object) -> None:
    path = tmp_path / "other.pth.tar"
    torch.save(content, path)
    assert refusal(path) == (
        "no MuZero checkpoint: it lacks model, target_model, optimizer, last_iter, last_step, "
        "counters"
    )


def test_a_checkpoint_that_lacks_a_part(tmp_path: Path) -> None:
    state = make_state()
    del state["optimizer"], state["counters"]
    torch.save(state, tmp_path / "part.pth.tar")
    assert refusal(tmp_path / "part.pth.tar") == (
        "no MuZero checkpoint: it lacks optimizer, counters"
    )


def shape_refusal(state: dict[str, Any]) -> str:
    ours = make_learner(tiny_policy()).model.state_dict()
    with pytest.raises(UserError) as refused:
        check_same_shapes(ours, Path("x/ckpt_best.pth.tar"), state)
    return str(refused.value)


START = "resume=x/ckpt_best.pth.tar: the checkpoint is of another network: "
REMEDY = ": give the env and policy.model options that it was trained with"


def test_a_checkpoint_of_the_same_network_is_taken() -> None:
    state = make_state()
    check_same_shapes(make_learner(tiny_policy(), seed=5).model.state_dict(), Path("x"), state)


def test_a_checkpoint_of_another_network_is_refused_with_the_first_difference() -> None:
    state = make_state()
    name = "representation_network.fc_representation.0.weight"
    state["model"][name] = torch.zeros(16, 7)
    assert shape_refusal(state) == f"{START}{name} is 16x7 against 16x3 here{REMEDY}"


def test_a_checkpoint_with_more_or_fewer_parameters_is_refused() -> None:
    state = make_state()
    name = "dynamics_network.fc_dynamics_1.0.bias"
    del state["model"][name]
    assert shape_refusal(state) == f"{START}{name} is nothing against 16 here{REMEDY}"
    state = make_state()
    state["model"]["another"] = torch.zeros(())
    assert shape_refusal(state) == f"{START}another is a scalar against nothing here{REMEDY}"
