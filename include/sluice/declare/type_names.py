"""Spark's types by the names that `DataType.typeName()` gives, without what is in brackets."""

TEXT_TYPES = ("string", "char", "varchar")
WHOLE_NUMBER_TYPES = ("byte", "short", "integer", "long")
