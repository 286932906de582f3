"""The position of a view, and the manifest that it names: all files of one state."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dataflow_assets.contracts import Positions
from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.sql.state.watermarks import Watermarks
from dataflow_assets.records.decoding import decode_json

VIEW = "view"
"""The one partition of a view."""
MANIFEST = "manifest.json"
_FORMAT = 2


class StateFile(msgspec.Struct, frozen=True):
    """One immutable file, by its name below the folder of the view."""

    name: str
    rows: int
    size: int
    digest: str


class StateTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rows of a table: a file for each bucket, and newer ones, oldest first.

    A key is in the bucket of its hash, and in any of the newer files: the newest one counts.
    """

    buckets: tuple[StateFile | None, ...]
    recent: tuple[StateFile, ...] = ()
    first: int | None = None
    """Of a table of windows: when the first of its keys is final, or earlier; in milliseconds."""

    @property
    def files(self) -> tuple[StateFile, ...]:
        return (*(one for one in self.buckets if one is not None), *self.recent)

    @property
    def rows(self) -> int:
        """The rows of all files; a key may be in several."""
        return sum(one.rows for one in self.files)


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One state of a view: written once, never changed."""

    format: int
    shape: str
    """Digest of what decides how it was made."""
    query: str
    """Digest of the whole query."""
    number: int
    """Of the span; one more than the state before."""
    at: datetime
    """The time that the span took for now."""
    offsets: dict[str, int]
    tables: dict[str, StateTable] = {}
    parts: tuple[StateFile, ...] = ()
    """The rows of the target that have changed, frozen."""
    watermarks: Watermarks = Watermarks()
    late: int = 0
    """Rows that came when all of their windows were final, since the first state."""
    expires_from: int | None = None
    """When what is kept began to expire by `table.exec.state.ttl`; None: it does not."""
    forgotten_upto: int | None = None
    """What was touched then, or before, is forgotten for good; 0: nothing is.

    None: the state is of a version that did not say.
    """

    @property
    def first(self) -> int | None:
        """When the first group in a window is final; None: there is none."""
        moments = (one.first for one in self.tables.values() if one.first is not None)
        return min(moments, default=None)

    @property
    def files(self) -> frozenset[str]:
        tables = (one.name for table in self.tables.values() for one in table.files)
        return frozenset({*tables, *(one.name for one in self.parts)})

    @property
    def size(self) -> int:
        """Bytes of the state, without the frozen rows."""
        return sum(one.size for table in self.tables.values() for one in table.files)

    def text(self) -> bytes:
        return msgspec.json.encode(self)


def manifest_of(text: bytes, name: str) -> Manifest:
    try:
        manifest = decode_json(text, Manifest)
    except msgspec.MsgspecError as error:
        raise PermanentError(f"{name} cannot be read: {error}") from None
    if manifest.format != _FORMAT:
        raise PermanentError(
            f"{name} has the format {manifest.format}, and this version knows {_FORMAT}: run the "
            "version that has written it, or a newer one"
        )
    return manifest


def new_manifest(**given: object) -> Manifest:
    return Manifest(format=_FORMAT, **given)  # type: ignore[arg-type]


class Earlier(msgspec.Struct, frozen=True):
    """A state of a generation before, whose rows may be in the target still."""

    state: str
    digest: str


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """The offsets that a view has read, and the state that came of them."""

    offsets: dict[str, int]
    generation: str
    """Another one whenever the state begins again, empty: later ones sort behind earlier ones."""
    number: int = 0
    state: str = ""
    """The name of the manifest; empty: no state yet."""
    digest: str = ""
    """Of the manifest."""
    earlier: tuple[Earlier, ...] = ()
    """While a state is built again: those before."""
    rebuilt_at: dict[str, int] = {}
    """While a state is built again: the offsets at which it is; empty: not known yet."""
    past: tuple[str, ...] = ()
    """The generations before, whose files nobody needs but those of `earlier`."""
    due: int | None = None
    """When a window ends although no record arrives; in milliseconds."""
    seen: int | None = None
    """Of an end: when it was looked at."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    def positions(self) -> Positions:
        return {VIEW: self.text()}


def position_of(text: object) -> Position:
    """From what a sink has kept. Raises PermanentError where it is of something else."""
    try:
        return decode_json(str(text), Position)
    except msgspec.MsgspecError:
        raise PermanentError(
            f"the checkpoint holds {text}, which is no position of a query with state: the query "
            "had none when it was written. Begin again: dataflow run PATH --flow NAME --from "
            "earliest"
        ) from None
