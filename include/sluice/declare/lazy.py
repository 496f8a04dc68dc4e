"""`F` and `Window` for declarations: pyspark modules that load at their first use.

A DAG file imports a pipeline's declarations, and parsing it must not cost a load of pyspark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Window as Window
    from pyspark.sql import functions as F
else:

    class _Lazy:
        """Stands for a module or a class of pyspark until an attribute of it is asked for."""

        def __init__(self, module: str, attribute: str | None = None) -> None:
            self._module = module
            self._attribute = attribute

        def __getattr__(self, name: str) -> Any:
            loaded = importlib.import_module(self._module)
            return getattr(getattr(loaded, self._attribute) if self._attribute else loaded, name)

    F = _Lazy("pyspark.sql.functions")
    Window = _Lazy("pyspark.sql", "Window")

__all__ = ["F", "Window"]
