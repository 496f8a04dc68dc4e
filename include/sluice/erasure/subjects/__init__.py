"""Who is meant: identifiers, and the closure from one of them to all that are the same person's."""
