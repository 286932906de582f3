"""What the source makes of folders: late files, long lines, changed files."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.files import FilesSource
from dataflow_assets.connectors.files.source import read as reading
from dataflow_assets.connectors.files.source.session import FilesSourceSession
from dataflow_assets.contracts import Limit, Positions, Span, system_name
from dataflow_assets.errors import Outdated, PermanentError, TransientError

LIMIT = Limit()


class Reader:
    """Reads a folder to its end, span after span, as a flow would."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.source = FilesSource.model_validate({"path": str(folder), **options})
        self.session = FilesSourceSession(self.source)
        self.positions: Positions = self.session.start()

    def plan(self, limit: Limit = LIMIT) -> Span:
        return self.session.plan(self.positions, limit)

    def rows(self, limit: Limit = LIMIT) -> list[dict[str, Any]]:
        """Body, file and position of each line."""
        return [row for span in self.spans(limit) for row in self.read(span)]

    def spans(self, limit: Limit) -> Iterator[Span]:
        while (span := self.plan(limit)).slices:
            yield span
            self.positions = self.session.fold({**self.positions, **span.upto})

    def read(self, span: Span) -> list[dict[str, Any]]:
        wanted = self.source.metadata_columns
        batches = [one for piece in span.slices for one in self.source.batches(piece, wanted)]
        return [row for batch in batches for row in batch.to_pylist()]

    def bodies(self, limit: Limit = LIMIT) -> list[bytes]:
        return [row["body"] for row in self.rows(limit)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whatever is in it is whole."""
    monkeypatch.setattr("dataflow_assets.connectors.files.source.session.SETTLED", -1)
    return tmp_path


@pytest.mark.parametrize("size", [1, 7, 30, 1_000])
def test_lines_are_cut_at_their_ends_wherever_a_part_ends(
    folder: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK", 5)
    lines = [b'{"id":%d}' % number + b" " * (number % 13) for number in range(50)]
    (folder / "a.jsonl").write_bytes(b"\n".join([*lines, b"", b"  ", b'{"last":1}']))
    (folder / "b.jsonl").write_bytes(b"\n\n" + b"\n".join(lines) + b"\n")
    rows = Reader(folder).rows(Limit(bytes=size))
    assert [row["body"] for row in rows] == [*lines, b'{"last":1}', *lines]
    for row in rows:
        text = (folder / row[system_name("file")]).read_bytes()
        assert text[row[system_name("position")] :].startswith(row["body"])


def test_a_long_line_is_put_together_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy for each block that was read would be two million megabytes here."""
    monkeypatch.setattr(reading, "BLOCK", 64)
    line = b"[" + b"1," * (8 << 20) + b"1]"
    (folder / "a.jsonl").write_bytes(b"1\n" + line + b"\n2\n")
    assert Reader(folder).bodies() == [b"1", line, b"2"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_batch_has_a_bound_in_bytes_and_in_lines(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 1_000)
    lines = [b"%d" % number * 100 for number in range(50)] + [b"1"] * 12_000
    text = b"\n".join(lines)
    (folder / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    reader = Reader(folder)
    batches = [
        batch.column("body").to_pylist()
        for span in reader.spans(Limit())
        for piece in span.slices
        for batch in reader.source.batches(piece, frozenset())
    ]
    assert [one for batch in batches for one in batch] == lines
    assert all(sum(map(len, batch[:-1])) < 1_000 for batch in batches)
    monkeypatch.setattr(reading, "BATCH_BYTES", 1 << 20)
    reader = Reader(folder)
    (piece,) = reader.plan().slices
    assert [one.num_rows for one in reader.source.batches(piece, frozenset())] == [10_000, 2_050]


def test_a_line_that_no_batch_can_hold_is_an_error_that_says_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK", 8)
    monkeypatch.setattr(reading, "LONGEST_LINE", 100)
    (folder / "a.jsonl").write_bytes(b"1\n" + b"x" * 200)
    with pytest.raises(PermanentError, match=r"a\.jsonl: .+begins at byte 2 is longer than 100 b"):
        Reader(folder).bodies()


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "A.JSONL.GZ"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(folder: Path, size: int, name: str) -> None:
    bodies = [b'{"id":1}', b"\xef\xbb\xbf2", b'{"id":3}']
    text = b"\xef\xbb\xbf" + b"\n".join(bodies)
    (folder / name).write_bytes(gzip.compress(text) if name.lower().endswith(".gz") else text)
    rows = Reader(folder).rows(Limit(bytes=size))
    assert [row["body"] for row in rows] == bodies
    assert [row[system_name("position")] for row in rows] == [3, 12, 17]


def test_a_file_of_a_mark_alone_has_no_line(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf")
    assert Reader(folder).rows() == []


@pytest.mark.parametrize("padding", [b"\0", b"\0" * 100_000])
def test_zeros_behind_the_end_of_a_gzip_file_are_padding(folder: Path, padding: bytes) -> None:
    two = gzip.compress(b"1\n") + gzip.compress(b"2\n")
    (folder / "a.jsonl.gz").write_bytes(two + padding)
    assert Reader(folder).bodies() == [b"1", b"2"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-3],
        lambda text: text + b"more",
        lambda text: text[:40] + b"x" * 9 + text[49:],
    ],
)
def test_a_gzip_file_that_is_damaged_is_named(folder: Path, damage: Any) -> None:
    (folder / "a.jsonl.gz").write_bytes(damage(gzip.compress(random.Random(1).randbytes(400))))
    with pytest.raises(
        PermanentError, match=r"cannot read a\.jsonl\.gz of .+; the file is damaged"
    ):
        Reader(folder).bodies()


def test_parts_of_an_unfinished_span_are_divided_into_the_same_lines(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b"".join(b'{"id":%d}\n' % number for number in range(99)))
    reader = Reader(folder, parallelReads=1)
    (piece,) = reader.plan().slices
    parts = reader.session.smaller(piece, Limit(bytes=100))  # type: ignore[arg-type]
    assert len(parts) > 5
    assert reader.read(Span.of_parts("x", parts)) == reader.read(reader.plan())


def test_a_file_that_comes_late_is_read_whatever_it_is_called(folder: Path) -> None:
    reader = Reader(folder)
    (folder / "m.jsonl").write_bytes(b"1\n")
    assert reader.bodies() == [b"1"]
    (folder / "a").mkdir()
    (folder / "a" / "a.jsonl").write_bytes(b"2\n")
    os.utime(folder / "a" / "a.jsonl", (1, 1))
    assert reader.bodies() == [b"2"]
    (folder / "m.jsonl").unlink()
    assert reader.bodies() == []


def test_hidden_and_unmatched_files_are_left_out(folder: Path) -> None:
    for name in ("_x.jsonl", ".x.jsonl", "_dataflow/staged/x.jsonl", "a/x.csv", "a/x.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    assert Reader(folder, glob="*.jsonl").bodies() == [b"a/x.jsonl"]


def test_what_nobody_can_name_or_may_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    for place in (folder / "a", tmp_path / "outside"):
        place.mkdir(parents=True)
    monkeypatch.setenv("DATAFLOW_FILES", str(folder))
    for name in ("a/1.jsonl", "\u00fc.jsonl", "new\nline.jsonl", "../outside/x.jsonl"):
        (folder / name).write_bytes(b"1\n")
    os.close(os.open(os.fsencode(folder) + b"/\xff.jsonl", os.O_CREAT | os.O_WRONLY))
    (folder / "loop").symlink_to(folder)
    (folder / "same.jsonl").symlink_to(folder / "a" / "1.jsonl")
    (folder / "out.jsonl").symlink_to(tmp_path / "outside" / "x.jsonl")
    (folder / "dangling.jsonl").symlink_to(folder / "nowhere")
    names = {row[system_name("file")] for row in Reader(folder).rows()}
    assert names == {"a/1.jsonl", "\u00fc.jsonl", "new\nline.jsonl", "same.jsonl"}
    said = sorted(record.getMessage().rpartition("/")[2] for record in caplog.records)
    assert said == [
        "\\udcff.jsonl is left out: its name is not UTF-8",
        "loop is left out: links to folders are not followed",
        "out.jsonl is left out: it is a link that leads out of the folder DATAFLOW_FILES",
    ]


def test_a_folder_that_does_not_exist_is_an_error(folder: Path) -> None:
    with pytest.raises(PermanentError, match=r"folder /\S+/typo does not exist: create it"):
        Reader(folder / "typo")


def test_compressed_files_are_read_whole(folder: Path) -> None:
    lines = b"".join(b"%d\n" % number for number in range(9))
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines[:8]) + gzip.compress(lines[8:]))
    with (
        pa.OSFile(str(folder / "b.zst"), "wb") as file,
        pa.CompressedOutputStream(file, "zstd") as out,
    ):
        out.write(lines)
    assert Reader(folder).bodies(Limit(records=1, bytes=1)) == [*lines.split()] * 2


def test_a_compressed_file_that_is_cut_off_is_an_error(folder: Path) -> None:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b"1\n" * 5_000)[:-9])
    with pytest.raises(
        PermanentError, match=r"cannot read a\.jsonl\.gz of .+; the file is damaged"
    ):
        Reader(folder).bodies()


@pytest.mark.parametrize("became", [b"1\n2\n", b"2\n", None])
def test_a_file_that_changes_after_it_was_planned_is_an_error(
    folder: Path, became: bytes | None
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(b"1\n")
    reader = Reader(folder)
    span = reader.plan()
    path.unlink()
    if became:
        path.write_bytes(became)
    reason = r"a\.jsonl (has 4 bytes now|was replaced|is gone)"
    with pytest.raises(TransientError, match=reason):
        reader.read(span)
    reader.plan()
    (piece,) = span.slices
    with pytest.raises(Outdated, match=reason):
        reader.session.smaller(piece, LIMIT)  # type: ignore[arg-type]


def test_a_file_that_changes_after_it_was_read_is_an_error(folder: Path) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(b"1\n")
    reader = Reader(folder)
    assert reader.bodies() == [b"1"]
    path.write_bytes(b"1\n2\n")
    with pytest.raises(PermanentError, match="changed after it had been read"):
        reader.bodies()


@pytest.mark.parametrize("became", ["longer", "gone"])
def test_a_file_that_is_begun_must_stay(folder: Path, became: str) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(b"1\n" * 50)
    reader = Reader(folder, parallelReads=1)
    spans = reader.spans(Limit(bytes=10))
    next(spans)
    next(spans)  # the first one is done
    if became == "gone":
        path.unlink()
    else:
        path.write_bytes(b"1\n" * 51)
    with pytest.raises(PermanentError, match=r"is gone, and it was read|changed after"):
        reader.plan()


@pytest.mark.parametrize("seed", range(20))
def test_two_readers_catch_up_with_each_other_wherever_they_are(folder: Path, seed: int) -> None:
    """One of them, at random, reads some more; the one behind reads up to where the other is."""
    chance = random.Random(seed)
    lines = [b"%d\n" % number for number in range(60)]
    readers = [Reader(folder, parallelReads=1) for _ in range(2)]
    read: list[list[bytes]] = [[], []]
    for number in range(6):
        (folder / f"{chance.random()}").write_bytes(b"".join(lines[number * 10 : number * 10 + 10]))
        for _ in range(2):
            which = chance.randrange(2)
            _some(readers[which], readers[1 - which], read[which], chance)
    _some(readers[0], None, read[0], chance)
    _some(readers[1], readers[0], read[1], chance)
    assert readers[0].positions == readers[1].positions
    assert [sorted(one, key=int) for one in read] == [[line.strip() for line in lines]] * 2


def _some(reader: Reader, other: Reader | None, read: list[bytes], chance: random.Random) -> None:
    """Some spans more, or all of them up to where the other one is; or to the end."""
    end = other.positions["folder"] if other else ""
    behind = bool(end) and reader.session.lags("folder", reader.positions["folder"], end)
    for _ in range(chance.randrange(1, 4) if end and not behind else 100):
        limit = Limit(bytes=chance.randrange(1, 25))
        span = reader.session.plan(reader.positions, limit, {"folder": end} if behind else None)
        if not span.slices:
            break
        read += [row["body"] for row in reader.read(span)]
        reader.positions = reader.session.fold({**reader.positions, **span.upto})
    assert not (behind and reader.session.lags("folder", reader.positions["folder"], end))


def test_a_last_line_without_its_end_waits_until_its_file_is_old(tmp_path: Path) -> None:
    path, reader = tmp_path / "a.jsonl", Reader(tmp_path)
    path.write_bytes(b"1\n12")
    (tmp_path / "b.jsonl").write_bytes(b"2\n")
    assert reader.bodies() == [b"2"]
    assert not reader.session.lag(reader.positions).records
    path.write_bytes(b"1\n12345\n")
    assert reader.bodies() == [b"1", b"12345"]
    (tmp_path / "c.jsonl").write_bytes(b"3\n34")
    os.utime(tmp_path / "c.jsonl", (1, 1))
    assert reader.bodies() == [b"3", b"34"]


def test_an_unfinished_span_is_cut_into_few_parts(folder: Path) -> None:
    line = b'{"id":1}\n'
    (folder / "a.jsonl").write_bytes(line * 10_000)
    for number in range(300):
        (folder / f"{number}.jsonl").write_bytes(line)
    span = Reader(folder, parallelReads=1).plan()
    reader = Reader(folder, parallelReads=1)  # another process goes on
    (piece,) = span.slices
    parts = reader.session.smaller(piece, Limit(records=10))  # type: ignore[arg-type]
    assert 16 <= len(parts) <= 64
    assert reader.read(Span.of_parts("x", parts)) == reader.read(span)


def test_what_is_remembered_is_not_stored_with_each_part(folder: Path) -> None:
    for number in range(500):
        (folder / f"{number}.jsonl").write_bytes(b"1\n")
    reader = Reader(folder, parallelReads=4)
    reader.bodies()
    (folder / "new.jsonl").write_bytes(b"1\n" * 40)
    slices = reader.plan(Limit(bytes=20)).slices
    assert [len(str(piece.upto)) < 200 for piece in slices] == [True] * 4
    assert reader.bodies() == [b"1"] * 40
    assert len(str(reader.positions["folder"])) > 500 * 16


def test_young_files_wait(folder: Path) -> None:
    (folder / "old.jsonl").write_bytes(b"1\n")
    os.utime(folder / "old.jsonl", (1, 1))
    (folder / "young.jsonl").write_bytes(b"2\n")
    assert Reader(folder, minAgeSeconds=60).bodies() == [b"1"]


def test_a_time_is_where_the_files_changed_since_begin(folder: Path) -> None:
    for name, second in (("a", 1_000), ("b", 2_000)):
        (folder / name).write_bytes(name.encode())
        os.utime(folder / name, (second, second))
    reader = Reader(folder)
    reader.positions = reader.session.start("1970-01-01T00:30:00+00:00")
    assert reader.bodies() == [b"b"]


class _Milliseconds(BaseHTTPRequestHandler):
    """A store with one object, which lists milliseconds, and tells of the object whole seconds."""

    body = b'{"id":1}\n'

    def do_HEAD(self) -> None:
        self._answer(b"" if self.path.strip("/") == "shop" else self.body)

    def do_GET(self) -> None:
        if "list-type" not in self.path:
            self._answer(self.body)
            return
        contents = (
            "<Contents><Key>in/a.jsonl</Key><LastModified>2025-10-09T08:53:20.123Z</LastModified>"
            f"<ETag>x</ETag><Size>{len(self.body)}</Size></Contents>"
        )
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        listed = f'<ListBucketResult xmlns="{space}"><Name>shop</Name>{contents}</ListBucketResult>'
        self._answer(listed.encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Last-Modified", "Thu, 09 Oct 2025 08:53:20 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Silent."""


def test_a_store_that_lists_milliseconds_is_read() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Milliseconds) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        place = {"s3Endpoint": f"http://127.0.0.1:{server.server_port}", "s3Region": "x"}
        keys = {"accessKey": "a", "secretAccessKey": "b"}
        source = FilesSource.model_validate({"path": "s3://shop/in", **place, **keys})
        session = FilesSourceSession(source)
        (piece,) = session.plan(session.start(), LIMIT).slices
        (batch,) = source.batches(piece, frozenset())
        server.shutdown()
    assert batch.column("body").to_pylist() == [b'{"id":1}']


def test_lag_and_ends(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b'{"id":1}\n' * 10)
    reader = Reader(folder)
    with closing(reader.session) as session:
        ends = session.end()
        assert session.lag(reader.positions).records == 10
        assert session.lags("folder", reader.positions["folder"], ends["folder"])
        reader.bodies()
        assert session.lag(reader.positions).records == 0
        assert not session.lags("folder", reader.positions["folder"], ends["folder"])


def test_more_files_than_can_be_remembered_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataflow_assets.connectors.files.source.session.MOST_FILES", 2)
    for name in "abc":
        (folder / name).write_bytes(b"1")
    with pytest.raises(PermanentError, match="holds 3 files, and 2 can be remembered"):
        Reader(folder).plan()


def test_a_compressed_file_that_is_still_written_is_no_damaged_one(folder: Path) -> None:
    whole = gzip.compress(b'{"id":1}\n' * 10_000)
    path = folder / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    reader = Reader(folder)
    span = reader.plan()
    with pytest.raises(PermanentError, match="is damaged, or was not written to its end"):
        reader.read(span)
    path.write_bytes(whole[:-10])  # by now
    with pytest.raises(TransientError, match=r"a\.jsonl\.gz has \d+ bytes now"):
        reader.read(span)


@pytest.mark.parametrize("question", ["plan", "lag"])
def test_a_file_that_goes_while_it_is_looked_at_is_a_reason_to_look_again(
    folder: Path, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.jsonl").write_bytes(b'{"id":1}\n')
    reader = Reader(folder)
    listed = reader.session._files

    def then_one_goes() -> object:
        found = listed()
        (folder / "a.jsonl").unlink()
        return found

    monkeypatch.setattr(reader.session, "_files", then_one_goes)
    with pytest.raises(TransientError, match=r"a\.jsonl is gone"):
        reader.plan() if question == "plan" else reader.session.lag(reader.positions)
    monkeypatch.undo()
    assert reader.plan().empty
