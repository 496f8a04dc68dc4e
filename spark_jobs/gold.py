"""Bring the gold tables up to date with what changed below them."""

from sluice.runs.job import main

if __name__ == "__main__":
    main("gold")
