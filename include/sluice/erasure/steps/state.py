"""Checkpoints that no flow goes on from any more: given up by a run that was killed before it had removed them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from sluice.erasure.steps.erasing import Erasing


def state(erasing: Erasing) -> None:
    """Remove them with the state that is in them. What a flow goes on from was made anew before, where it knew anything of such people."""
    if erasing.is_done("state"):
        return
    left = list(_left(Path(erasing.workspace.checkpoints("any")).parent))
    for folder in left:
        shutil.rmtree(folder)
    erasing.done("state", files=len(left))


def _left(root: Path) -> Iterator[Path]:
    """The folders below a flow's own that its flow.json does not name."""
    for flow in sorted(path for path in root.glob("*") if path.is_dir()):
        try:
            memory = json.loads((flow / "flow.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            memory = {}
        identity = None if memory.get("reset") else memory.get("identity")
        yield from (path for path in sorted(flow.iterdir()) if path.is_dir() and path.name != identity)
