"""Lets the maker of a pipeline put deliveries into its landing folder."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sluice.declare.pipeline import Landed
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings


def make_deliveries(settings: Settings, pipeline: str, maker: ModuleType, given: Mapping[str, Any]) -> Landed:
    """Lets a maker land. given: its options. Raises UsageError for one that it does not take, SluiceError if it does not say what it landed."""
    taken = [name for name, p in inspect.signature(maker.land).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in given:
        if name not in taken:
            known = ", ".join(map(_option_flag, taken))
            raise UsageError(f"The maker of '{pipeline}' takes no {_option_flag(name)}. It takes: {known}.")
    landed = maker.land(settings.landing / pipeline, settings.truth / pipeline, **given)
    if not isinstance(landed, Landed):
        raise SluiceError(f"The maker of '{pipeline}' gave back no Landed(files, deleted, until).")
    return landed


def _option_flag(name: str) -> str:
    return f"--{name.removesuffix('_path')}"
