"""Merges Compose files without Compose: a later file adds to an earlier one, and `!override` replaces what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
ON_VOLUME = ("docker-compose.yaml",)
ON_STORE = ("docker-compose.yaml", "docker-compose.store.yaml")


class Override(list[Any]):
    """A list that takes the place of an earlier file's."""


class ComposeLoader(yaml.SafeLoader):
    """Reads YAML with the tag of Compose."""


ComposeLoader.add_constructor("!override", lambda loader, node: Override(loader.construct_sequence(node, deep=True)))


def read_compose_services(files: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The services of the files by name. Variables are left as they are."""
    services: dict[str, Any] = {}
    for name in files:
        said = yaml.load((ROOT / name).read_text(encoding="utf-8"), Loader=ComposeLoader)
        services = _add(services, said["services"])
    return services


def _add(earlier: Any, later: Any) -> Any:
    if isinstance(earlier, dict) and isinstance(later, dict):
        return {**earlier, **{name: _add(earlier[name], said) if name in earlier else said for name, said in later.items()}}
    assert not isinstance(later, list) or isinstance(later, Override), f"Compose would add {later} to {earlier}: say !override"
    return later
