"""How rows become JSON texts that are kept."""

from __future__ import annotations

_SECOND = "yyyy-MM-dd'T'HH:mm:ss"
WHOLE_INSTANTS = {"timestampFormat": f"{_SECOND}.SSSSSSXXX", "timestampNTZFormat": f"{_SECOND}.SSSSSS"}
"""Options of `to_json` with which a text has instants to the microsecond. Without them Spark cuts them off at the millisecond."""
