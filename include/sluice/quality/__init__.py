"""Expectations evaluated to verdicts, and the rows that are set aside."""
