"""Read new deliveries into the bronze tables."""

from sluice.runs.script import run_stage_script

if __name__ == "__main__":
    run_stage_script(__file__)
