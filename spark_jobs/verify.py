"""Compare tables with a full recompute from bronze: one in turn, or all."""

from sluice.runs.script import run_stage_script

if __name__ == "__main__":
    run_stage_script(__file__)
