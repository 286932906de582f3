"""Lanes: many flows in one process, with one Spark session.

Whoever has a lane iterates over `Lane.drive`: a run of Dagster's job `ingest`, or `dataflow run
--for`. These threads work then, all of them in that one process on the driver's machine:

| thread | how many | does |
|---|---|---|
| that iterates over `drive` | one | begins and ends members, hands on what they report |
| `flow NAMESPACE/NAME` | one a member | the loop, `runs.drain`; a `LaneMember` is its host |
| `lane, joint jobs` | one | looks for what is new, wakes members, reads small passes together |
| `lane, single jobs` | one | reads the other passes, one after the other |
| `dataflow-limit` | one a Spark job | ends the job when it takes too long |
| `dataflow-question` | one a server asked | asks for the ends of its topics or tables |

A pass goes from `LaneMember.run`, in the flow's thread, as a `QueuedPass` to the thread that gives
its turns; its outcome, or an error, goes back. They meet under one condition, the `board` of the
lane; nobody waits for a server while holding its lock.
"""
