"""Decoding by several threads at once: the first texts of a type must not end the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import dataflow_assets
from dataflow_assets.records.decoding import decode_json, decode_msgpack

_PACKAGE = Path(dataflow_assets.__file__).parent
_RACE = """
import sys, threading, types
import msgspec
from dataflow_assets.records.decoding import decode_json

TYPES = '''
class Inner(msgspec.Struct):
    a: "int"
    b: "dict[str, list[int | None]]"
    c: "list[tuple[str, ...]]"

class Outer(msgspec.Struct):
    x: "Inner"
    y: "tuple[Inner, ...]" = ()
    z: "Inner | None" = None
'''
TEXT = b'{"x": {"a": 1, "b": {"k": [1]}, "c": [["q"]]}, "y": [{"a": 1, "b": {}, "c": []}]}'
sys.setswitchinterval(1e-6)
right = []

def race():
    module = sys.modules["fresh"] = types.ModuleType("fresh")
    module.msgspec = msgspec
    exec(TYPES, module.__dict__)
    start = threading.Barrier(6)

    def first():
        start.wait()
        right.append(decode_json(TEXT, module.Outer).x.b)

    threads = [threading.Thread(target=first) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

for _ in range(100):
    race()
print(len(right), set(map(str, right)))
"""


def test_the_first_texts_of_a_type_in_several_threads() -> None:
    """Without a lock msgspec 0.22 ends the process in the first dozen of rounds."""
    done = subprocess.run(
        [sys.executable, "-c", _RACE], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "600 {\"{'k': [1]}\"}"), done.stderr


def test_both_formats() -> None:
    assert decode_json("[1, 2]", tuple[int, ...]) == (1, 2)
    assert decode_msgpack(b"\x92\x01\x02", tuple[int, ...]) == (1, 2)


_PLAIN = {"str", "msgspec.Raw", "dict[str, msgspec.Raw]", "list[tuple[str, int]]", "_nested(depth)"}
"""Types without structs inside: msgspec has nothing to look at."""


def test_structs_are_decoded_behind_the_lock() -> None:
    """A decoder of a module is built by an import, which has a lock of its own."""
    found = {str(file): kinds for file in _PACKAGE.rglob("*.py") if (kinds := _decoded(file))}
    assert {kind for kinds in found.values() for kind in kinds} <= _PLAIN, found


def _decoded(file: Path) -> set[str]:
    """The types into which msgspec itself is asked to decode."""
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    return {
        ast.unparse(keyword.value)
        for call in calls
        if ast.unparse(call.func) in {"msgspec.json.decode", "msgspec.msgpack.decode"}
        for keyword in call.keywords
        if keyword.arg == "type"
    }
