"""Carry out requests to erase people: remove their rows, and the bytes when they are due, scan, and issue certificates."""

from sluice.runs.erasure_jobs import run_erase_script

if __name__ == "__main__":
    run_erase_script()
