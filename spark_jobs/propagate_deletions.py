"""Take the rows of erased people out of every table."""

from sluice.runs.script import main

if __name__ == "__main__":
    main("propagate_deletions")
