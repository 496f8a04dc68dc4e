"""Secret files: one a name, mode 0600, below SLUICE_SECRETS. A secret is never an argument, a setting or a log line."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sluice.errors import UsageError
from sluice.settings import Settings

SUPPRESSION_KEY = "suppression.key"


def ensure(settings: Settings, name: str = SUPPRESSION_KEY) -> Path:
    """The file of a generated secret of 32 bytes (hex); made with mode 0600 when it is not there."""
    settings.secrets.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = settings.secrets / name
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def key(settings: Settings, name: str = SUPPRESSION_KEY) -> bytes:
    """A secret's bytes. Raises UsageError where others may read the file, or it is empty."""
    path = ensure(settings, name)
    if path.stat().st_mode & 0o077:
        raise UsageError(f"Secret file {path} can be read by others. Run: chmod 600 {path}")
    value = path.read_bytes().strip()
    if not value:
        raise UsageError(f"Secret file {path} is empty. Put the lost key back; a new one would let erased people return.")
    return value
