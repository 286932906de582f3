"""Lists the names that broke a rule of `code_words` before it was one; the list only shrinks.

`python -m tests.docs.offenders` takes out what keeps the rule by now, and follows what moved to
another module or class. It adds nothing: what breaks a rule for the first time is refused.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.docs.code_words import RULES, Entry, Name, names

FILE = Path(__file__).with_name("offenders.toml")
COMMAND = ".venv/bin/python -m tests.docs.offenders"
HEAD = f"""\
# Names of the program that break a rule of code_words.py since before it was one, by module.
# This list only shrinks, and `{COMMAND}` writes it.
# When a merge conflicts here, keep either side and run the command.
"""


def load(text: str) -> dict[str, frozenset[Entry]]:
    """Reads the list of each rule."""
    return {
        rule: frozenset((module, path) for module, paths in lines.items() for path in paths.split())
        for rule, lines in tomllib.loads(text).items()
    }


def dump(listed: Mapping[str, Iterable[Entry]]) -> str:
    """Writes the list of each rule, a module a line."""
    return HEAD + "".join(f"\n[{rule}]\n{_lines(listed[rule])}" for rule in RULES)


def _lines(listed: Iterable[Entry]) -> str:
    modules: dict[str, list[str]] = {}
    for module, path in sorted(listed):
        modules.setdefault(module, []).append(path)
    return "".join(f'"{module}" = "{" ".join(paths)}"\n' for module, paths in modules.items())


def by_rule(program: Sequence[Name]) -> dict[str, list[Name]]:
    """Finds the names that break each rule."""
    return {title: list(rule.broken_by(program)) for title, rule in RULES.items()}


@cache
def today() -> Mapping[str, Sequence[Name]]:
    """Finds the names of the program that break each rule."""
    return by_rule(names())


def added(listed: frozenset[Entry], now: Iterable[Name]) -> list[Name]:
    """Finds the names that are not listed."""
    return [name for name in now if name.entry not in listed]


def shrunk(listed: frozenset[Entry], now: Sequence[Name]) -> tuple[frozenset[Entry], list[Name]]:
    """Keeps what still breaks the rule; a name that is gone makes room for one that ends alike.

    Returns:
        The list, never longer than it was, and the names for which it has no room.
    """
    kept = listed & {name.entry for name in now}
    room = Counter(path.rpartition(".")[2] for _, path in listed - kept)
    refused = []
    for name in added(listed, now):
        if room[name.last]:
            room[name.last] -= 1
            kept |= {name.entry}
        else:
            refused.append(name)
    return kept, refused


def message(rule: str, refused: Sequence[Name]) -> str:
    """Says what breaks the rule, where, and what to do instead."""
    places = "".join(f"\n  {name}" for name in refused)
    return f"{RULES[rule].says}:{places}\ninstead: {RULES[rule].instead}" if places else ""


def main() -> None:
    """Writes the list, and fails with the names for which it has no room."""
    listed = load(FILE.read_text("utf-8"))
    results = {rule: shrunk(listed[rule], now) for rule, now in today().items()}
    FILE.write_text(dump({rule: kept for rule, (kept, _) in results.items()}), "utf-8")
    sys.exit("\n".join(message(rule, new) for rule, (_, new) in results.items() if new) or 0)


if __name__ == "__main__":
    main()
