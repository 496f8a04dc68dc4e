"""Values and types: what a text says exactly, what a type holds, and the text of what does not fit."""
