"""Bring the silver tables up to date: one valid row a key."""

from sluice.runs.script import main

if __name__ == "__main__":
    main("silver")
