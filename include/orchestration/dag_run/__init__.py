"""What a run of a DAG is asked for: its stages, its form, its interval."""
