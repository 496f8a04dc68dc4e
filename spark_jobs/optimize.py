"""Rewrite small files and lay them out by the declared columns."""

from sluice.runs.script import main

if __name__ == "__main__":
    main("optimize")
