"""Commands that make something run, stop it, or say what would run: run, backfill, stop, land, plan, check."""
