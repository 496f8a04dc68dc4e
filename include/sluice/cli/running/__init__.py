"""Commands that run a pipeline, stop it, or say what would run: run, backfill, stop, land, plan, check."""
