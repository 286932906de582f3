"""A document that no language reads: most are others' files, some are manifests with a mistake."""

from __future__ import annotations

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.language import languages

_OF_DEFS = {"type", "attributes", "requirements", "post_processing", "template_vars_module"}
_CLASS = "connector.class"


def explain(document: Document, form: str) -> tuple[Finding | None, Finding | None]:
    """Says why a document is not read: as a mistake, as a note, or, of Dagster's files, not at all.

    Args:
        document: that no language claims.
        form: `.properties` or `.yaml`.
    """
    if form == ".properties":
        return None, _of_properties(document)
    # A component of a Dagster project, as in its `defs.yaml`: manifests may be below it.
    keys = set(document.value) if isinstance(document.value, dict) else set()
    if keys <= _OF_DEFS and "." in str(document.get("type")):
        return None, None
    if problem := _unreadable(document):
        return problem, None
    return None, document.finding(("kind",), "is not a flow: skipped")


def _of_properties(document: Document) -> Finding:
    """Java programs have others than connectors and workers."""
    if not document.get(_CLASS):
        message = "is neither a connector that is read nor a Connect worker's file: skipped"
        return document.finding((), message)
    names = sorted(name for one in languages().values() for name in one.connector_classes)
    whole = ", ".join(name for name in names if "." in name)  # Connect takes their last part, too
    message = f"is another connector than {whole}: skipped"
    return document.finding((_CLASS,), message)


def _unreadable(document: Document) -> Finding | None:
    """Why a document is nothing that Kubernetes would take either."""
    if not isinstance(document.value, dict):
        return document.finding((), "must be a mapping with apiVersion, kind, metadata and spec")
    for key in ("apiVersion", "kind"):
        if not isinstance(document.get(key), str):
            return document.finding((key,), "is required, as text", key=True)
    return None
