"""How long a pass takes on a device that is not there: by rows, sessions and context. Pure.

A profile has a name: `DEVICE-MODEL` (`h100-8b`), `DEVICExN-MODEL` for N of them by tensor parallelism (`h100x4-70b`),
`this-machine/target` for figures measured here, or the figures themselves (`10ms+10us`). Devices and models are data files, each
with a field that says how the numbers came about.
"""

from outrider.actors.engine.profiles.profile import Linear, Profile, Roofline
from outrider.actors.engine.profiles.profile_names import (
    DEVICE_PREFIX,
    draft_profile,
    find_profile,
    known_profiles,
)

__all__ = [
    "DEVICE_PREFIX",
    "Linear",
    "Profile",
    "Roofline",
    "draft_profile",
    "find_profile",
    "known_profiles",
]
