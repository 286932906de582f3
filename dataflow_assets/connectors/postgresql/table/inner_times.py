"""Where in the composites of a table dates and times are, with ranges of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dataflow_assets.connectors.postgresql.client import Link

Way = tuple[int, ...]
"""To a part of a value: the number of an attribute from 1 on, or 0 for each element of an array."""

_INSIDE = """
WITH RECURSIVE inside AS (
    SELECT a.attname, a.atttypid AS type, '{}'::int[] AS way FROM pg_attribute a
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT inside.attname, deeper.type, inside.way || deeper.step
    FROM inside JOIN pg_type t ON t.oid = inside.type CROSS JOIN LATERAL (
        SELECT t.typbasetype AS type, '{}'::int[] AS step WHERE t.typtype = 'd'
      UNION ALL
        SELECT e.oid, '{0}' FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid
      UNION ALL
        SELECT p.atttypid, ARRAY[row_number() OVER (ORDER BY p.attnum)::int] FROM pg_attribute p
        WHERE t.typtype = 'c' AND p.attrelid = t.typrelid AND p.attnum > 0 AND NOT p.attisdropped
    ) deeper
)
SELECT i.attname, json_agg(i.way)::text FROM inside i JOIN pg_type t ON t.oid = i.type
WHERE (t.typcategory = 'D' AND t.typtype = 'b' OR EXISTS (
    SELECT FROM pg_range r JOIN pg_type s ON s.oid = r.rngsubtype
    WHERE s.typcategory = 'D' AND t.oid IN (r.rngtypid, (to_jsonb(r) ->> 'rngmultitypid')::oid)
)) AND NOT i.way <@ '{0}'
GROUP BY i.attname
"""


def inner_times(link: Link, oid: str) -> Mapping[str, tuple[Way, ...]]:
    """By the column the ways to the times in its composites.

    Called when a table is described that has a column of composites, or of arrays of them.
    """
    return {name: tuple(map(tuple, json.loads(ways))) for name, ways in link.execute(_INSIDE, oid)}
