"""Carry out requests to erase people: take their rows out, remove the bytes when that is due, scan, and issue certificates."""

from sluice.runs.erasing import run_erase_script

if __name__ == "__main__":
    run_erase_script()
