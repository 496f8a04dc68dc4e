"""What Py4J has found in the JVM by its name is kept, instead of asked for at each use.

Py4J asks anew for each part of each name, each time: PySpark's `F.col("a")` is three requests, of which two only find `functions` and `col`. And
a name that is a package's, or that Py4J tries in each imported package, is looked up in all jars, of which there are three hundred. An increment
asks thousands of times, for some hundred names. Which name is a package, a class or a method stays the same as long as the JVM lives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def keep_java_lookups() -> None:
    """Make Py4J keep the packages, classes and static methods that it finds, for as long as its view of the JVM lives.

    Values of static fields are asked for each time: they may change. Calling this again changes nothing.
    """
    from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

    kept = (JavaPackage, JavaClass, JavaMember)
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _keep_answers(kind.__getattr__, kept)


def _keep_answers(ask: Callable[[Any, str], Any], kept: tuple[type, ...]) -> Callable[[Any, str], Any]:
    @functools.wraps(ask)
    def find(holder: Any, name: str) -> Any:
        found = ask(holder, name)
        if isinstance(found, kept):
            vars(holder)[name] = found  # Python calls __getattr__ only for what is not there
        return found

    return find
