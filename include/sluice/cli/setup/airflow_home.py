"""`sluice up` and `sluice down`: the local Airflow with its UI, in the background."""

from __future__ import annotations

from rich.console import Console

from orchestration.local import DAG_ID as ERASURES
from orchestration.local import LOGIN, LocalAirflow, address, airflow_line, home, password, running_instance, stop_running
from sluice.settings import Settings, pipeline_names


def up(settings: Settings, console: Console) -> None:
    """Start Airflow and leave it running; where it runs already, say where.

    Raises SluiceError where it does not start.
    """
    running = running_instance(settings)
    if running:
        console.print(f"Airflow runs already at {address(running[1])}, log in as {LOGIN} / {password(settings)}", soft_wrap=True)
        return
    with console.status("Starting Airflow ..."):
        client = LocalAirflow(settings, with_parent=False).start()
    console.print(f"Airflow is at {client.address}", highlight=False)
    console.print(f"  log in as  {LOGIN} / {password(settings)}", highlight=False)
    console.print(f"  log files  {home(settings) / 'logs'}", highlight=False)
    # Both lines may be set up; each command says which it means.
    before, after = ("AIRFLOW=2 ", " AIRFLOW=2") if airflow_line() == 2 else ("", "")
    for name in (*pipeline_names(settings), ERASURES):
        console.print(f"  schedule   {before}./airflow dags unpause {name}", highlight=False)
    console.print(f"  stop       make down{after}", highlight=False)


def down(settings: Settings, console: Console) -> None:
    """Stop the Airflow that `up` started, with whatever it runs."""
    console.print("Airflow has stopped." if stop_running(settings) else "Airflow does not run.")
