"""The groups of a stage on their way into the next one, or into the target."""

from __future__ import annotations

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.expressions import program
from dataflow_assets.languages.sql.engine.function import Environment, Row, holds
from dataflow_assets.languages.sql.engine.merging import Finish, FlinkGroups, Merging, WindowGroups
from dataflow_assets.languages.sql.engine.query_rows import Outputs
from dataflow_assets.languages.sql.engine.ranking import Ranking, Ranks
from dataflow_assets.languages.sql.engine.stages import Intake
from dataflow_assets.languages.sql.engine.values import Codec, pack
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.records.record import encode, parse


def groups(view: ViewPlan, number: int, environment: Environment) -> Merging:
    """The groups of a stage, whose rows go to the next one, or into the target."""
    stage = view.stages[number]
    if number + 1 == len(view.stages):
        finish = _writer(view, environment)
    else:
        intake = Intake(view.stages[number + 1], environment)

        def finish(row: Row) -> bytes | None:
            seen = intake(row)
            return None if seen is None else pack(seen)

    if isinstance(stage, Ranking):
        return Ranks(stage, _refusing(finish))
    return (FlinkGroups if stage.window is None else WindowGroups)(stage, _refusing(finish))


def _refusing(finish: Finish) -> Finish:
    """Whatever is raised is about one row: as with steps, it never stops the others."""

    def refuse(row: Row) -> bytes | None:
        try:
            return finish(row)
        except RejectedRecord:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: the query cannot handle this row"
            raise RejectedRecord("step", reason) from error

    return refuse


def _writer(view: ViewPlan, environment: Environment) -> Finish:
    compiled = program(view.shared, environment)
    having = compiled(view.having) if view.having is not None else None
    outputs = Outputs(view.outputs, compiled, view.times, drops=view.drops_nulls)

    def finish(row: Row) -> bytes | None:
        if having is not None and not holds(having, row, "HAVING"):
            return None
        body = outputs(row)
        return None if body is None else encode(body)

    return finish


def key_of(view: ViewPlan, body: bytes) -> bytes:
    """The key columns of a row of the target, by which it is deleted."""
    return encode({name: one for name, one in parse(body).items() if name in view.key_names})


def named_group(view: ViewPlan, group: bytes, number: int) -> str:
    stage = view.stages[number]
    return str(Codec([one.type for one in stage.keys]).unpack(group[stage.front :]))
