"""Asks before something is repaired that cannot be taken back."""

from __future__ import annotations

import sys

import typer

from sluice.errors import UsageError


def confirm_repair(what: str, question: str, yes: bool) -> None:
    """Asks at the terminal, unless somebody gave --yes, and exits with 1 if the answer is no. Raises UsageError if there is no terminal.

    what: what is done, as the error says it: "Repairing logs of 'gym'".
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{what} asks for confirmation, and there is no terminal. Give --yes.")
    if not typer.confirm(question):
        raise typer.Exit(1)
