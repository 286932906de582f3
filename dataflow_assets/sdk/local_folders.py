"""Which folders of the disk manifests may name: those below DATAFLOW_FILES.

The one place for this rule: several connectors and manifest languages ask, before and after links
are followed, and none of them may know another one.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = "DATAFLOW_FILES"


def within_root(path: str) -> bool:
    """Returns whether a path of the disk is below DATAFLOW_FILES, also after links are followed.

    Called when manifests are loaded, and by whoever opens the folder.

    Args:
        path: an absolute path, which need not exist.
    """
    root = os.environ.get(ROOT)
    return bool(root) and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root or ""))


def outside(path: str) -> str:
    """Why a folder of the disk is refused, and the way out.

    Args:
        path: the folder.

    Returns:
        A sentence for people.
    """
    return (
        f"{path} is not below the folder {ROOT} ({os.environ.get(ROOT) or 'not set'}): set {ROOT} "
        "in the environment to the folder of the disk that manifests may read and write, or use S3"
    )
