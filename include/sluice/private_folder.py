"""Folders that only the user gets into who runs Sluice: what lies below them is nobody else's to read, whatever its own mode is."""

from __future__ import annotations

import os
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make a folder, of mode 0700. One that is there already and this user's is given that mode."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        folder.chmod(0o700)
