"""Expectations made into verdicts, and the rows that are set aside."""
