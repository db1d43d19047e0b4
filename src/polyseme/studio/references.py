"""Resolve references of other programs to items: data URLs, names, addresses, or tags.

In: a text. Out: the item's features, or the known tags. Nothing is ever fetched: an address stands
for the item of the collection whose name it ends with, or for nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

from polyseme.base.validation import InputError
from polyseme.studio.collection import Collection, UnknownItemError
from polyseme.studio.host import ItemFeatures, ModelHost
from polyseme.studio.http import extract_file
from polyseme.studio.schemas import MOST_TAGS

_DATA = re.compile(r"data:[\w.+/-]{0,100}(;[\w=.+-]{0,100}){0,4};base64,", re.ASCII)
# What Label Studio puts before the name of a file that is uploaded to it.
_UPLOADED = re.compile(r"[0-9a-f]{8}-")
_LONGEST = 4096
_BETWEEN = re.compile(r"[,;\r\n\t]+")


def data_of(reference: str) -> bytes | None:
    """Return the content of a data URL; None for other texts."""
    if not reference.startswith("data:"):
        return None
    start = _DATA.match(reference)
    try:
        if start is not None:
            return base64.b64decode(reference[start.end() :], validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InputError("A data URL must be data:TYPE;base64, followed by the content.")


def item_of(collection: Collection | None, reference: str) -> str | None:
    """Return the item of a collection that a name, a path or an address stands for."""
    if collection is None or len(reference) > _LONGEST:
        return None
    for name in _names(reference):
        if name in collection:
            return name
    return None


def _names(reference: str) -> Iterator[str]:
    """Yield the names that an item may have, the most exact first."""
    yield reference
    try:
        address = urlsplit(reference)
        # Label Studio's local files.
        paths = parse_qs(address.query).get("d", [])
        paths = [*paths, unquote(address.path)]
    except ValueError:
        return
    for path in paths:
        segments = path.replace("\\", "/").split("/")
        steps = [segment for segment in segments if segment]
        for first in range(len(steps)):
            yield "/".join(steps[first:])
        if not steps:
            continue
        prefix = _UPLOADED.match(steps[-1])
        if prefix is not None:
            yield steps[-1][prefix.end() :]


async def features_of_reference(host: ModelHost, reference: str) -> ItemFeatures:
    """Return the features of a reference: of a data URL's content, or of an item.

    Parameters
    ----------
    host : ModelHost
    reference : str
    """
    data = data_of(reference)
    if data is not None:
        return await extract_file(data, host)
    name = item_of(host.collection, reference)
    if name is None or host.collection is None:
        raise UnknownItemError(
            f"'{reference[:60]}' is no item of the collection, and nothing is fetched from "
            "elsewhere; send the content as a data URL."
        )
    return host.collection.features_of(name)


def known_tags(host: ModelHost, text: str) -> Iterator[str]:
    """Yield the tags of a text that a model knows; others are not taken for tags of people's."""
    snapshot = host.snapshot
    labels = set[str]()
    for tag in _BETWEEN.split(text):
        name = tag.strip()
        if not name or len(name) > 200:
            continue
        label = snapshot.find_label(name)
        if label is None or label in labels:
            continue
        if len(labels) < MOST_TAGS:
            labels.add(label)
            yield label
