"""The address of the catalog in which tables get names, from SLUICE_CATALOG. This module does not contact the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sluice.errors import UsageError, nearest_name_hint
from sluice.named_functions import NamedFunction

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sluice.catalogs.catalog import Catalog

NO_CATALOG = "none"
"""The setting's value if tables are registered nowhere."""


@dataclass(frozen=True)
class CatalogKind:
    """A kind of catalog. title: its name in messages. form: the form of its address. port: the default port.

    opens: given an address, returns a context that connects to it when it is entered. It raises ImportError if its library is missing.
    """

    title: str
    form: str
    port: int
    opens: NamedFunction[[CatalogAddress], AbstractContextManager[Catalog]]


_HIVE = CatalogKind("Hive metastore", "thrift://HOST:9083", 9083, NamedFunction("sluice.catalogs.hive:open_hive_metastore"))
CATALOG_KINDS = {"thrift": _HIVE}
"""By the scheme of an address."""

_OWNS_COMMITS = "it owns the commits of its tables, and Sluice commits to a table's own log"
REFUSED_CATALOGS = {
    "s3tables": f"AWS S3 Tables: {_OWNS_COMMITS}",
    "iceberg": f"an Iceberg catalog: {_OWNS_COMMITS}, which is Delta's",
    "polaris": f"an Iceberg catalog: {_OWNS_COMMITS}, which is Delta's",
    "uc": "Unity Catalog: it owns the commits of its managed tables, and nothing of Sluice speaks to it yet",
    "databricks": "Unity Catalog: it owns the commits of its managed tables, and nothing of Sluice speaks to it yet",
    "glue": "AWS Glue: it is asked in another way than a Hive metastore is",
}
"""Other catalogs that people name, by scheme, and why they are refused."""


@dataclass(frozen=True)
class CatalogAddress:
    """Where a catalog is."""

    scheme: str
    host: str
    port: int

    @property
    def kind(self) -> CatalogKind:
        """The kind of the catalog."""
        return CATALOG_KINDS[self.scheme]

    def __str__(self) -> str:
        """The address as in the setting."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_catalog_address(said: str) -> CatalogAddress | None:
    """The address in a setting; None for "none". Raises UsageError, which never quotes a password, if it is invalid."""
    if said == NO_CATALOG:
        return None
    forms = " or ".join(dict.fromkeys(kind.form for kind in CATALOG_KINDS.values()))
    scheme, separator, _ = said.partition("://")
    if not separator:
        raise UsageError(f"SLUICE_CATALOG is no address; expected {forms}, or '{NO_CATALOG}'.")
    if (refused := REFUSED_CATALOGS.get(scheme.partition("+")[0])) is not None:
        raise UsageError(f"SLUICE_CATALOG names {refused}. Expected {forms}.")
    if scheme not in CATALOG_KINDS:
        raise UsageError(
            f"SLUICE_CATALOG: there is no kind of catalog '{scheme}://'.{nearest_name_hint(scheme, CATALOG_KINDS)} Expected {forms}."
        )
    kind = CATALOG_KINDS[scheme]
    try:
        parts = urlsplit(said)
        port = kind.port if parts.port is None else parts.port
    except ValueError:
        raise UsageError(f"SLUICE_CATALOG: its port is no number from 0 to 65535. Expected {kind.form}.") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError(
            f"SLUICE_CATALOG holds more than an address: a user, a query or a fragment. Credentials do not belong there. Expected {kind.form}."
        )
    if not parts.hostname or parts.path.strip("/"):
        raise UsageError(f"SLUICE_CATALOG is '{said}'; the address of a {kind.title} is {kind.form}.")
    return CatalogAddress(scheme, parts.hostname, port)
