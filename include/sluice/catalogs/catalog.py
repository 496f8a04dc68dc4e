"""Defines what Sluice registers for a table or a view, what a catalog returns, and what each kind of catalog can do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sluice.catalog_address import CatalogAddress

PIPELINE = "sluice.pipeline"
"""The property that marks an entry as Sluice's: the name of its pipeline."""
LOCATION = "sluice.place"
"""The property with the table's location, or for a view the pipeline's folder, which distinguishes entries of different lakes."""


@dataclass(frozen=True)
class NamedColumn:
    """A column. type: as in Delta's log, a name or an object."""

    name: str
    type: str | Mapping[str, Any]
    comment: str = ""


@dataclass(frozen=True)
class NamedTable:
    """A Delta table or a view to register. location: a URL; for a view, the folder of its pipeline. query: for a view, its text; else None.

    Its database has the pipeline's name.
    """

    pipeline: str
    name: str
    location: str
    columns: tuple[NamedColumn, ...]
    comment: str = ""
    query: str | None = None


@dataclass(frozen=True)
class HeldName:
    """A name that is taken in a catalog. pipeline: the one that it belongs to; None: somebody else's. location: as in NamedTable.

    entry: the catalog's own object.
    """

    name: str
    location: str
    pipeline: str | None
    entry: Any


class Catalog(Protocol):
    """An open catalog. Every method raises CatalogFailed, without a password or a row in its text; CatalogAway if nothing more may be asked."""

    def list_names(self, pipeline: str) -> Mapping[str, HeldName]:
        """Returns the names that are taken in a pipeline's database; none if there is no such database."""

    def create_database(self, pipeline: str, comment: str) -> None:
        """Makes the database of a pipeline unless it is there."""

    def create_table(self, table: NamedTable) -> None:
        """Registers a table or view whose name is free."""

    def is_current(self, held: HeldName, table: NamedTable) -> bool:
        """Returns whether an entry is up to date with a table or view."""

    def replace_table(self, held: HeldName, table: NamedTable) -> None:
        """Updates an entry for a table or view, and keeps what others added to it."""

    def remove_name(self, pipeline: str, held: HeldName) -> None:
        """Removes a name. The table's files stay."""


class CatalogFailed(Exception):
    """A catalog refuses something, or cannot be reached. The message has its reason."""


class CatalogAway(CatalogFailed):
    """A catalog does not answer, or not in time. Its connection is unusable: a late answer would be taken for that to the next question."""


def open_catalog(address: CatalogAddress) -> AbstractContextManager[Catalog]:
    """Connects to the catalog when the context is entered. Raises CatalogFailed if it does not answer, or if its library is missing."""
    try:
        return address.kind.opens(address)
    except ImportError as error:
        raise CatalogFailed(f"{error.name} is not installed: pip install -r requirements.txt") from None
