"""Sluice: a Delta lakehouse kept up to date by triggered incremental batches, on open source."""

__version__ = "0.1.0"
