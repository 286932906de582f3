"""Rights in a cluster: what the service account of a location may do, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow_assets.kubernetes.crds import resources
from dataflow_assets.languages.dataflow.model import GROUP

_RBAC = "rbac.authorization.k8s.io"

Rule = Mapping[str, Sequence[str]]


def watching_rules() -> list[Rule]:
    """Returns what `dataflow k8s watch` needs in each namespace whose objects it follows."""
    plurals = [one.plural for one in resources()]
    return [
        _rule(GROUP, plurals, ["get", "list", "watch", "patch"]),
        _rule(GROUP, [f"{plural}/status" for plural in plurals], ["patch"]),
        _rule("", ["events"], ["create"]),
    ]


def secret_rules(names: Sequence[str]) -> list[Rule]:
    """Returns what flows need in the namespace of their Secrets."""
    return [{**_rule("", ["secrets"], ["get"]), "resourceNames": sorted(names)}]


def role(name: str, namespace: str, rules: Sequence[Rule], account: str) -> list[dict[str, Any]]:
    """Returns a Role and who has it.

    Args:
        name: of both.
        namespace: in which it is valid.
        rules: what is allowed there.
        account: `namespace/name` of the service account.
    """
    account_namespace, account_name = account.split("/")
    head = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": name, "namespace": namespace}}
    subject = {"kind": "ServiceAccount", "name": account_name, "namespace": account_namespace}
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    return [
        {**head, "kind": "Role", "rules": list(rules)},
        {**head, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference},
    ]


def _rule(group: str, names: Sequence[str], verbs: Sequence[str]) -> Rule:
    return {"apiGroups": [group], "resources": names, "verbs": verbs}
