"""Erasing a person: the request, its propagation to every table, and what keeps the person out afterwards."""
