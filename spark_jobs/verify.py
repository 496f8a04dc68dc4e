"""Compare tables with a full recompute from bronze: one in turn, or all."""

from sluice.runs.script import main

if __name__ == "__main__":
    main("verify")
