"""Values and types: the exact value of a text, what a type can hold, and the text of what does not fit."""
