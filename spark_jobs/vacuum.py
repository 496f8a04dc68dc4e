"""Remove data files that no table has needed for the retention time."""

from sluice.runs.script import run_stage_script

if __name__ == "__main__":
    run_stage_script(__file__)
