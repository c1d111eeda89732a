"""Every selector, by name. The coordinator, the checks of requests and the configuration ask here; nobody else lists them."""

from __future__ import annotations

from outrider.actors.speculation import selectors
from outrider.actors.speculation.plugins import discover
from outrider.actors.speculation.selector_spec import SelectorSpec

GROUP = "outrider.selectors"
"""Entry points under which other packages offer selectors."""

SELECTORS = discover(selectors, SelectorSpec, group=GROUP)
"""Every selector that an option can name."""
