"""What each device has counted on each day."""

from __future__ import annotations

from of_bulk.visits import BY_DEVICE
from sluice.declare import materialized_view

DEVICE_DAY = materialized_view(
    name="device_day", reads=("visits",), keys=("device", "day"), sql=BY_DEVICE, comment="Steps of a device on a day."
)
