"""A slow search in plain Python, one root at a time, written from the formulas.

It shares no code and no layout with lightzero_lite.search: nodes are objects with dictionaries, a
node keeps the list of its returns, and every quantity is computed anew where it is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lightzero_lite.types import Int32Array, RecurrentOutput, RootOutput


@dataclass
class TabularModel:
    """A model whose latent is a number: tables say where actions lead and what they earn."""

    transition: Any  # [S, A] int
    reward: Any  # [S, A]
    prior_logits: Any  # [S, A]
    value: Any  # [S]

    @classmethod
    def from_lists(cls, tables: dict[str, Any]) -> TabularModel:
        """Read the tables of a golden case."""
        return cls(
            np.array(tables["transition"]),
            *(np.array(tables[key], np.float32) for key in ("reward", "prior_logits", "value")),
        )

    @classmethod
    def random(cls, seed: int, num_actions: int, num_states: int = 40) -> TabularModel:
        """Draw every table; no two rewards or values are equal."""
        rng = np.random.default_rng(seed)
        table = (num_states, num_actions)
        return cls(
            rng.integers(num_states, size=table),
            rng.normal(size=table).astype(np.float32),
            rng.normal(size=table).astype(np.float32),
            rng.normal(size=num_states).astype(np.float32),
        )

    def root(self, states: Any) -> RootOutput:
        """Answer the roots that start in these states [B]."""
        return RootOutput(self.prior_logits[states], self.value[states])


class TabularSearch:
    """The recurrent_fn of a batch of roots; it notes the new_node of every call."""

    def __init__(self, model: TabularModel, states: Any, num_simulations: int) -> None:
        """Start root b in states[b]."""
        self.model = model
        self.rows = np.arange(len(states))
        self.states = np.full((len(states), num_simulations + 1), -1)
        self.states[:, 0] = states
        self.new_nodes: list[int] = []
        shapes = (len(states), len(states), (len(states), model.reward.shape[1]))
        self.out = RecurrentOutput(*(np.empty(shape, np.float32) for shape in shapes))

    def __call__(
        self, parent_node: Int32Array, action: Int32Array, new_node: int
    ) -> RecurrentOutput:
        """Answer as the tables say, in arrays that the next call overwrites."""
        parents = self.states[self.rows, parent_node]
        assert (parents >= 0).all(), "a step from a node that does not exist yet"
        states = self.model.transition[parents, action]
        self.states[:, new_node] = states
        self.new_nodes.append(new_node)
        self.out.reward[:] = self.model.reward[parents, action]
        self.out.value[:] = self.model.value[states]
        self.out.prior_logits[:] = self.model.prior_logits[states]
        return self.out


@dataclass
class Node:
    """A node that was evaluated, with every return that reached it."""

    state: int
    reward: float  # of the edge into it
    raw_value: float
    logits: list[float]
    returns: list[float] = field(default_factory=list)
    children: dict[int, Node] = field(default_factory=dict)

    @property
    def visits(self) -> int:
        """Count the evaluations of the node and of its descendants."""
        return len(self.returns)

    @property
    def value(self) -> float:
        """Average the returns."""
        total = 0.0  # not sum(): newer Pythons compensate its rounding
        for entry in self.returns:
            total += entry
        return total / len(self.returns)

    def child_visits(self, action: int) -> int:
        """Count the visits of an action."""
        return self.children[action].visits if action in self.children else 0


@dataclass
class PlainAnswer:
    """What one search answers."""

    visit_counts: list[int]
    action_weights: list[float]
    root_value: float
    qvalues: list[float]
    action: int  # Gumbel: the winner; MuZero: the most visited


def softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    total = 0.0
    for weight in weights:
        total += weight
    return [weight / total for weight in weights]


def argmax(scores: dict[int, float]) -> int:
    """Return the key of the greatest score, the least key on a tie."""
    return min(scores, key=lambda action: (-scores[action], action))


class PlainSearch:
    """What both searches do: walk down, evaluate one node, back its value up."""

    def __init__(
        self, model: TabularModel, state: int, discount: float, illegal: list[bool]
    ) -> None:
        """Evaluate the root."""
        self.model, self.discount = model, discount
        self.legal = [action for action, flag in enumerate(illegal) if not flag]
        self.num_actions = len(illegal)
        self.root = self.evaluate(state, 0.0)
        self.root.returns.append(self.root.raw_value)

    def evaluate(self, state: int, reward: float) -> Node:
        """Ask the model about a state that an edge of this reward leads to."""
        logits = [float(x) for x in self.model.prior_logits[state]]
        return Node(state, reward, float(self.model.value[state]), logits)

    def select(self, node: Node, is_root: bool) -> int:
        """Choose the action to walk down or out of the tree with."""
        raise NotImplementedError

    def simulate(self) -> None:
        """Add one node."""
        path = [self.root]
        while True:
            node = path[-1]
            action = self.select(node, node is self.root)
            if action not in node.children:
                break
            path.append(node.children[action])
        reward = float(self.model.reward[node.state, action])
        leaf = self.evaluate(int(self.model.transition[node.state, action]), reward)
        node.children[action] = leaf
        backed_up = leaf.raw_value
        leaf.returns.append(backed_up)
        for parent, child in zip(path[::-1], [leaf, *path[:0:-1]], strict=True):
            backed_up = child.reward + self.discount * backed_up
            parent.returns.append(backed_up)

    def qvalue(self, child: Node) -> float:
        """Return q of the edge into a node."""
        return child.reward + self.discount * child.value

    def qvalues_below(self, node: Node) -> list[float]:
        """Return q of every visited edge of the subtree."""
        found = []
        for child in node.children.values():
            found += [self.qvalue(child), *self.qvalues_below(child)]
        return found

    def root_qvalues(self) -> list[float]:
        """Return q of every action of the root, 0 where it was not visited."""
        children = self.root.children
        return [self.qvalue(children[a]) if a in children else 0.0 for a in range(self.num_actions)]


class PlainMuZero(PlainSearch):
    """PUCT with either q_transform."""

    def __init__(
        self,
        model: TabularModel,
        state: int,
        discount: float,
        illegal: list[bool],
        q_transform: str,
        pb_c_init: float = 1.25,
        pb_c_base: float = 19652.0,
        root_prior: list[float] | None = None,
        value_delta_max: float = 1e-8,
    ) -> None:
        """Take root_prior in place of the root's own prior, if given."""
        super().__init__(model, state, discount, illegal)
        self.q_transform, self.pb_c_init, self.pb_c_base = q_transform, pb_c_init, pb_c_base
        self.root_prior, self.value_delta_max = root_prior, value_delta_max

    def prior(self, node: Node, actions: list[int]) -> dict[int, float]:
        """Return the probabilities of these actions."""
        if node is self.root and self.root_prior is not None:
            return {action: self.root_prior[action] for action in actions}
        return dict(zip(actions, softmax([node.logits[a] for a in actions]), strict=True))

    def value_scores(self, node: Node) -> dict[int, float]:
        """Return the normalised q of the visited actions."""
        if self.q_transform == "tree_min_max":
            known = self.qvalues_below(self.root)
        else:
            known = [node.value, *(self.qvalue(child) for child in node.children.values())]
        low, width = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
        return {
            action: (self.qvalue(child) - low) / max(width, self.value_delta_max)
            for action, child in node.children.items()
        }

    def select(self, node: Node, is_root: bool) -> int:
        """Choose the action to walk down or out of the tree with."""
        actions = self.legal if is_root else list(range(self.num_actions))
        prior = self.prior(node, actions)
        value_scores = self.value_scores(node)
        n = node.visits
        pb_c = self.pb_c_init + math.log((n + self.pb_c_base + 1) / self.pb_c_base)
        return argmax(
            {
                a: value_scores.get(a, 0.0)
                + math.sqrt(n) * pb_c * prior[a] / (1 + node.child_visits(a))
                for a in actions
            }
        )

    def run(self, num_simulations: int) -> PlainAnswer:
        """Search and read the root."""
        for _ in range(num_simulations):
            self.simulate()
        visits = [self.root.child_visits(a) for a in range(self.num_actions)]
        weights = [count / num_simulations for count in visits]
        best = argmax(dict(enumerate(visits)))
        return PlainAnswer(visits, weights, self.root.value, self.root_qvalues(), best)


class PlainGumbel(PlainSearch):
    """Sequential halving at the root, improved policy below it."""

    def __init__(
        self,
        model: TabularModel,
        state: int,
        discount: float,
        illegal: list[bool],
        gumbel: list[float],
        max_considered: int,
    ) -> None:
        """Take the Gumbel noise of the root, [A]."""
        super().__init__(model, state, discount, illegal)
        self.gumbel = gumbel
        self.num_considered = min(max_considered, len(self.legal))
        self.plan: list[int] = []

    def sigma(self, node: Node, actions: list[int]) -> list[float]:
        """Rescale the completed q of all actions; an illegal one counts as not visited."""
        priors = dict(zip(actions, softmax([node.logits[a] for a in actions]), strict=True))
        visited = sorted(node.children)
        mixed = node.raw_value
        if visited:
            weighted = prior_sum = 0.0
            for a in visited:
                weighted += priors[a] * self.qvalue(node.children[a])
                prior_sum += priors[a]
            visits = node.visits - 1
            mixed = (mixed + visits * (weighted / prior_sum)) / (visits + 1)
        completed = [
            self.qvalue(node.children[a]) if a in node.children else mixed
            for a in range(self.num_actions)
        ]
        low, high = min(completed), max(completed)
        most = max(node.child_visits(a) for a in range(self.num_actions))
        return [(50 + most) * 0.1 * (q - low) / max(high - low, 1e-8) for q in completed]

    def improved_policy(self, node: Node, actions: list[int]) -> dict[int, float]:
        """Return softmax(logits + sigma(completed q)) over these actions."""
        sigma = self.sigma(node, actions)
        return dict(
            zip(actions, softmax([node.logits[a] + sigma[a] for a in actions]), strict=True)
        )

    def select(self, node: Node, is_root: bool) -> int:
        """Choose the action to walk down or out of the tree with."""
        if is_root:
            return self.best_of(self.next_candidates())
        policy = self.improved_policy(node, list(range(self.num_actions)))
        visits = {a: node.child_visits(a) for a in policy}
        total = 1 + sum(visits.values())
        return argmax({a: policy[a] - visits[a] / total for a in policy})

    def best_of(self, candidates: list[int]) -> int:
        """Return the candidate of the greatest gumbel + logits + sigma(completed q)."""
        sigma = self.sigma(self.root, self.legal)
        return argmax({a: self.gumbel[a] + self.root.logits[a] + sigma[a] for a in candidates})

    def next_candidates(self) -> list[int]:
        """Return the actions among which the halving lets the next simulation choose."""
        wanted = self.plan[self.root.visits - 1]
        return [a for a in self.legal if self.root.child_visits(a) == wanted]

    def run(self, num_simulations: int) -> PlainAnswer:
        """Search and read the root."""
        self.plan = halving_plan(self.num_considered, num_simulations)
        for _ in range(num_simulations):
            self.simulate()
        visits = [self.root.child_visits(a) for a in range(self.num_actions)]
        policy = self.improved_policy(self.root, self.legal)
        weights = [policy.get(a, 0.0) for a in range(self.num_actions)]
        action = self.best_of([a for a in self.legal if visits[a] == max(visits)])
        return PlainAnswer(visits, weights, self.root.value, self.root_qvalues(), action)


def halving_plan(num_considered: int, num_simulations: int) -> list[int]:
    """Play sequential halving on paper: the visits of whichever action simulation s takes.

    Candidates are numbered by rank; each phase visits the best of them in turn, as often as an
    equal share of the simulations among ceil(log2(m)) phases allows, and drops the worse half.
    """
    visits = [0] * num_considered
    if num_considered == 1:
        return list(range(num_simulations))
    phases = math.ceil(math.log2(num_considered))
    plan: list[int] = []
    survivors = num_considered
    while True:
        turns = max(1, math.floor(num_simulations / (phases * survivors)))
        for _ in range(turns):
            for rank in range(survivors):
                if len(plan) == num_simulations:
                    return plan
                plan.append(visits[rank])
                visits[rank] += 1
        survivors = max(2, survivors // 2)
