"""Secret files: one per name, mode 0600, below SLUICE_SECRETS. A secret is never an argument, a setting or a log line.

If Airflow's secret back end holds the secrets, a job finds those it needs in a similar folder of its own, SLUICE_SECRETS_GIVEN.

A suppression list works only with the key it was made with, and keeps check digits of that key as a table property. With another key it
would recognise nobody, and erased people would come back. The key can be read without Spark, as receiving a request does.
"""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import TableNotFoundError

from sluice import delta_log
from sluice.declare.assembly.subjects import CERTIFICATE_KEY, SUPPRESSION_KEY
from sluice.declare.field_values import check_secret_name
from sluice.declare.privacy.treat import PSEUDONYM_KEY
from sluice.durable_files import PRIVATE, write_file_durably
from sluice.errors import UsageError, nearest_name_hint
from sluice.lake import log
from sluice.locations import Location, locate
from sluice.own_records import SUPPRESSION, name_own_record
from sluice.printable import count_noun
from sluice.privacy.pseudonyms import key_check_values
from sluice.private_files import find_secret_file_problem, read_secret_file
from sluice.settings import Settings
from sluice.table_properties import PSEUDONYM_KEYS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MADE = (SUPPRESSION_KEY, CERTIFICATE_KEY, PSEUDONYM_KEY)
"""Keys that are generated at random if they do not exist."""
LOSSES_BY_SECRET = {
    SUPPRESSION_KEY: "Without it erased people are no longer recognised, and come back with the next delivery",
    CERTIFICATE_KEY: "Without it nobody can tell a certificate of an erasure from a forged one",
    PSEUDONYM_KEY: "Without it new rows cannot get the pseudonyms of existing rows",
}
LEAST = 32
"""The least number of characters of a key; 32 hex digits are 128 bits."""
_LEAST_KINDS = 8
"""The least number of different characters, and of different steps between neighbours, in a key. One in ten
million random keys of 32 hex digits has fewer."""
_DIFFERENT_PAIRS = 0.6
"""The least share of different pairs among its pairs of neighbours. A text written twice has half; a random key has nine tenths."""
_LOOKED_AT = 100
"""How many characters are examined: beyond these, the possible pairs of hex digits begin to run out."""
_TO_MAKE_ONE = "To make one: openssl rand -hex 32"


def find_secret(settings: Settings, name: str) -> Location | None:
    """The path of a secret among those given to this job, or below SLUICE_SECRETS. None if it is in neither."""
    path = settings.secret(name)
    return path if path.is_file() else None


def ensure_secret(settings: Settings, name: str = SUPPRESSION_KEY) -> Location:
    """The file of a secret of 32 bytes (hex), which is generated if it does not exist."""
    present = find_secret(settings, name)
    if present:
        return present
    _make_secrets_folder(settings)
    path = settings.secrets / name
    with contextlib.suppress(FileExistsError):  # another process made it first
        write_file_durably(path, secrets.token_hex(32).encode(), PRIVATE, overwrite=False)
    return path


def read_secret_key(settings: Settings, name: str = SUPPRESSION_KEY, make: bool = True) -> bytes:
    """Returns a key's bytes. make: whether to generate a missing key. One that was used is never generated: it would be another key.

    Raises UsageError if others may read or replace the file, if the key can be guessed, or if it is missing and must not be generated.
    """
    if find_secret(settings, name) is None and not (make and _is_new_key(settings, name)):
        raise UsageError(
            f"The secret '{name}' is not in {settings.secrets} any more. Put it back: sluice secrets set {name}. {secret_loss_consequence(name)}"
        )
    path = ensure_secret(settings, name)
    value = read_secret_file(path).strip()
    if not value:
        what = f" {LOSSES_BY_SECRET[name]}." if name in LOSSES_BY_SECRET else ""
        raise UsageError(f"Secret file {path} is empty. Put the lost key back; a new one is another key.{what}")
    check_key_strength(name, value)
    return value


def _is_new_key(settings: Settings, name: str) -> bool:
    """Whether no pseudonym of a table in this lake was made with a key of this name, as far as anybody can tell."""
    if settings.secrets_given is not None and not settings.secrets_given.is_dir():
        return False  # it was given to this job, and is gone
    logs = (found for root in settings.table_roots.values() for found in root.glob(f"*/*/*/{delta_log.LOG}"))
    return not any(name in list_marked_keys(_read_key_marks(str(found.parent))) for found in logs)


def _read_key_marks(path: str) -> str:
    try:
        return log.read_table_properties(path).get(PSEUDONYM_KEYS, "")
    except TableNotFoundError:
        return ""  # its first commit is not there yet, as when a flow beside this one makes it, or was never made


def list_marked_keys(marks: str) -> list[str]:
    """The names of the keys in a table's property PSEUDONYM_KEYS, which is "name=8 hex digits", with commas."""
    return [mark.split("=")[0] for mark in marks.split(",") if mark]


def check_key_strength(name: str, value: bytes) -> None:
    """Raises UsageError if a value is not fit to be a key: too short, or less varied than a random one."""
    if len(value) < LEAST:
        raise UsageError(f"Secret '{name}' has {count_noun(len(value), 'character')}; a key has {LEAST} at least. {_TO_MAKE_ONE}")
    pairs = list(pairwise(value[:_LOOKED_AT]))
    steps = {second - first for first, second in pairs}
    if len(set(value)) < _LEAST_KINDS or len(steps) < _LEAST_KINDS or len(set(pairs)) < _DIFFERENT_PAIRS * len(pairs):
        raise UsageError(f"Secret '{name}' can be guessed: it repeats itself, or counts up. {_TO_MAKE_ONE}")


def store_secret(settings: Settings, name: str, value: bytes, replace: bool = False) -> Location:
    """Writes a secret. Raises UsageError for a wrong name, an empty value, or an existing secret that must not be replaced."""
    check_secret_name(name)
    if not value.strip():
        raise UsageError(f"No value for the secret '{name}' came from standard input.")
    if name.endswith(".key"):
        check_key_strength(name, value.strip())
    _make_secrets_folder(settings)
    path = settings.secrets / name
    try:
        write_file_durably(path, value, PRIVATE, overwrite=replace)
    except FileExistsError:
        raise UsageError(
            f"There is a secret '{name}' already. --replace puts this value in its place, for ever. {secret_loss_consequence(name)}"
        ) from None
    return path


def inspect_secret_files(settings: Settings) -> list[dict[str, Any]]:
    """For every secret file: its name, when it was last changed, and why it would be refused, if so."""
    found = []
    for path in sorted(settings.secrets.glob("*")) if settings.secrets.is_dir() else []:
        if path.is_file() and not path.name.startswith("."):
            status = path.stat()
            changed = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
            problem = find_secret_file_problem(path)
            found.append({"name": path.name, "changed_at": changed, "private": problem is None, "problem": problem})
    return found


def delete_secret(settings: Settings, name: str) -> Location:
    """Removes a secret's file. Raises UsageError with the nearest name if there is none."""
    path = require_known_secret(settings, name)
    path.unlink()
    return path


def require_known_secret(settings: Settings, name: str) -> Location:
    """The path of a secret's file below SLUICE_SECRETS. Raises UsageError with the nearest name if there is none."""
    names = [row["name"] for row in inspect_secret_files(settings)]
    if name not in names:
        raise UsageError(f"There is no secret '{name}' in {settings.secrets}.{nearest_name_hint(name, names)}")
    return settings.secrets / name


def secret_loss_consequence(name: str) -> str:
    """Says in a sentence what is lost with a secret."""
    other = (
        "Whatever was made with it cannot be made again" if name.endswith(".key") else "What uses it fails until it is set again"
    )
    return f"{LOSSES_BY_SECRET.get(name, other)}."


def _make_secrets_folder(settings: Settings) -> None:
    settings.secrets.mkdir(parents=True, exist_ok=True, mode=0o700)


KEY_PROPERTY = "sluice.suppressionKey"
"""The list's table property by which a key is recognised as the one that it was made with.

A list that was left incomplete by a kill lacks it until `record_key_check`.
"""


def read_suppression_key(settings: Settings, path: str) -> bytes:
    """Returns the key of the list at a path. It is generated only while no list in the lake, of any pipeline, has an entry.

    Raises UsageError if the key is lost, or is not the one that the list was made with.
    """
    found = read_secret_key(settings, make=not _is_anybody_suppressed(settings))
    said = log.read_table_properties(path).get(KEY_PROPERTY) if delta_log.is_delta_table(path) else None
    if said is not None and said != _key_check_digits(found):
        name = SUPPRESSION_KEY
        raise UsageError(
            f"The secret '{name}' is not the one that the list of erased people was made with. "
            f"Put that one back: sluice secrets set {name} --replace. {secret_loss_consequence(name)}"
        )
    return found


def record_key_check(session: SparkSession, settings: Settings, path: str) -> None:
    """Stores on the list the check digits of its key, unless they are there. Raises as `read_suppression_key` does."""
    check = _key_check_digits(read_suppression_key(settings, path))
    if KEY_PROPERTY not in log.read_table_properties(path):
        session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{KEY_PROPERTY}' = '{check}')")


def _is_anybody_suppressed(settings: Settings) -> bool:
    """Whether any list has an entry. A list that a kill left empty or unfinished needs no earlier key."""
    lists = (str(found.parent) for found in locate(settings.lake).glob(f"*/{name_own_record(SUPPRESSION)}/_delta_log"))
    return any((state := log.read_table_state(path)) is not None and state.rows != 0 for path in lists)


def _key_check_digits(found: bytes) -> str:
    return ",".join(key_check_values({SUPPRESSION_KEY: found}))
