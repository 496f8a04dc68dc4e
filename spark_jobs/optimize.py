"""Rewrite small files and lay them out by the declared columns."""

from sluice.runs.script import run_stage_script

if __name__ == "__main__":
    run_stage_script(__file__)
