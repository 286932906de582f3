"""The plugin that has a connector's class: in which folder of jars, and under which full name."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dataflow_assets.errors import PermanentError


def jars_of(
    connector: str, folders: Sequence[str], jars: Sequence[str] = ()
) -> tuple[str, list[Path]]:
    """The plugin that has a class.

    Called by the host, once.

    Args:
        connector: the class, with its package or without.
        folders: as `plugin.path` of a Connect worker: each a folder of jars, or of such folders.
        jars: of one more plugin.

    Returns:
        The full name of the class, and the jars of its plugin.

    Raises:
        PermanentError: no plugin has the class, or several have it, or several classes of this
            short name are there, or a jar is broken.
    """
    plugins = [*_plugins(folders), [Path(jar) for jar in jars]]
    pairs = {(name, tuple(some)) for some in plugins for name in _classes_named(connector, some)}
    names = sorted({name for name, _ in pairs})
    if len(names) > 1:
        listed = ", ".join(names)
        raise PermanentError(f"several connectors are called {connector}: name one of {listed}")
    if not pairs:
        where = ", ".join((*folders, *(Path(jar).name for jar in jars)))
        raise PermanentError(
            f"no jar in plugins ({where}) has the class {connector}: name the folder of the "
            "connector's jars, or all of them by their coordinates, or correct class"
        )
    if len(pairs) > 1:
        places = ", ".join(sorted({str(some[0].parent) for _, some in pairs}))
        raise PermanentError(
            f"several plugins have the class {connector}, maybe of other versions: leave one of "
            f"{places} in plugins"
        )
    ((name, some),) = pairs
    return name, list(some)


def _plugins(folders: Sequence[str]) -> Iterator[list[Path]]:
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise PermanentError(f"the folder {folder} of plugins does not exist")
        if jars := sorted(folder.glob("*.jar")):
            yield jars
        for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
            if jars := sorted(inner.rglob("*.jar")):
                yield jars


def _classes_named(connector: str, jars: Sequence[Path]) -> Iterator[str]:
    file = connector.replace(".", "/") + ".class"
    for jar in jars:
        for name in _entries(jar):
            if name == file or ("." not in connector and name.endswith(f"/{file}")):
                yield name.removesuffix(".class").replace("/", ".")


def _entries(jar: Path) -> list[str]:
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.namelist()
    except zipfile.BadZipFile as error:
        raise PermanentError(
            f"plugins: {jar} is not a jar ({error}): replace the file, or remove it"
        ) from None
