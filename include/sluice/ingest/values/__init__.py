"""Values and types: what a text says exactly, what a type can hold, and the text of what does not fit."""
