"""What actions cost, in integer nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, code_kind, code_part, code_stage
from pipetrace.errors import CostError
from pipetrace.jitter import Jitter
from pipetrace.part_costs import LayerCosts
from pipetrace.schedule import Schedule
from pipetrace.shown import shown
from pipetrace.times import MAX_COST, UNITS, is_count

MAX_MESSAGE = 1 << 50  # bytes: a PiB
MAX_NODE = 1_000_000  # ranks
_MANY = 1 << 31  # more ranks than there are


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Costs of one stage's actions for one microbatch, in ns.

    Args:
        F: Forward.
        I: Input gradient.
        W: Weight gradient.
        B: Full backward; I + W when None.
        recompute: Added to the start of the backward (I, B or a pair): the forward run again, under activation
            checkpointing.
        reduce_grad: Gradient reduction at the end of a step, also between the replicas of a bidirectional schedule.
        optim: Optimiser at the end of a step.

    Raises:
        CostError: A cost is negative, over 1,000 s, or no whole number.
    """

    F: int
    I: int  # noqa: E741 - the field's own letter
    W: int
    B: int | None = None
    recompute: int = 0
    reduce_grad: int = 0
    optim: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not is_count(value, MAX_COST) and not (name == "B" and value is None):
                raise CostError(f"{name} costs {shown(value)} ns", "give a time between 0 and 1000 s")

    @property
    def full_backward(self) -> int:
        """ns of B."""
        return self.I + self.W if self.B is None else self.B


@dataclass(frozen=True, slots=True)
class PairCost:
    """Cost of an overlapped pair, in ns from its start.

    Args:
        duration: To its end.
        forward_ready: To when the forward's output can leave.
        backward_ready: To when the input gradient can leave.
    """

    duration: int
    forward_ready: int
    backward_ready: int

    def __post_init__(self) -> None:
        if not is_count(self.duration, 2 * MAX_COST):
            raise CostError(f"FB costs {shown(self.duration)} ns", "give a time between 0 and 2000 s")
        if not (is_count(self.forward_ready, self.duration) and is_count(self.backward_ready, self.duration)):
            raise CostError("an overlapped pair's outputs must be ready between its start and its end")


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Costs of overlapped pairs that run into each other, by where a pair stands in a run of them on its rank.

    Args:
        alone: A pair with no other beside it.
        first, inner, last: Of a run of two or more.
    """

    alone: PairCost
    first: PairCost
    inner: PairCost
    last: PairCost

    @property
    def duration(self) -> int:
        """ns of an inner pair: what each more of a run takes."""
        return self.inner.duration

    @property
    def by_place(self) -> tuple[PairCost, PairCost, PairCost, PairCost]:
        """At 1 for a pair before it, and 2 more for one behind it."""
        return self.alone, self.last, self.first, self.inner


@dataclass(frozen=True, slots=True)
class Link:
    """What connects two ranks.

    Args:
        latency: ns.
        bandwidth: GB/s, that is bytes a ns; None for one that adds nothing to the latency.

    Raises:
        CostError: The latency is negative or over 1,000 s, or the bandwidth not positive.
    """

    latency: int
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if not is_count(self.latency, MAX_COST):
            raise CostError(f"a latency of {shown(self.latency)} ns", "give a time between 0 and 1000 s")
        _check_bandwidth(self.bandwidth)

    def time(self, message_bytes: int) -> int:
        """ns that a message takes: latency + bytes / bandwidth.

        Raises:
            CostError: It takes over 1,000 s.
        """
        if self.bandwidth is None:
            return self.latency
        time = message_bytes / self.bandwidth
        if not time <= MAX_COST:
            raise CostError(
                f"a message of {message_bytes} bytes at {self.bandwidth} GB/s takes over 1000 s",
                "give a higher bandwidth or smaller messages",
            )
        return self.latency + round(time)


@dataclass(frozen=True, slots=True)
class Network:
    """What a transfer between ranks takes beside `Costs.p2p`, its latency within a node.

    Args:
        message_bytes: Size of an activation, and of its gradient.
        bandwidth: GB/s, that is bytes a ns, within a node; None for no limit.
        ranks_per_node: Consecutive ranks on one node; None for all.
        across: The link between ranks on two nodes; as within a node when None.
        links: Single links, (from, to) rank; they replace what else would hold.

    Raises:
        CostError: A size is out of range.
    """

    message_bytes: int = 0
    bandwidth: float | None = None
    ranks_per_node: int | None = None
    across: Link | None = None
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_bandwidth(self.bandwidth)
        if not is_count(self.message_bytes, MAX_MESSAGE):
            raise CostError(f"a message of {shown(self.message_bytes)} bytes", f"give between 0 and {MAX_MESSAGE}")
        if self.ranks_per_node is not None and not (is_count(self.ranks_per_node, MAX_NODE) and self.ranks_per_node):
            raise CostError(f"{shown(self.ranks_per_node)} ranks a node", f"give between 1 and {MAX_NODE}")
        for source, target in self.links:
            if not (is_count(source, MAX_NODE) and is_count(target, MAX_NODE)) or source == target:
                raise CostError(
                    f"a link from rank {shown(source)} to {shown(target)}", "name two ranks, as in links.0-1"
                )


def _check_bandwidth(bandwidth: float | None) -> None:
    """Raises a CostError for a bandwidth that is no positive number; None is no limit."""
    good = bandwidth is None or (isinstance(bandwidth, int | float) and not isinstance(bandwidth, bool))
    if not good or (bandwidth is not None and not bandwidth > 0):
        raise CostError(f"a bandwidth of {shown(bandwidth)} GB/s", "give one above 0")


UNIT_STAGE = StageCosts(F=UNITS["ms"], I=UNITS["ms"], W=UNITS["ms"])


@dataclass(frozen=True, slots=True)
class Costs:
    """What a schedule's actions and transfers cost.

    Args:
        default: Costs of every stage that `stages` does not name; F = I = W = 1 ms.
        stages: Costs of single stages.
        pair: Cost of an overlapped pair, or of pairs by their place in a run; when None a pair lasts F + B of its
            stages, with both outputs at its end.
        pairs: The same of single pairs, by the stage of the forward and that of the backward; all others cost `pair`.
        p2p: ns from an output's being ready to its arrival on another rank, the latency; within a rank it is free.
        network: What sizes, bandwidths, nodes and single links add or change.
        layer: Costs of the parts of an MoE layer, for schedules in parts; 1 ms for each F, I and W when None.
        stage_layers: Costs of the layers of single stages.
        jitter: How far the durations of single actions scatter; None for not at all. A pair that has a cost of its own
            scatters as its forward.

    Raises:
        CostError: `p2p` is negative, or over 1,000 s; or a message takes as long; or single pairs have costs, and all
            others none.
    """

    default: StageCosts = UNIT_STAGE
    stages: Mapping[int, StageCosts] = field(default_factory=dict)
    pair: PairCost | RunCosts | None = None
    p2p: int = 0
    network: Network = Network()
    layer: LayerCosts | None = None
    stage_layers: Mapping[int, LayerCosts] = field(default_factory=dict)
    jitter: Jitter | None = None
    pairs: Mapping[tuple[int, int], PairCost | RunCosts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.pairs and self.pair is None:
            raise CostError("pairs of single stages have costs, but all others none", "give the cost of a pair as well")
        if not is_count(self.p2p, MAX_COST):
            raise CostError(f"a transfer costs {shown(self.p2p)} ns", "give a time between 0 and 1000 s")
        # Told where the costs are read, rather than when a schedule is simulated.
        network = self.network
        for link in (Link(self.p2p, network.bandwidth), network.across, *network.links.values()):
            if link is not None:
                link.time(network.message_bytes)

    def of(self, stage: int) -> StageCosts:
        """The costs of one stage."""
        return self.stages.get(stage, self.default)

    def layer_of(self, stage: int) -> LayerCosts:
        """The costs of a layer of one stage."""
        return self.stage_layers.get(stage, self.layer or LayerCosts())

    def transfer_times(self, sender: IntArray, receiver: IntArray) -> IntArray:
        """ns of transfers between ranks, 0 from a rank to itself.

        Args:
            sender, receiver: Ranks; of shapes that numpy broadcasts, so that few pairs of many ranks cost little.

        Returns:
            An array of the shape of both together.
        """
        network = self.network
        sender, receiver = np.broadcast_arrays(sender, receiver)
        times = np.full(sender.shape, Link(self.p2p, network.bandwidth).time(network.message_bytes), dtype=np.int64)
        if network.across is not None and network.ranks_per_node is not None:
            elsewhere = sender // network.ranks_per_node != receiver // network.ranks_per_node
            times[elsewhere] = network.across.time(network.message_bytes)
        if network.links:
            pairs = np.array(list(network.links), dtype=np.int64)
            pair = pairs[:, 0] * _MANY + pairs[:, 1]
            by_pair, wanted = np.argsort(pair), sender * _MANY + receiver
            at = by_pair[np.minimum(np.searchsorted(pair[by_pair], wanted), pair.size - 1)]
            single = np.array([link.time(network.message_bytes) for link in network.links.values()], dtype=np.int64)
            times = np.where(pair[at] == wanted, single[at], times)
        times[sender == receiver] = 0
        return times

    def _check_links(self, ranks: int, what: str) -> None:
        """Refuses the link of a rank that is not there: most likely the costs are of another schedule.

        Raises:
            CostError: With the link.
        """
        for source, target in self.network.links:
            if max(source, target) >= ranks:
                raise CostError(
                    f"the costs name the link {source}-{target}, but {what} has {ranks} ranks, from 0",
                    "leave it out of the costs, or build with as many ranks",
                )

    def check_stages(self, stages: int, what: str) -> None:
        """Refuses costs of a stage that is not there: most likely they are of another schedule.

        Raises:
            CostError: A single stage's costs are of none of `stages` stages; `what` has these.
        """
        named = (*self.stages, *self.stage_layers, *(stage for pair in self.pairs for stage in pair))
        strays = [stage for stage in named if not 0 <= stage < stages]
        if strays:
            raise CostError(
                f"the costs name stage {min(strays)}, but {what} has {stages} stages, from 0",
                "leave it out of the costs, or build with as many stages",
            )

    def durations(self, schedule: Schedule) -> IntArray:
        """ns of every row of a schedule, 0 of a send or receive; shape (n,).

        Raises:
            CostError: Costs are given for a stage that the schedule does not have; or the schedule is in parts of
                layers, and recomputation is given, which is known for whole stages only.
        """
        self.check_stages(schedule.stages, schedule.name)
        self._check_links(schedule.ranks, schedule.name)
        if schedule.has_parts:
            return self._part_durations(schedule)
        table = np.zeros((max(Kind) + 1, schedule.stages), dtype=np.int64)
        for stage in range(schedule.stages):
            of = self.of(stage)
            table[Kind.F, stage], table[Kind.B, stage] = of.F, of.full_backward + of.recompute
            table[Kind.I, stage], table[Kind.W, stage] = of.I + of.recompute, of.W
        duration: IntArray = table[code_kind(schedule.code), code_stage(schedule.code)]
        paired = schedule.partner != NO_ACTION
        if self.pair is not None and paired.any():
            duration[paired] = self._pair_column(schedule, "duration")[paired] + self._recompute(schedule)[paired]
        duration = self.scattered(schedule.code, duration)
        if self.pair is None and paired.any():
            partner = schedule.partner[paired]
            duration[paired] += self.scattered(partner, table[code_kind(partner), code_stage(partner)])
        return duration

    def scattered(self, code: IntArray, duration: IntArray) -> IntArray:
        """`duration` of actions, both of shape (n,), with their jitter."""
        return duration if self.jitter is None else self.jitter.applied(code, duration)

    def _part_durations(self, schedule: Schedule) -> IntArray:
        if any(self.of(stage).recompute for stage in range(schedule.stages)):
            raise CostError(
                f"{schedule.name} is in parts of layers, and recompute is a cost of whole stages",
                "add it to the parts' I instead, as in --parts mlp.I=2",
            )
        table = np.stack([self.layer_of(stage).table for stage in range(schedule.stages)])
        duration: IntArray = table[code_stage(schedule.code), code_kind(schedule.code), code_part(schedule.code)]
        return self.scattered(schedule.code, duration)

    def ready(self, schedule: Schedule, duration: IntArray) -> tuple[IntArray, IntArray]:
        """ns from every row's start to its forward output and to its input gradient; two arrays of shape (n,)."""
        if self.pair is None:
            return duration, duration
        paired, recompute = schedule.partner != NO_ACTION, self._recompute(schedule)
        forward, backward = (
            np.where(paired, self.scattered(schedule.code, self._pair_column(schedule, name) + recompute), duration)
            for name in ("forward_ready", "backward_ready")
        )
        return forward, backward

    def _pair_column(self, schedule: Schedule, name: str) -> IntArray:
        """One figure of every row's pair, by where in a run of pairs it stands; of use where a row is one."""
        if self.pair is None:
            return np.zeros(len(schedule), dtype=np.int64)
        paired, same_rank = schedule.partner[1:] != NO_ACTION, np.diff(schedule.rank) == 0
        runs_on = paired & (schedule.partner[:-1] != NO_ACTION) & same_rank
        place = np.concatenate([[0], runs_on]) + 2 * np.concatenate([runs_on, [0]])

        def by_place(of: PairCost | RunCosts) -> list[int]:
            return [getattr(pair, name) for pair in (of.by_place if isinstance(of, RunCosts) else (of,) * 4)]

        column: IntArray = np.array(by_place(self.pair), dtype=np.int64)[place]
        forward, backward = code_stage(schedule.code), code_stage(schedule.partner)
        for stages, of in self.pairs.items():
            mine = (schedule.partner != NO_ACTION) & (forward == stages[0]) & (backward == stages[1])
            column[mine] = np.array(by_place(of), dtype=np.int64)[place[mine]]
        return column

    def _recompute(self, schedule: Schedule) -> IntArray:
        """ns of recomputation in each row's pair; it comes first, so it moves all of the pair."""
        of_stage = np.array([self.of(stage).recompute for stage in range(schedule.stages)], dtype=np.int64)
        return of_stage[code_stage(schedule.partner)]
