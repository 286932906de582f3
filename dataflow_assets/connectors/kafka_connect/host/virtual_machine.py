"""The JVM of the host: started once, with Connect's own classes; a plugin's come before them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jpype

from dataflow_assets.connectors.kafka_connect.host import helper
from dataflow_assets.spark import java

_GIVES_BACK = "-XX:G1PeriodicGCInterval=60000"  # ms without a collection, as behind a snapshot
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"  # to standard error


class VirtualMachine:
    """Classes of Connect, and of one plugin."""

    def __init__(self, heap: str, jars: Sequence[str], *, plain: bool, schemas: bool) -> None:
        library = next((java.home() / "lib").rglob("libjvm.*"))
        # A process without memory must not go on: its parent starts another one.
        options = [f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError", _GIVES_BACK, _QUIET]
        jpype.startJVM(str(library), *options, classpath=list(jars), convertStrings=False)
        compiler = jpype.JClass("org.codehaus.janino.SimpleCompiler")()
        compiler.cook(helper.TEXT)
        self._helper = jpype.JClass(compiler.getClassLoader().loadClass("Helper"))
        self._plain, self._schemas = plain, schemas
        self._loader: Any = None

    def new_helper(self) -> Any:
        """A helper for the host or a task: converters and transformations are not shared."""
        return self._helper(self._plain, self._schemas)

    def connector(self, name: str, jars: Sequence[Path]) -> Any:
        urls = jpype.JArray(jpype.JClass("java.net.URL"))(
            [jpype.JClass("java.io.File")(str(jar)).toURI().toURL() for jar in jars]
        )
        parent = jpype.JClass("java.lang.ClassLoader").getSystemClassLoader()
        isolated = jpype.JClass("org.apache.kafka.connect.runtime.isolation.PluginClassLoader")
        self._loader = isolated(urls[0], urls, parent)
        self.enter()
        return self.instance(name)

    def instance(self, name: str) -> Any:
        """A new object of a class of the plugin, or of Connect."""
        return jpype.JClass(jpype.JClass("java.lang.Class").forName(name, True, self._loader))()

    def enter(self) -> None:
        """For each thread that calls the plugin, before it does."""
        jpype.JClass("java.lang.Thread").currentThread().setContextClassLoader(self._loader)


def java_map(values: dict[str, str]) -> Any:
    result = jpype.JClass("java.util.HashMap")()
    for name, value in values.items():
        result.put(jpype.JString(name), jpype.JString(value))
    return result


def texts(values: Any) -> dict[str, str]:
    return {str(one.getKey()): str(one.getValue()) for one in values.entrySet()}
