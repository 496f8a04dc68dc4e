"""Identity resolution: from one identifier of a person to all of that person's."""
