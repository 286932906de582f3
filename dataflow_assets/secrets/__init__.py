"""SecretRefs: named in the manifest, resolved only when used, never echoed.

A reference is looked up in four places, in this order: the Kubernetes API, where the process runs
inside a cluster (`cluster`); the `Secret` documents beside the manifest (`lookup`); the file
`<DATAFLOW_SECRETS>/<namespace>/<name>/<key>`, as Kubernetes mounts Secrets (`mounts`); and an
environment variable (`environment`).

A language whose files name environment variables makes a `VariableRef` instead, which is looked up
in the environment alone.

Nothing is kept for longer than seconds: whoever opens a flow again gets the values of that moment.
"""

from dataflow_assets.secrets.cluster import forget
from dataflow_assets.secrets.cluster_api import inside
from dataflow_assets.secrets.lookup import Lookup, Secrets, foreign_place, resolve, resolved_values
from dataflow_assets.secrets.mounts import FOLDER, is_place, mounted_file, replaced_meanwhile
from dataflow_assets.secrets.mounts import namespace as mounted_namespace
from dataflow_assets.secrets.refs import Absent, Fills, SecretKey, SecretRef, VariableRef, is_secret
from dataflow_assets.secrets.tokens import one_word

__all__ = [
    "FOLDER",
    "Absent",
    "Fills",
    "Lookup",
    "SecretKey",
    "SecretRef",
    "Secrets",
    "VariableRef",
    "foreign_place",
    "forget",
    "inside",
    "is_place",
    "is_secret",
    "mounted_file",
    "mounted_namespace",
    "one_word",
    "replaced_meanwhile",
    "resolve",
    "resolved_values",
]
