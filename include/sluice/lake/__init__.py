"""A lake's tables as Sluice keeps them: where they lie, how they are created, how commits are marked, what their logs say."""
