"""Which compilers the JVM of a session has: chosen when it starts, before anything is planned."""

from __future__ import annotations

from sluice.settings import Settings

_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"


def session_conf_with_all_compilers(settings: Settings) -> dict[str, str]:
    """What a process is told that is kept running, or has much to read: to use all compilers. {} where its properties file lets it anyway.

    Source: the same increment again and again in one session took 12.0 s with the quick compiler alone, 9.5 s with all of them.
    """
    given = settings.spark_property(_DRIVER_OPTIONS)
    left = [option for option in given.split() if option != _QUICK_COMPILER]
    return {_DRIVER_OPTIONS: " ".join(left)} if left != given.split() else {}
