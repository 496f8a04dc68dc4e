"""Commands that tell how a pipeline stands and what happened: status, history, ledger, runs."""
