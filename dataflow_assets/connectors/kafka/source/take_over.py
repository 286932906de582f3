"""Going on where another program has stopped: where each partition's position comes from."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.errors import TransientError

log = logging.getLogger(__name__)

Offsets = Mapping[int, int]
ELSEWHERE = "begin elsewhere, with `dataflow run --from`"
STORED = (
    "these offsets are stored with the rows of the table, by the program that has filled it so "
    f"far: was it the same topic of the same cluster? Else {ELSEWHERE}"
)


def check_left(source: KafkaSourceOptions, members: Collection[str]) -> None:
    """Raises TransientError while the program before still reads: it stores what we would.

    `members`: of its consumer group, which a flow never joins.
    """
    if members:
        raise TransientError(
            f"consumer group {source.consumer_group} still has members ({', '.join(members)}): "
            f"the connector runs. Stop it; this flow then reads topic {source.topic} from where it "
            "has stopped"
        )


def foreign(topic: str, stored: Offsets, partitions: Collection[int]) -> str:
    """The partitions with a stored offset that the topic does not have; empty for none."""
    unknown = sorted(set(stored) - set(partitions))
    if not unknown:
        return ""
    unread = ", ".join(f"partition {p} at offset {stored[p]}" for p in unknown)
    return f"topic {topic} has {len(partitions)} partitions, and the table knows {unread}"


def report(
    flow: str, source: KafkaSourceOptions, stored: Offsets, group: Offsets, others: Offsets
) -> None:
    """Says in the log which position is whose, and what that means.

    Called on the driver once, when a flow is taken over: warnings are seen everywhere, and a person
    should look at this once. Where nobody has read anything there is nothing to look at.

    Args:
        flow: its name.
        source: names topic and group.
        stored: offsets that are stored with the rows.
        group: offsets that the consumer group has committed, of other partitions.
        others: where the log begins, by each partition that is not in `stored`.
    """
    begins = f"flow {flow}: topic {source.topic} begins at"
    if stored:
        log.warning("%s %s, as stored with the rows of the table", begins, _list(stored))
    if group:
        log.warning(
            "%s %s, as committed by the consumer group %s: the rows of the table may be ahead of "
            "it, and would be stored twice; look at the newest rows before you rely on them",
            begins,
            _list(group),
            source.consumer_group,
        )
    if earliest := {p: low for p, low in others.items() if p not in group}:
        level = logging.WARNING if stored or group else logging.INFO
        log.log(level, "%s %s, the earliest: nobody has read these", begins, _list(earliest))


def _list(offsets: Offsets) -> str:
    return ", ".join(f"partition {p} offset {o}" for p, o in sorted(offsets.items()))
