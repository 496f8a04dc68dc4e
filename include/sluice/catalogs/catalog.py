"""What a catalog is told of a table or a view, what it says that it holds, and what each kind of catalog can do."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sluice.catalog_address import CatalogAddress

PIPELINE = "sluice.pipeline"
"""The property by which a catalog's entry is Sluice's: the name of the pipeline that it belongs to."""
PLACE = "sluice.place"
"""The property that says where the table lies, or of a view the pipeline's folder: by it one lake's entries are told from another's."""


@dataclass(frozen=True)
class NamedColumn:
    """A column. type: as Delta's log has it, a name or an object."""

    name: str
    type: str | Mapping[str, Any]
    comment: str = ""


@dataclass(frozen=True)
class NamedTable:
    """A Delta table to register, or a view. location: a URL; of a view the folder of its pipeline. query: of a view, its text; else None.

    Its database is called like the pipeline.
    """

    pipeline: str
    name: str
    location: str
    columns: tuple[NamedColumn, ...]
    comment: str = ""
    query: str | None = None


@dataclass(frozen=True)
class HeldName:
    """A name that is taken in a catalog. pipeline: of Sluice, whose it is; None: somebody else's. location: as of NamedTable.

    entry: what the catalog has there, as it says it.
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
        """Returns whether an entry says all that is to be said of a table or view."""

    def replace_table(self, held: HeldName, table: NamedTable) -> None:
        """Lets an entry say what is to be said of a table or view, and keeps what others added to it."""

    def remove_name(self, pipeline: str, held: HeldName) -> None:
        """Takes a name away. The table's files stay."""


class CatalogFailed(Exception):
    """A catalog refuses something, or cannot be asked. The message says what it said."""


class CatalogAway(CatalogFailed):
    """A catalog does not answer, or not in time. Its connection is of no more use: a late answer would be taken for that to the next question."""


def open_catalog(address: CatalogAddress) -> AbstractContextManager[Catalog]:
    """Connects to the catalog when the context is entered. Raises CatalogFailed if nobody answers, or if the library for it is missing."""
    module, _, function = address.kind.opens.partition(":")
    try:
        opened: AbstractContextManager[Catalog] = getattr(importlib.import_module(module), function)(address)
    except ImportError as error:
        raise CatalogFailed(f"{error.name} is not installed: pip install -r requirements.txt") from None
    return opened
