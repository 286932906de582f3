"""What chaos sends, and what must stand in the target afterwards: a plain model in memory.

Every record has a number of its own, `n`, in the order of sending. A key, `id`, belongs to one
partition of the topic, `id % 2`, so that the order of its records is known.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from tests.systems import Change, Row

COLUMNS = ("id", "n", "name", "price", "tags", "seat")
KEYS = 300
PARTITIONS = 2


@dataclass(frozen=True)
class Verdict:
    """What is wrong in a target; nothing, when all are zero."""

    lost: int = 0
    doubled: int = 0
    wrong_values: int = 0
    wrong_order: int = 0
    examples: tuple[str, ...] = ()

    def __add__(self, other: Verdict) -> Verdict:
        summed = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return Verdict(*summed)

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return any(self.counts)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Lost, doubled, wrong values, wrong order."""
        return self.lost, self.doubled, self.wrong_values, self.wrong_order


LOST, DOUBLED = Verdict(lost=1), Verdict(doubled=1)
WRONG_VALUES, WRONG_ORDER = Verdict(wrong_values=1), Verdict(wrong_order=1)


@dataclass
class Model:
    """Draws changes and remembers what they leave."""

    chance: random.Random
    upserts: bool
    """Rows are matched by `id`, and deletes are sent."""
    keeps_absent: bool
    """A record that lacks a column leaves the column of its row as it was."""
    sent: dict[int, Row | None] = field(default_factory=dict)
    """By `n`: the record; None for a delete."""
    states: dict[int, list[Row | None]] = field(default_factory=lambda: defaultdict(list))
    """By `id`: all that its row has been, the last one last."""
    counts: Counter[str] = field(default_factory=Counter)
    """Of inserts, updates and deletes."""
    ends: dict[str, int] = field(default_factory=lambda: {str(p): 0 for p in range(PARTITIONS)})
    """By partition: the next offset."""

    def draw(self, count: int) -> list[Change]:
        """So many changes in their order, both partitions among them."""
        return [self._one(id_) for id_ in (0, 1, *self._ids(count - PARTITIONS))]

    def _ids(self, count: int) -> Iterable[int]:
        return (self.chance.randrange(KEYS) for _ in range(count))

    def _one(self, id_: int) -> Change:
        known, n = self.states[id_], len(self.sent)
        before = known[-1] if known else None
        self.ends[str(id_ % PARTITIONS)] += 1
        if self.upserts and self.chance.random() < 0.15:
            self.counts["deletes"] += 1
            self.sent[n] = None
            known.append(None)
            return Change("delete", {"id": id_})
        row = self._row(id_, n)
        self.counts["inserts" if before is None else "updates"] += 1
        self.sent[n] = whole(row)
        known.append(whole({**(before or {}), **row} if self.keeps_absent else row))
        return Change("insert" if before is None else "update", row)

    def _row(self, id_: int, n: int) -> Row:
        row = {"id": id_, "n": n, "name": f"näme {n} «{self.chance.random()}»"}
        if self.chance.random() < 0.75:
            row["price"] = round(self.chance.uniform(-1e6, 1e6), 3)
        return row

    def appended(self, sequences: Sequence[Sequence[Row]]) -> Verdict:
        """Every record once, with its values, in each sequence by partition in its order."""
        found = [row for sequence in sequences for row in sequence]
        times = Counter(row["n"] for row in found)
        lost = [n for n, row in self.sent.items() if row is not None and n not in times]
        wrong = [row for row in found if whole(row) != self.sent.get(row["n"])]
        verdict = Verdict(len(lost), times.total() - len(times), len(wrong))
        examples = [
            f"{name} {some[:3]}" for name, some in (("lost", lost), ("wrong", wrong)) if some
        ]
        return verdict + Verdict(examples=tuple(examples)) + self.ordered(sequences)

    def ordered(self, sequences: Sequence[Sequence[Row]]) -> Verdict:
        """Within a partition of the source a later record stands behind an earlier one."""
        verdict = Verdict()
        for sequence in sequences:
            last = dict.fromkeys(range(PARTITIONS), -1)
            for row in sequence:
                partition = row["id"] % PARTITIONS
                if row["n"] < last[partition]:
                    said = (f"{row['n']} behind {last[partition]} of partition {partition}",)
                    verdict += Verdict(wrong_order=1, examples=said)
                last[partition] = row["n"]
        return verdict

    def upserted(self, rows: Sequence[Row]) -> Verdict:
        """Each key once, as its last record left it."""
        by_id: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            by_id[row["id"]].append(whole(row))
        judged = (self._key(id_, by_id.get(id_, [])) for id_ in {*self.states, *by_id})
        return sum(judged, Verdict())

    def _key(self, id_: int, found: Sequence[Row]) -> Verdict:
        states = self.states.get(id_, [])
        wanted = states[-1] if states else None
        if found == ([] if wanted is None else [wanted]):
            return Verdict()
        said = Verdict(examples=(f"key {id_}: {list(found)} instead of {wanted}",))
        if not found:
            return LOST + said
        if len(found) > 1:
            return DOUBLED + said
        return said + (WRONG_ORDER if found[0] in states else WRONG_VALUES)


def whole(row: Row) -> Row:
    """With every column; what is absent is NULL."""
    return {name: row.get(name) for name in COLUMNS}
