"""SET 'key' = 'value': every key with its verdict, and what its value may be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dataflow_assets.errors.likely_names import did_you_mean
from dataflow_assets.languages.common.key_tables import Key, entry, names
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.statements import StatementNotes
from dataflow_assets.languages.sql.reader.syntax import Option

_BY_SPARK = "has no effect: the flow is run by Spark, with freshness and lanes of its own"
SETTINGS: Sequence[Key] = (
    Key("table.local-time-zone", "used", "The time zone in which a TIMESTAMP_LTZ is shown.", "UTC"),
    Key(
        "table.exec.sink.not-null-enforcer",
        "used",
        "What happens to a row without a value for a column that is NOT NULL. `ERROR`: a rejected "
        "record; `DROP`: left out.",
        "ERROR",
    ),
    Key(
        "dataflow.onRejected",
        "used",
        "An addition. What happens to a record that cannot be stored. `table`: it is kept beside "
        "the target; `fail`: the flow stops; `skip`: it is counted and logged.",
        "table",
    ),
    Key(
        "dataflow.freshness",
        "used",
        "An addition. Seconds within which a new record should be visible, 1 to 3600.",
        "10",
    ),
    Key("dataflow.suspended", "used", "An addition. `true` suspends the flows.", "false"),
    Key(
        "dataflow.stateLocation",
        "used",
        "An addition. Where queries with GROUP BY or DISTINCT keep their state: "
        "`s3://bucket/prefix`, or a folder below DATAFLOW_FILES that every worker sees.",
        "DATAFLOW_STATE in the environment, else `_state` below DATAFLOW_FILES",
    ),
    Key(
        "dataflow.acceptState",
        "used",
        "An addition. The digest of the former query, as the error names it: the changed query "
        "goes on with the state of that query.",
    ),
    Key(
        "dataflow.acceptEqualKeys",
        "used",
        "An addition. For queries with state: columns of the PRIMARY KEY of a table of a database, "
        "separated by `;`, in which values that differ in the query may be equal.",
    ),
    Key(
        "table.exec.sink.type-length-enforcer",
        "used",
        "`TRIM_PAD`: texts are cut, and CHARs filled, to the length of their column. `ERROR` is "
        "refused.",
        "IGNORE",
    ),
    Key(
        "table.exec.source.idle-timeout",
        "used",
        "For queries with windows: they do not wait for a partition that has had no record for "
        "this time, such as `1 min`; `0`: they wait for every partition.",
        "0",
    ),
    Key(
        "table.exec.state.ttl",
        "used",
        "For queries with GROUP BY, DISTINCT or an upsert-kafka table: state that was not touched "
        "for this time, such as `7 d`, is forgotten; `0`: none is. Windows end by their watermark "
        "instead.",
        "0",
    ),
    Key(
        "table.exec.source.cdc-events-duplicate",
        "note",
        "has no effect: a change that comes twice counts once where its table has a PRIMARY KEY",
        "false",
    ),
    Key("table.exec.sink.*", "note", _BY_SPARK),
    Key("table.exec.mini-batch.*", "note", _BY_SPARK),
    Key("table.*", "note", _BY_SPARK),
    Key("execution.runtime-mode", "note", _BY_SPARK),
    Key("execution.*", "note", _BY_SPARK),
    Key("pipeline.name", "note", "has no effect: a flow is called `<target>.<source>`"),
    Key("pipeline.*", "note", _BY_SPARK),
    Key("parallelism.*", "note", _BY_SPARK),
    Key("state.*", "note", _BY_SPARK),
    Key("restart-strategy.*", "note", _BY_SPARK),
    Key("sql-client.*", "note", _BY_SPARK),
)
"""Each counts for the statements behind it; one that is not listed is noted."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dataflow.onRejected": ("table", "fail", "skip"),
    "dataflow.suspended": ("true", "false"),
    "table.exec.sink.not-null-enforcer": ("ERROR", "DROP"),
    "table.exec.sink.type-length-enforcer": ("IGNORE", "TRIM_PAD"),
}
IDLE, TTL = "table.exec.source.idle-timeout", "table.exec.state.ttl"
_DURATION = re.compile(r"\s*([0-9]{1,15})\s*([a-zµ]*)\s*", re.IGNORECASE)
_UNITS = {
    ("d", "day", "days"): 86_400_000.0,
    ("h", "hour", "hours"): 3_600_000.0,
    ("m", "min", "minute", "minutes"): 60_000.0,
    ("s", "sec", "secs", "second", "seconds"): 1000.0,
    ("", "ms", "milli", "millis", "millisecond", "milliseconds"): 1.0,
    ("µs", "micro", "micros", "microsecond", "microseconds"): 1e-3,
    ("ns", "nano", "nanos", "nanosecond", "nanoseconds"): 1e-6,
}


def apply(option: Option, state: StatementNotes, settings: dict[str, str]) -> None:
    """Takes a setting for the statements behind it; a wrong one is a finding."""
    setting = entry(option.key, SETTINGS)
    allowed = _CHOICES.get(option.key)
    what = f"SET {option.key}"
    if setting is None:
        advice = did_you_mean(option.key, names(SETTINGS))
        state.note(what, option.place, f"has no effect: it is not known here{advice}")
    elif setting.verdict == "note":
        state.note(what, option.place, setting.says)
    elif setting.verdict == "ignored":
        state.note(what, option.place, f"has no effect here: {setting.says}")
    elif allowed is not None and option.value not in allowed:
        _refuse(option, state, suggest(option.value, allowed))
    elif wrong := _setting_problem(option):
        _refuse(option, state, wrong)
    else:
        settings[option.key] = option.value


def _refuse(option: Option, state: StatementNotes, message: str) -> None:
    """The default is not what was asked for: no INSERT behind it becomes a flow."""
    state.wrong(f"SET {option.key}", option.value_place, message)
    state.unclear.append(option.place)


def _setting_problem(option: Option) -> str:
    if option.key == "table.local-time-zone":
        try:
            ZoneInfo(option.value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return "is not a time zone: write its name, like UTC or Europe/Berlin"
    if option.key in (IDLE, TTL) and milliseconds(option.value) is None:
        return "must be a duration, like 500ms, 1s or 5 min"
    if option.key == "dataflow.freshness":
        number = option.value
        if not re.fullmatch("[0-9]{1,4}", number) or not 1 <= int(number) <= 3600:
            return "must be a number of seconds, 1 to 3600"
    return ""


def milliseconds(text: str) -> int | None:
    """A duration in milliseconds; None where the text is not one."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    units = (size for names, size in _UNITS.items() if match[2].lower() in names)
    unit = next(units, None)
    return None if unit is None else int(int(match[1]) * unit)
