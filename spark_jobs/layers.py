"""Bring all layers up to date, one after the other: the task of a pipeline with stages="together"."""

from sluice.runs.script import run_stage_script

if __name__ == "__main__":
    run_stage_script(__file__)
