"""Finds a field in rescued data, in whatever letter case it was delivered: `User_Id` is rescued where the column is `user_id`."""

from __future__ import annotations


def rescued_text_expression(field: str, rescued: str = "`_rescued_data`") -> str:
    """The SQL expression that gives the text of a field in rescued data; NULL if it is not there. rescued: that data, as SQL.

    The field's own spelling comes before others, of which the first counts. Where the expression chooses rows to delete, its text gets into
    the table's history; `sluice.erasure.prevention` knows it there by its form.
    """
    named = field.replace("\\", "\\\\").replace("'", "\\'")
    own = f"get_json_object({rescued}, '$.{named}')"
    place = f"array_position(json_object_keys(lower({rescued})), '{named.lower()}')"
    other = f"get_json_object({rescued}, concat('$[\\'', get(json_object_keys({rescued}), {place} - 1), '\\']'))"
    return f"coalesce({own}, {other})"
