"""Checks quarantined rows again, and finishes killed attempts to do so."""
