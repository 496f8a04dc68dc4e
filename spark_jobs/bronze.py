"""Take the deliveries that are new into the bronze tables."""

from sluice.runs.script import main

if __name__ == "__main__":
    main("bronze")
