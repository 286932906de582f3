"""How snapshots are cut into parts: without servers, over many shapes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dataflow_assets.connectors.iceberg.source.data_files import SourceFile
from dataflow_assets.connectors.iceberg.source.parts import (
    MOST_FILES,
    IcebergBounds,
    IcebergCut,
    IcebergPart,
    IcebergPiece,
    IcebergRange,
    cut,
)
from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition

UNBOUNDED = 1 << 62
WIDE = IcebergBounds(4, 1_000, 1_000_000, UNBOUNDED, UNBOUNDED)


def file(name: str, rows: int, size: int = 10) -> SourceFile:
    """`size`: bytes of a row."""
    return SourceFile(name, rows, rows * size)


def piece(number: int, *files: SourceFile) -> IcebergPiece:
    return IcebergPiece(SnapshotPosition(number, number, "", "added"), files)


def no_groups(_: SourceFile) -> Sequence[int]:
    return ()


def sizes(found: IcebergCut) -> list[int]:
    return [sum(each.rows for each in part) for part in found.parts]


def test_short_snapshots_share_a_part() -> None:
    pieces = iter([piece(n, file(f"f{n}", 100)) for n in range(1, 13)])
    found = cut(pieces, WIDE, no_groups)
    assert found is not None
    assert sizes(found) == [1_000]
    assert (found.end, found.more) == (SnapshotPosition(10, 10), True)


def test_what_moves_no_rows_moves_the_position() -> None:
    pieces = [
        IcebergPiece(SnapshotPosition(1, 1)),
        piece(2, file("f", 5)),
        IcebergPiece(SnapshotPosition(3, 3)),
    ]
    found = cut(iter(pieces), WIDE, no_groups)
    assert found == IcebergCut(
        ((IcebergRange("f", 0, 5, "2", 2),),), SnapshotPosition(3, 3), more=False
    )
    assert cut(iter([]), WIDE, no_groups) is None


def test_a_long_file_is_cut_at_its_row_groups() -> None:
    long = piece(1, file("f", 3_500))
    found = cut(iter([long]), WIDE, lambda _: (900, 1_700, 2_600, 3_500))
    assert found is not None
    assert sizes(found) == [900, 800, 900, 900]
    assert (found.end, found.more) == (SnapshotPosition(1, 1), False)


def test_a_row_group_longer_than_a_part_is_cut_inside() -> None:
    found = cut(iter([piece(1, file("f", 3_500))]), WIDE, lambda _: (3_500,))
    assert found is not None
    assert sizes(found) == [1_000, 1_000, 1_000, 500]


def test_bytes_give_way_to_whole_row_groups_and_rows_do_not() -> None:
    bounds = IcebergBounds(4, 1_000, 4_000, UNBOUNDED, UNBOUNDED)
    found = cut(iter([piece(1, file("f", 1_800))]), bounds, lambda _: (600, 1_200, 1_800))
    assert found is not None
    assert sizes(found) == [600, 600, 600]


def test_as_many_files_as_a_checkpoint_holds() -> None:
    many = piece(1, *(file(f"f{n}", 1) for n in range(MOST_FILES + 5)))
    found = cut(iter([many]), WIDE, no_groups)
    assert found is not None
    assert sizes(found) == [MOST_FILES]
    assert (found.end.file, found.end.done, found.more) == (MOST_FILES, MOST_FILES, True)


def test_a_part_is_text() -> None:
    part = IcebergPart("uuid", (IcebergRange("s3://a/b", 0, 7, "9", 3, ("d",), {"1": "ff"}),))
    assert IcebergPart.parse(part.text()) == part


@given(
    st.lists(st.lists(st.integers(0, 40), max_size=4), max_size=6),
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(1, 400),
    st.sampled_from([UNBOUNDED, 7, 25]),
    st.sampled_from([UNBOUNDED, 1, 90]),
    st.integers(1, 20),
)
def test_every_row_once_and_in_order(
    snapshots: list[list[int]],
    parts: int,
    part_rows: int,
    part_bytes: int,
    rows: int,
    size: int,
    group: int,
) -> None:
    """Span after span, from where the last one ended."""
    bounds = IcebergBounds(parts, part_rows, part_bytes, rows, size)
    pieces = [
        piece(number, *(file(f"{number}-{n}", count) for n, count in enumerate(counts)))
        for number, counts in enumerate(snapshots, 1)
    ]
    wanted = [(f.path, row) for one in pieces for f in one.files for row in range(f.rows)]
    seen: list[tuple[str, int]] = []
    left = pieces
    while found := cut(iter(left), bounds, lambda f: range(group, f.rows, group)):
        for part in found.parts:
            assert sum(each.rows for each in part) <= part_rows
            seen += [(each.path, row) for each in part for row in range(each.low, each.high)]
        assert sum(sizes(found)) <= rows
        left = _after(left, found.end)
    assert seen == wanted


def _after(pieces: list[IcebergPiece], end: SnapshotPosition) -> list[IcebergPiece]:
    assert end.snapshot is not None
    rest = [one for one in pieces if (one.start.snapshot or 0) > end.snapshot]
    if end.scan is None:
        return rest
    inside = next(one for one in pieces if one.start.snapshot == end.snapshot)
    return [IcebergPiece(end, inside.files), *rest]
