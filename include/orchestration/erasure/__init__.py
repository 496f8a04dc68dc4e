"""The DAG `erasure`: its tasks, its form, its approval."""
