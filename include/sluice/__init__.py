"""Sluice: a Delta lakehouse kept up to date by triggered incremental batches, on open source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluice.autoload.start import autoload_to_table

__version__ = "0.1.0"
__all__ = ["autoload_to_table"]


def __getattr__(name: str) -> Any:
    """Loads what needs Spark at its first use only: `import sluice` does not."""
    if name != "autoload_to_table":
        raise AttributeError(f"module 'sluice' has no attribute '{name}'")
    from importlib import import_module

    return import_module("sluice.autoload.start").autoload_to_table
