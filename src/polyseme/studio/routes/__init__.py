"""Routes of our own, under `/v1`: one module for each resource.

In: requests that `app` has let through. Out: answers of a `ModelHost`. What is scored waits in the
host's queue and is answered together; all else works in a thread.
"""

from __future__ import annotations

from polyseme.studio.routes import export, labels, models, review, space, suggestions
from polyseme.studio.schemas import BatchBody, ExplainBody, NeighboursBody, SuggestBody, Thing

MODULES = (models, suggestions, space, labels, review, export)
# Bodies of routes that take several forms, for OpenAPI.
BODIES = (BatchBody, ExplainBody, NeighboursBody, SuggestBody, Thing)
