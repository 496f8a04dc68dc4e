"""The key of the suppression list: the one that a list was made with, and no other.

A list keeps check digits of its key as a property. With another key it would recognise nobody, and erased people would come back. The key
is read without Spark, where a request is taken in.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sluice.declare.assembly.needed_secrets import SUPPRESSION_KEY
from sluice.errors import UsageError
from sluice.lake import log
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import key_check_values
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "sluice.suppressionKey"
"""The list's table property that tells whether a key is the one that it was made with.

A list that a kill left half made has none until `record_key_check`.
"""


def read_suppression_key(settings: Settings, path: str) -> bytes:
    """The key of the list at a path. It is generated only as long as no list in the lake, of any pipeline, has an entry.

    Raises UsageError where it is lost, or is not the key that the list was made with.
    """
    found = secrets.read_secret_key(settings, make=not _is_anybody_suppressed(settings))
    said = log.read_table_properties(path).get(PROPERTY) if log.is_delta_table(path) else None
    if said is not None and said != _key_check_digits(found):
        name = SUPPRESSION_KEY
        raise UsageError(
            f"The secret '{name}' is not the one that the list of erased people was made with. "
            f"Put that one back: sluice secrets set {name} --replace. {secrets.secret_loss_consequence(name)}"
        )
    return found


def record_key_check(session: SparkSession, settings: Settings, path: str) -> None:
    """Store on the list which key it is made with, unless it is there. Raises as `read_suppression_key` does."""
    check = _key_check_digits(read_suppression_key(settings, path))
    if PROPERTY not in log.read_table_properties(path):
        session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{PROPERTY}' = '{check}')")


def _is_anybody_suppressed(settings: Settings) -> bool:
    """Whether a list has an entry. A list that a kill left empty or unfinished needs no earlier key."""
    lists = (str(found.parent) for found in Path(settings.lake).glob("*/_sluice/suppression/_delta_log"))
    return any((state := log.read_table_state(path)) is not None and state.rows != 0 for path in lists)


def _key_check_digits(found: bytes) -> str:
    return ",".join(key_check_values({SUPPRESSION_KEY: found}))
