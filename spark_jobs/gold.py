"""Bring the gold tables up to date with what changed below them."""

from sluice.runs.script import run_stage_script

if __name__ == "__main__":
    run_stage_script(__file__)
