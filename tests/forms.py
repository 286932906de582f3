"""What a table of forms must say of the classes that stored digests are made of."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from dataflow_assets.languages.common.canonical import Form, Forms


def problems(forms: Forms, *roots: type) -> list[str]:
    """What the table lacks, or has too much, for all classes that these are made of."""
    counted = Counter(form.tag for form in forms.all)
    doubled = [f"the tag {tag} is that of {n} classes" for tag, n in counted.items() if n > 1]
    kinds = {form.kind for form in forms.all}
    needed = set(_reached(roots))
    unequal = [f"{kind.__qualname__} has no form" for kind in needed - kinds]
    unequal += [f"{kind.__qualname__} is part of nothing that is stored" for kind in kinds - needed]
    return [*doubled, *unequal, *(text for form in forms.all for text in _missing(form))]


def _missing(form: Form) -> Iterator[str]:
    names = [name.split("=")[-1] for name in (*form.names.split(), *form.later, *form.ignored)]
    fields = [field.name for field in dataclasses.fields(form.kind)]
    if sorted(names) != sorted(fields):
        yield f"{form.tag}: a field must be encoded, or ignored, once: {names} are not {fields}"


def _reached(roots: tuple[type, ...]) -> set[type]:
    """The dataclasses that are fields of these, however deep; with all that inherit from them."""
    found: set[type] = set()
    waiting: list[Any] = [*roots]
    while waiting:
        one = waiting.pop()
        if not dataclasses.is_dataclass(one):
            waiting += get_args(one)
        elif one not in found:
            assert isinstance(one, type)
            found.add(one)
            waiting += [*get_type_hints(one).values(), *one.__subclasses__()]
    return found
