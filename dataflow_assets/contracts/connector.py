"""What a manifest names: a connection end, and the address of its topic or table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from dataflow_assets.secrets import SecretRef
from dataflow_assets.spec import Spec


@dataclass(frozen=True)
class Address:
    """Where a topic or table is, known without network or secrets; becomes the asset key."""

    system: str
    connection: str
    namespace: str | None
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The components of the asset key.

        Returns:
            System, connection, namespace and name; the empty ones are left out.
        """
        return tuple(p for p in (self.system, self.connection, self.namespace, self.name) if p)

    def __str__(self) -> str:
        return "/".join(self.parts)


class Connector(Spec):
    """A declared connection end: the manifest's `config` block is the object."""

    type: ClassVar[str]
    icon: ClassVar[str] = ""
    """What Dagster calls the system's icon, where that is not the type."""
    guarantee: ClassVar[str]
    """For docs/connectors: what a crash at any moment leaves, how, and where that ends."""
    double: ClassVar[bool] = False
    """True: it stands in for a system in tests; manifests may name it only where that is asked."""

    @abstractmethod
    def address(self) -> Address:
        """Returns where it points, without resolving or reaching anything.

        Called when manifests are loaded, in the code location and on the command line, and while a
        flow runs. What a Secret holds is named by the reference (`SecretRef.label`): the address is
        the same before and after secrets are resolved.
        """

    def resolved_address(self) -> Address:
        """The address under which sinks store what they know of a flow; secrets are in place.

        Called on the driver. By default `address()`; of a topic, and of a table whose checkpoint
        is in the table, it has the names that its Secrets hold.
        """
        return self.address()

    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The ways this end is named in its manifest, for the location's `connections`.

        Called when manifests are loaded.

        Returns:
            Addresses as text, or references to secrets.
        """
        return (self.address().connection,)

    @property
    def connection_group(self) -> Hashable:
        """Ends with equal values of this are asked together: one connection serves all of them.

        Read on the driver and, of sources, inside tasks, with all secrets in place; it may hold
        them and is never shown.

        Returns:
            By default the server, as asset keys name it: its ends are asked one after the other.
        """
        return self.address().connection
