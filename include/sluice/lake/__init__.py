"""The tables of a lake as Sluice keeps them: where they are, how they are made, how commits are marked, what their logs say."""
