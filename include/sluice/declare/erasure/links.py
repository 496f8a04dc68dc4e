"""Which identifiers belong to whom, and from when on: what an erasure follows from one identifier of a person to all of them."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.declare.datasets.decorators import find_calling_module
from sluice.declare.names import check_declared_name
from sluice.errors import DeclarationError

Of = tuple[str, str]
"""A column of a table, and the domain that its values are identifiers of."""


@dataclass(frozen=True)
class Link:
    """A row of `table` says that from `since` on, until the next row of that identifier, the identifier is that person's.

    person, identifier: (column, domain). since: a TIMESTAMP column; None: it is the person's for ever, as an e-mail address is. Identifiers of
    a domain that has a link with `since` change hands, and tables of such subjects say by `subject_at` of what time a row tells.
    """

    table: str
    person: Of
    identifier: Of
    since: str | None = None
    declared_in: str = ""

    def __post_init__(self) -> None:
        check_declared_name(self.table, "The table of a Link")
        object.__setattr__(self, "declared_in", self.declared_in or find_calling_module())
        for of in ("person", "identifier"):
            if not is_column_domain_pair(getattr(self, of)):
                raise DeclarationError(f"{self.owner}: {of} is a column and its domain, as in ('user_id', 'user_id').")
        if self.person[1] == self.identifier[1]:
            raise DeclarationError(f"{self.owner}: person and identifier are of one domain, '{self.person[1]}'.")

    @property
    def owner(self) -> str:
        """How messages call it."""
        return f"Link of table '{self.table}'"

    @property
    def name(self) -> str:
        """By what it is known among the links, which are declared without a name."""
        return f"{self.table}.{self.identifier[0]}"

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.declared_in


@dataclass(frozen=True)
class ErasureRequests:
    """Rows of a source, or of a temporary view of it, that ask for the erasure of whom they name.

    where: which rows, as SQL. identifier: (column, domain). What they name is asked for in every stage `propagate_deletions`.
    """

    reads: str
    where: str
    identifier: Of
    declared_in: str = ""

    @property
    def owner(self) -> str:
        """How messages call it."""
        return f"erasure_requests of '{self.reads}'"

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.declared_in


def erasure_requests(*, reads: str, where: str, identifier: Of) -> ErasureRequests:
    """Declare that rows ask for the erasure of whom they name. See `ErasureRequests`."""
    made = ErasureRequests(reads=reads, where=where, identifier=identifier, declared_in=find_calling_module())
    if not where.strip():
        raise DeclarationError(f"{made.owner}: where is SQL over a row, as in \"change = 'delete'\".")
    if not is_column_domain_pair(identifier):
        raise DeclarationError(f"{made.owner}: identifier is a column and its domain, as in ('user_id', 'user_id').")
    return made


def is_column_domain_pair(of: object) -> bool:
    """Whether it is a column and a domain."""
    return isinstance(of, tuple) and len(of) == 2 and all(isinstance(one, str) and one for one in of)
