"""Unit tests of declared tables: rows go in; what is stored and what is refused comes out. Needs no lake and no Airflow.

def test_a_negative_reading_is_set_aside() -> None:
    result = run(heart_rate, readings=[{"device_id": 7, "time": 0.0, "heartrate": -1.0}])
    assert result.rows == [] and result.failed == {"positive_heart_rate": 1}
"""

from sluice.testing.running import Result, run, session

__all__ = ["Result", "run", "session"]
