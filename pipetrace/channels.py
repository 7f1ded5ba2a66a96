"""In which order transfers go through the channel between two ranks.

With tags, as on gloo, a receive finds its message whatever came before. An ordered channel, as NCCL's one stream a
pair of ranks, runs what was posted in the order in which it was posted, so both sides must post the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import Action, IntArray
from pipetrace.errors import ScheduleError
from pipetrace.schedule import Schedule
from pipetrace.transfers import Transfers


@dataclass(frozen=True, slots=True)
class PairOrder:
    """What one rank sends to another, each transfer named by its receive.

    Args:
        sent: In the sender's order: of its SENDs where they are listed, else of what makes the data.
        needed: In the receiver's order: of its RECVs where they are listed, else of what takes the data.
    """

    sent: tuple[Action, ...]
    needed: tuple[Action, ...]

    @property
    def agree(self) -> bool:
        """Whether both sides have the same order."""
        return self.sent == self.needed


def pair_orders(schedule: Schedule) -> dict[tuple[int, int], PairOrder]:
    """For each (sender, receiver) that share a transfer, the order on both sides.

    What leaves one row together, or is needed by one row together, has no order of its own there, and takes that of
    the other side.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    transfers = schedule.transfers
    sent, needed = _orders(schedule, transfers)
    pair = transfers.sender * schedule.ranks + transfers.receiver
    orders = {}
    for number in np.unique(pair).tolist():
        one_side, other_side = (
            tuple(Action.from_code(code) for code in transfers.receive[order[pair[order] == number]].tolist())
            for order in (sent, needed)
        )
        orders[divmod(number, schedule.ranks)] = PairOrder(one_side, other_side)
    return orders


def check_ordered_channels(schedule: Schedule) -> None:
    """Checks that the schedule can run where transfers between two ranks are not told apart by tags.

    Without listed sends and receives, each rank must need what another sends in the order in which it is sent. With
    them, both ranks of a pair must list what goes between them, both ways together, in the same order; a valid
    schedule that does so never hangs on one channel a pair, even if nothing is buffered.

    Raises:
        ScheduleError: Naming the ranks and what stands in different orders.
    """
    if schedule.has_communication:
        _check_both_ways(schedule)
        return
    for (sender, receiver), order in pair_orders(schedule).items():
        if not order.agree:
            at = next(i for i, (one, other) in enumerate(zip(order.sent, order.needed, strict=True)) if one != other)
            raise ScheduleError(
                f"rank {sender} sends {order.sent[at]} before {order.needed[at]} to rank {receiver}, which needs "
                f"{order.needed[at]} before {order.sent[at]}: an ordered channel can hang",
                "use tags, or list sends and receives in one order with passes.add_communication",
            )


def _orders(schedule: Schedule, transfers: Transfers) -> tuple[IntArray, IntArray]:
    """The transfers in the order of each sender, and in that of each receiver."""
    if schedule.has_communication:
        return np.argsort(transfers.send_row), np.argsort(transfers.receive_row)
    producer, consumer = transfers.producer, transfers.consumer
    return np.lexsort((consumer, producer)), np.lexsort((producer, consumer))


def _check_both_ways(schedule: Schedule) -> None:
    transfers = schedule.transfers
    number = np.arange(len(transfers))
    low = np.minimum(transfers.sender, transfers.receiver)
    pair = low * schedule.ranks + np.maximum(transfers.sender, transfers.receiver)
    sends_low = transfers.sender == low
    # The row that stands for each transfer on the pair's lower and higher rank.
    on_low = np.where(sends_low, transfers.send_row, transfers.receive_row)
    on_high = np.where(sends_low, transfers.receive_row, transfers.send_row)
    by_low, by_high = number[np.lexsort((on_low, pair))], number[np.lexsort((on_high, pair))]
    differ = by_low != by_high
    if differ.any():
        at = int(np.argmax(differ))
        one, other = int(by_low[at]), int(by_high[at])
        text = schedule.links.text
        ranks = divmod(int(pair[one]), schedule.ranks)
        raise ScheduleError(
            f"rank {ranks[0]} has {text(int(on_low[one]))} before {text(int(on_low[other]))}, but rank {ranks[1]} has "
            f"{text(int(on_high[other]))} before {text(int(on_high[one]))}: an ordered channel can hang",
            "use a channel for each direction, or list sends and receives anew with passes.add_communication",
        )
