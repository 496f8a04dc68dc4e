"""Remove data files that no table has needed for the retention time."""

from sluice.runs.script import main

if __name__ == "__main__":
    main("vacuum")
