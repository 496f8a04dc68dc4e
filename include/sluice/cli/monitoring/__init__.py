"""Commands that show the state and the history of a pipeline, such as status, history, ledger and runs."""
