"""What to write in Sluice for a name of Databricks. A hint about a wrong name consults this before it looks for a similar one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from sluice.errors import nearest_name_hint

_GUIDE = "docs/gold.md#for-people-from-databricks"
_INSTEAD: Mapping[str, str] = MappingProxyType({
    "dlt": "declare with sluice.declare",
    "dp": "declare with sluice.declare",
    "pyspark.pipelines": "declare with sluice.declare",
    "apply_changes": "use auto_cdc",
    "create_auto_cdc_flow": "use auto_cdc",
    "apply_changes_from_snapshot": "use auto_cdc_from_snapshot",
    "create_auto_cdc_from_snapshot_flow": "use auto_cdc_from_snapshot",
    "read": "name the inputs in reads=",
    "read_stream": "name the inputs in reads=",
    "streaming_table": "declare a Source (bronze) or a @table (silver)",
    "create_streaming_table": "declare a Source (bronze) or a @table (silver)",
})
"""By a module, function or decorator of Databricks, what to do in Sluice."""
_ARGUMENTS: Mapping[str, str] = MappingProxyType({"target": "name", "source": "reads", "partition_cols": "partition_by"})
"""By an argument of Databricks, the argument of Sluice's declarations."""


def describe_databricks_name(name: str) -> str | None:
    """Returns sentences that say what to do instead of using this name; None if it is none of Databricks'."""
    return f"'{name}' is a name of Databricks: {_INSTEAD[name]}. See {_GUIDE}" if name in _INSTEAD else None


def hint_at_argument(name: str, valid: Iterable[str]) -> str:
    """A hint to append to a message about a wrong argument: what it is called here, the most similar one, or all."""
    names = set(valid)
    here = _ARGUMENTS.get(name)
    return f" Did you mean '{here}'?" if here in names else nearest_name_hint(name, names)
