"""The sum tree against running sums, by hand and by properties."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightzero_lite.compiled import compiled
from lightzero_lite.replay.sum_tree import SumTree


class FixedUniform(NamedTuple):
    """Stands in for a generator: every uniform draw is the same number."""

    value: float

    def random(self, size: int) -> np.ndarray:
        """Return `size` equal draws."""
        return np.full(size, self.value)


def make_tree(values: list[float]) -> SumTree:
    tree = SumTree(len(values))
    tree.set(np.arange(len(values)), np.array(values, np.float64))
    return tree


def test_draws_at_the_edges_of_the_strata_by_hand() -> None:
    # Total 10 in 10 strata, each drawn at its lower edge: masses 0, 1, ..., 9. A draw that equals
    # a running sum belongs to the next leaf, so a leaf of value v is drawn v times.
    tree = make_tree([1.0, 2.0, 3.0, 4.0])
    assert tree.total == 10.0
    assert tree.sample(10, FixedUniform(0.0)).tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]


def test_of_an_index_that_occurs_twice_the_later_value_counts() -> None:
    tree = make_tree([1.0, 1.0, 1.0])
    tree.set(np.array([2, 0, 2]), np.array([5.0, 2.0, 7.0]))
    assert tree.values(np.arange(3)).tolist() == [2.0, 1.0, 7.0]
    assert tree.total == 10.0


def test_a_batch_draws_each_index_in_its_share() -> None:
    # A stratified batch covers the total evenly: an index whose share spans s strata is drawn by
    # the whole strata inside and perhaps by the two at its borders.
    rng = np.random.default_rng(0)
    values = rng.random(37) ** 3
    counts = np.bincount(make_tree(values.tolist()).sample(10_000, rng), minlength=37)
    assert np.all(np.abs(counts - 10_000 * values / values.sum()) < 2.0)


def test_single_draws_are_random_and_proportional() -> None:
    # Chi-square with 3 degrees of freedom: 16.27 is passed by chance once in a thousand seeds.
    tree, rng = make_tree([1.0, 2.0, 3.0, 4.0]), np.random.default_rng(1)
    draws = np.concatenate([tree.sample(1, rng) for _ in range(8000)])
    expected = 8000 * np.array([0.1, 0.2, 0.3, 0.4])
    counts = np.bincount(draws, minlength=4)
    assert float(np.sum((counts - expected) ** 2 / expected)) < 16.27


@settings(deadline=None, max_examples=100)
@given(
    values=st.lists(st.integers(0, 50), min_size=1, max_size=70),
    batch_size=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_draws_agree_with_a_search_in_the_running_sum(
    values: list[int], batch_size: int, seed: int
) -> None:
    # Sums of small integers are exact, so both routes must agree on every draw.
    if sum(values) == 0:
        values[0] = 1
    drawn = make_tree([float(value) for value in values]).sample(
        batch_size, np.random.default_rng(seed)
    )
    uniform = np.random.default_rng(seed).random(batch_size)
    masses = (np.arange(batch_size) + uniform) / batch_size * sum(values)
    np.testing.assert_array_equal(drawn, np.searchsorted(np.cumsum(values), masses, "right"))


@settings(deadline=None, max_examples=100)
@given(
    values=st.lists(
        st.one_of(st.just(0.0), st.floats(1e-9, 1e9, allow_subnormal=False)),
        min_size=2,
        max_size=40,
    ),
    last=st.sampled_from([0.0, 0.5, np.nextafter(1.0, 0.0)]),
)
def test_a_value_of_zero_is_never_drawn(values: list[float], last: float) -> None:
    # The highest uniform draw lands on or past the rounded total: the last leaf, perhaps a 0.
    values[0] = max(values[0], 1.0)
    drawn = make_tree(values).sample(16, FixedUniform(last))
    assert all(values[index] > 0 for index in drawn)


@settings(deadline=None, max_examples=60)
@given(
    num_leaves=st.integers(1, 33),
    writes=st.lists(st.tuples(st.integers(0, 32), st.floats(0, 1e6)), max_size=60),
    chunk=st.integers(1, 7),
)
def test_any_order_of_writes_gives_the_tree_of_its_leaves(
    num_leaves: int, writes: list[tuple[int, float]], chunk: int
) -> None:
    model, tree = [0.0] * num_leaves, SumTree(num_leaves)
    writes = [(index % num_leaves, value) for index, value in writes]
    for start in range(0, len(writes), chunk):
        batch = writes[start : start + chunk]
        tree.set(np.array([index for index, _ in batch]), np.array([value for _, value in batch]))
        for index, value in batch:
            model[index] = value
        assert tree.check_valid() == (True, "")
    assert tree.values(np.arange(num_leaves)).tolist() == model
    assert tree.total == pytest.approx(sum(model), rel=1e-12)
    # Bit-equal to a tree that is built at once, whatever was written before: rounding never stays.
    assert tree.total == make_tree(model).total


def test_check_valid_finds_a_wrong_sum_and_a_leaf_that_is_none() -> None:
    tree = make_tree([1.0, 2.0, 3.0])
    tree._nodes[2] += 1.0
    assert tree.check_valid() == (False, "node 1 is not the sum of its children")
    tree = make_tree([1.0, 2.0, 3.0])
    tree._nodes[[7, 3, 1]] += 1.0
    assert tree.check_valid() == (False, "a leaf past the last is not 0")


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_of_the_tree_is_refused(index: int) -> None:
    # Leaf 3 has a node, since the capacity is 4, but no value.
    with pytest.raises(AssertionError, match=r"\[0, 3\)"):
        make_tree([1.0, 2.0, 3.0]).set(np.array([index]), np.array([1.0]))


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_a_value_that_would_spoil_the_sums_is_refused(value: float) -> None:
    with pytest.raises(AssertionError, match="finite"):
        make_tree([1.0, 2.0]).set(np.array([0]), np.array([value]))


def test_a_tree_of_zeros_is_not_sampled() -> None:
    with pytest.raises(AssertionError, match="zeros"):
        SumTree(3).sample(1, np.random.default_rng(0))


def test_kernels_compile_where_no_cache_folder_is_writable() -> None:
    # numba finds no place for the cache of a function without a file, as in a read-only install.
    namespace: dict[str, object] = {}
    exec("def double(x):\n    return 2 * x", namespace)
    assert compiled(namespace["double"])(21) == 42
