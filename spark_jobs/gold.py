"""Bring the gold tables up to date with what changed below them."""

from sluice.runs.script import main

if __name__ == "__main__":
    main("gold")
