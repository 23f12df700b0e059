"""The kernels and the plain search against what mctx answers on 18 batches of searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightzero_lite.search import TreeCache, gumbel_muzero_policy, muzero_policy
from lightzero_lite.types import SearchOutput
from tests.plain_search import PlainAnswer, PlainGumbel, PlainMuZero, TabularModel, TabularSearch

CASES = json.loads((Path(__file__).parent / "golden" / "search.json").read_text())["cases"]
TOLERANCE = 1e-4  # mctx computes in float32
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))


def run_case(case: dict[str, Any], trees: TreeCache) -> SearchOutput:
    model = TabularModel.from_lists(case["model"])
    states = np.array(case["root_state"])
    illegal = case["invalid_actions"]
    arguments: dict[str, Any] = {
        "num_simulations": case["num_simulations"],
        "discount": case["discount"],
        "rng": np.random.default_rng(0),
        "invalid_actions": None if illegal is None else np.array(illegal, np.bool_),
        "trees": trees,
    }
    if case["policy"] == "gumbel":
        arguments["max_num_considered_actions"] = case["max_num_considered_actions"]
        arguments["gumbel"] = np.array(case["root_gumbel"])
    else:
        arguments["dirichlet_fraction"] = 0.0
        arguments |= {key: case[key] for key in ("q_transform", "pb_c_init", "pb_c_base")}
    policy = gumbel_muzero_policy if case["policy"] == "gumbel" else muzero_policy
    step = TabularSearch(model, states, case["num_simulations"])
    return policy(model.root(states), step, **arguments)


def test_the_golden_file_holds_both_policies_and_both_transforms() -> None:
    assert len(CASES) == 18
    assert sum(case["policy"] == "gumbel" for case in CASES) == 6
    assert sum(case["q_transform"] == "tree_min_max" for case in CASES) == 6
    assert sum(case["q_transform"] == "parent_and_siblings" for case in CASES) == 6


@by_name
def test_answers_equal_mctx(case: dict[str, Any]) -> None:
    answer, expect = run_case(case, TreeCache()), case["expect"]
    assert answer.visit_counts.tolist() == expect["visit_counts"]
    np.testing.assert_allclose(answer.action_weights, expect["action_weights"], atol=TOLERANCE)
    np.testing.assert_allclose(answer.root_value, expect["root_value"], atol=TOLERANCE)
    if case["policy"] == "gumbel":
        assert answer.action.tolist() == expect["action"]


@by_name
def test_every_node_equals_mctx(case: dict[str, Any]) -> None:
    trees = TreeCache()
    num_roots, num_actions = run_case(case, trees).visit_counts.shape
    nodes = trees.get(num_roots, case["num_simulations"], num_actions).nodes
    expect = case["expect"]
    assert nodes["parent"].tolist() == expect["parents"]
    assert nodes["action"].tolist() == expect["action_from_parent"]
    assert nodes["visits"].tolist() == expect["node_visits"]
    np.testing.assert_allclose(nodes["value"], expect["node_values"], atol=TOLERANCE)


@by_name
def test_the_plain_search_equals_mctx_too(case: dict[str, Any]) -> None:
    """What the kernels are compared with on random models is itself held to the golden file."""
    expect = case["expect"]
    for row, answer in enumerate(plain_answers(case)):
        assert answer.visit_counts == expect["visit_counts"][row]
        np.testing.assert_allclose(
            answer.action_weights, expect["action_weights"][row], atol=TOLERANCE
        )
        assert answer.root_value == pytest.approx(expect["root_value"][row], abs=TOLERANCE)
        if case["policy"] == "gumbel":
            assert answer.action == expect["action"][row]


def plain_answers(case: dict[str, Any]) -> list[PlainAnswer]:
    model = TabularModel.from_lists(case["model"])
    num_roots, num_actions = len(case["root_state"]), model.reward.shape[1]
    masks = case["invalid_actions"] or [[0] * num_actions] * num_roots
    answers = []
    for row, state in enumerate(case["root_state"]):
        illegal = [bool(flag) for flag in masks[row]]
        search: PlainMuZero | PlainGumbel
        if case["policy"] == "gumbel":
            considered = case["max_num_considered_actions"]
            gumbel = case["root_gumbel"][row]
            search = PlainGumbel(model, state, case["discount"], illegal, gumbel, considered)
        else:
            search = PlainMuZero(
                model, state, case["discount"], illegal, case["q_transform"],
                case["pb_c_init"], case["pb_c_base"],
            )  # fmt: skip
        answers.append(search.run(case["num_simulations"]))
    return answers
