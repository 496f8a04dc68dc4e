"""What an erasure needs of declarations: links between identifiers, and nothing personal where it does not reach."""
