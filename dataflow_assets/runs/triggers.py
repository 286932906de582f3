"""Triggers of scheduled flows as processes of this machine.

A process, with all that it has started, ends when its run is stopped, however the run ends. Its
output goes into the log of the run, without the values of its Secrets.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.runs.redaction import MASK, mask
from dataflow_assets.runs.run_result import RunResult
from dataflow_assets.schedules.trigger import EnvSource, Trigger, expand, references
from dataflow_assets.secrets.environment import PREFIX
from dataflow_assets.spark.children import Guard

GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL
LAST_LINES = 5  # of the output, in the message of a failure
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class TriggerHost:
    """The run that a trigger belongs to, for its output."""

    say: Callable[[str], None]
    """Gets each line of output."""
    stop: Callable[[], str | None] = lambda: None
    """Asked several times a second; a reason ends the process."""


def run_chain(
    flow: Flow, triggers: Sequence[Trigger], result: RunResult, host: TriggerHost
) -> str | None:
    """Runs triggers one after another; as `run_process` for each, until one is stopped or fails."""
    for index, trigger in enumerate(triggers):
        name = trigger.label(index)
        if reason := host.stop() or run_process(flow, trigger, name, result, host):
            return reason
    return None


def run_process(
    flow: Flow, trigger: Trigger, name: str, result: RunResult, host: TriggerHost
) -> str | None:
    """Runs one trigger to its end; returns why it was stopped, and None where it has succeeded.

    Called in the process of a run, for each trigger once the one before has succeeded.

    Args:
        flow: whose run has ended.
        trigger: with an image.
        name: of the trigger, for messages.
        result: what the trigger is told of the run.
        host: the run.

    Raises:
        PermanentError: it cannot be started, or has ended with another code than 0.
    """
    about = f"trigger {name} of flow {flow.id}"
    variables, secrets = _variables(flow, trigger, about)
    command = _command(trigger, variables, secrets, about)
    hidden = sorted(filter(None, (variables[one] for one in secrets)), key=len, reverse=True)
    last: deque[str] = deque(maxlen=LAST_LINES)

    def tell(line: str) -> None:
        for value in hidden:
            line = line.replace(value, MASK)
        last.append(mask(line, [flow]))
        host.say(f"{name}: {last[-1]}")

    with _start(command, _environment(variables, result), about) as process:
        reason = _follow(process, tell, host)
    if reason is None and process.returncode:
        output = "".join(f"\n{line}" for line in last)
        raise PermanentError(f"{about} ended with {_code(process.returncode)}{output}")
    return reason


def _variables(flow: Flow, trigger: Trigger, about: str) -> tuple[dict[str, str], frozenset[str]]:
    """The values of `env`, in their order, and which of them hold a secret."""
    values: dict[str, str] = {}
    secrets: set[str] = set()
    for one in trigger.env:
        if one.value_from is not None:
            value = _look_up(flow, one.value_from, f"{about}: variable {one.name}")
        else:
            (value,) = expand([one.value], values)
        if value is not None:
            values[one.name] = value
        of_secret = one.value_from is not None and one.value_from.secret_key_ref is not None
        if of_secret or secrets & {*references(one.value)}:
            secrets.add(one.name)
    return values, frozenset(secrets & values.keys())


def _look_up(flow: Flow, source: EnvSource, about: str) -> str | None:
    """The value; None for one that is optional and not there."""
    if (ref := source.secret_key_ref) is not None:
        try:
            return flow.secrets.get(ref)
        except PermanentError as error:
            if ref.optional:
                return None
            raise PermanentError(f"{about}: {error}") from None
    if (key := source.config_map_key_ref) is None:
        raise PermanentError(f"{about} is a field of a pod, and this process is in none")
    texts = flow.config_maps.get((flow.namespace, key.name), {})
    if key.key not in texts and not key.optional:
        raise PermanentError(
            f"{about}: key {key.key} not found in ConfigMap {flow.namespace}/{key.name}; outside a "
            "cluster it is a ConfigMap document in the folder of the manifest"
        )
    return texts.get(key.key)


def _command(
    trigger: Trigger, variables: Mapping[str, str], secrets: frozenset[str], about: str
) -> list[str]:
    if trigger.image is None:
        raise PermanentError(f"{about} is one of Dagster's, which runs it: no process can")
    if not trigger.command:
        raise PermanentError(
            f"{about} has no command: outside a cluster nothing runs the image {trigger.image}. "
            "Write what it does as command and args, or run the location in Kubernetes"
        )
    for text in (*trigger.command, *trigger.args):
        if shown := secrets & {*references(text)}:
            raise PermanentError(
                f"{about}: $({min(shown)}) would show a Secret in the list of processes; let the "
                f"command read the variable, such as command: [sh, -c, 'program ${min(shown)}']"
            )
    return expand([*trigger.command, *trigger.args], variables)


def _environment(variables: Mapping[str, str], result: RunResult) -> dict[str, str]:
    """That of this process without Secrets of other flows, and what the trigger declares."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(f"{PREFIX}__")}
    return {**own, **result.environment(), **variables}


@contextmanager
def _start(
    command: list[str], environment: Mapping[str, str], about: str
) -> Iterator[subprocess.Popen[str]]:
    """The process in a session of its own, all of which is gone once the block ends."""
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise PermanentError(f"{about}: {command[0]} cannot be started: {reason}") from None
    guard = Guard(process.pid)
    try:
        yield process
    finally:
        _end(process)
        guard.end()
        process.communicate()  # closes the pipe


def _follow(
    process: subprocess.Popen[str], tell: Callable[[str], None], host: TriggerHost
) -> str | None:
    """Hands on the output until the process has ended, or there is a reason to end it."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    assert process.stdout is not None  # noqa: S101 - a pipe
    reader = threading.Thread(target=_read, args=(process.stdout, lines.put), daemon=True)
    reader.start()
    reason = None
    try:
        while process.poll() is None and not (reason := host.stop()):
            with suppress(queue.Empty):
                tell(lines.get(timeout=_LOOK_SECONDS))
    finally:
        _end(process)  # what it has left behind holds the other end of the pipe
        reader.join(GRACE_SECONDS)
    while not lines.empty():
        tell(lines.get())
    return reason


def _read(output: IO[str], put: Callable[[str], None]) -> None:
    for line in output:
        put(line.rstrip("\n"))


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the process with all of its session: asked first, then at once."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _code(code: int) -> str:
    if code > 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
