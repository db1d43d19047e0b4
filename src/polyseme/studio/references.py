"""Resolve references of other programs to items: data URLs, names, addresses, or tags.

In: a text. Out: the item's features, or the known tags. Nothing is ever fetched: an address stands
for the item of the collection whose name it ends with, or for nothing.

Terms: a *reference* is whatever another program sends to say which item it means.
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
from polyseme.studio.schemas import MOST_TAGS, TAG_LETTERS

_DATA_URL = re.compile(r"data:[\w.+/-]{0,100}(;[\w=.+-]{0,100}){0,4};base64,", re.ASCII)
# What Label Studio puts before the name of a file that is uploaded to it.
_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-")
_MOST_LETTERS = 4096  # of a reference that is looked for
_TAG_SEPARATORS = re.compile(r"[,;\r\n\t]+")


def data_of(reference: str) -> bytes | None:
    """Return the content of a data URL; None for other texts."""
    if not reference.startswith("data:"):
        return None
    head = _DATA_URL.match(reference)
    try:
        if head is not None:
            content = reference[head.end() :]
            return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InputError("A data URL must be data:TYPE;base64, followed by the content.")


def item_of(collection: Collection | None, reference: str) -> str | None:
    """Return the item of a collection that a name, a path or an address stands for."""
    if collection is None or len(reference) > _MOST_LETTERS:
        return None
    for name in _possible_names(reference):
        if name in collection:
            return name
    return None


def _possible_names(reference: str) -> Iterator[str]:
    """Yield the names that the item of a reference may have, the most exact first.

    Of `http://host/a/b.png` these are the whole, `a/b.png` and `b.png`.
    """
    yield reference
    try:
        address = urlsplit(reference)
        # Label Studio's local files: /data/local-files/?d=PATH
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
        file_name = steps[-1]
        prefix = _UPLOAD_PREFIX.match(file_name)
        if prefix is not None:
            yield file_name[prefix.end() :]


async def features_of_reference(host: ModelHost, reference: str) -> ItemFeatures:
    """Return the features of a data URL's content, or of an item of the collection.

    Any other reference is an `UnknownItemError`.
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
    """Yield the labels that tags of a text stand for, each once, `MOST_TAGS` at the most.

    Other words are passed over, and not counted as unknown tags: the text may be of any kind.
    """
    snapshot = host.snapshot
    labels = set[str]()
    for tag in _TAG_SEPARATORS.split(text):
        name = tag.strip()
        if not name or len(name) > TAG_LETTERS:
            continue
        label = snapshot.find_label(name)
        if label is None or label in labels:
            continue
        if len(labels) < MOST_TAGS:
            labels.add(label)
            yield label
