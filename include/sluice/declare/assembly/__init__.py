"""A pipeline's declarations together: loaded, checked against each other, put in order, fingerprinted, asked about."""
