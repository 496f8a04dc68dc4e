"""Evaluates expectations into verdicts, and keeps the rows that are set aside."""
