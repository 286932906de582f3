"""Statements, and findings at their places: shared by the languages of `.sql` files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from typing_extensions import override

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, NodePlace, Path
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.common.tokens import Place

Statement = TypeVar("Statement")


@dataclass
class Script(Generic[Statement]):
    """The statements of one text, or the mistakes in it."""

    statements: list[Statement] = field(default_factory=list)
    problems: list[tuple[Place, str]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Names of what cannot be read: that they are missing is not said once more."""
    unclear: list[Place] = field(default_factory=list)
    """Statements that cannot be read and might have changed what others mean."""


@dataclass
class StatementNotes:
    """Findings and notes about the statements of one file, while it is read."""

    file: str
    notes: Notes = field(default_factory=Notes, kw_only=True)
    unclear: list[Place] = field(default_factory=list, kw_only=True)
    """Statements with a mistake in them without which others might mean something else."""

    def wrong(self, what: str, place: Place, message: str) -> None:
        self.notes.findings.append(Finding(self.file, place.line, place.column, what, message))

    def note(self, what: str, place: Place, message: str) -> None:
        self.notes.hints.append(Finding(self.file, place.line, place.column, what, message))

    def leave_out(self, what: str, place: Place, cause: Place) -> None:
        """Notes why there is no flow: with a default in place of a mistake rows would be wrong."""
        self.note(what, place, f"no flow is made of it until line {cause.line} is corrected")

    def reading(self) -> Reading:
        """All that was said about the file so far, without a flow."""
        whole = Document(self.file, None, {(): lines(Place(1, 1))})
        return Reading(whole, tuple(self.notes.findings), tuple(self.notes.hints))


class StatementDocument(Document):
    """The statement of a flow: findings about the flow are reported at places of the file.

    The value is what the statement is called in findings.
    """

    @override
    def finding(self, path: Path, message: str, *, key: bool = False) -> Finding:
        plain = super().finding(path, message, key=key)
        return Finding(plain.file, plain.line, plain.column, str(self.value), message)


def lines(place: Place) -> NodePlace:
    """A place of a statement as documents have places."""
    return NodePlace(place.line, place.column, place.line, place.column)
