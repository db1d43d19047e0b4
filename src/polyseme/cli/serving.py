"""The commands of the service: `serve` starts it, `token` lets somebody in."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

import typer

from polyseme._text import counted
from polyseme.cli.app import SERVING, EngineName, TableOptions, command, refuse, resumable
from polyseme.cli.fitting import fit
from polyseme.cli.media import extract_and_report
from polyseme.cli.output import say

if TYPE_CHECKING:
    from polyseme.features import MediaFeatures
    from polyseme.serve.collection import Collection
    from polyseme.tagger import ZeroShotTagger

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@command(SERVING)
def serve(
    models: list[Path],
    items: Path | None = None,
    media: Path | None = None,
    documents: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    tokens: Path | None = None,
    word_vectors: Path | None = None,
    max_body: int = 32,
    deadline: float = 30.0,
    watch: float = 2.0,
    log: Literal["quiet", "json"] = "quiet",
    engine: EngineName = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Answer by REST, and show the studio in the browser.

    Where a model is missing, it is learned from the items: pictures with keywords, say.
    """
    from polyseme.io.folders import check_link
    from polyseme.serve import needs_extra

    needs_extra()
    if tokens is None and host not in _LOOPBACK:
        refuse(
            f"Whoever reaches {host} could change the model; make a token first (`polyseme token "
            "tokens.json NAME`) and start with --tokens tokens.json."
        )
    for model in models:
        check_link(model)
    names = [model.resolve().name for model in models]
    if len(set(names)) < len(names):
        refuse("Models are told apart by their folders' names, which must differ.")
    learned = {
        str(model.resolve()): _learn(model, items, documents)
        for model in models
        if not model.exists()
    }
    plan: dict[str, Any] = {
        "models": [str(model.resolve()) for model in models],
        "items": items,
        "media": media,
        "documents": documents,
        "learned": learned,
        "tokens": tokens,
        "word_vectors": word_vectors,
        "max_body": max_body * 2**20,
        "deadline": deadline,
        "watch": watch,
    }
    shown = f"[{host}]" if ":" in host else host
    where = f"the studio: http://{shown}:{port}/   the API: http://{shown}:{port}/openapi.json"
    if engine == "ray":
        from polyseme.serve.replicas import replicas

        say(where)
        serving = replicas(make_app, plan, host, port, workers or 2, address)
        with serving, suppress(KeyboardInterrupt):
            Event().wait()
        return
    from polyseme.serve.process import run

    app = make_app(**plan)
    say(f"{where}   (Ctrl-C ends it)")
    run(app, host, port, json_log=log == "json")


def make_app(
    models: list[str],
    items: Path | None = None,
    media: Path | None = None,
    documents: Path | None = None,
    learned: Mapping[str, Path] | None = None,
    tokens: Path | None = None,
    word_vectors: Path | None = None,
    **limits: Any,
) -> Any:
    """Make the application that `serve` runs; workers on other machines make it again.

    `learned` has the numbers of the items for models that were learned from them just now.
    """
    from polyseme import WordVectors
    from polyseme.serve.access import Tokens
    from polyseme.serve.app import Settings, create_app
    from polyseme.serve.host import ModelHost

    known = None if tokens is None else Tokens.read(tokens)
    words = None if word_vectors is None else WordVectors.read(word_vectors)
    hosts = []
    for model in models:
        host = ModelHost(model, words=words)
        if items is not None:
            numbers = (learned or {}).get(model, items)
            folder = media if numbers == items else items
            host.collection = read_collection(
                host.now.tagger, Path(model), numbers, folder, documents
            )
        hosts.append(host)
    return create_app(hosts, Settings(tokens=known, **limits))


def read_collection(
    tagger: ZeroShotTagger, model: Path, items: Path, media: Path | None, documents: Path | None
) -> Collection:
    """Read the items that people review: a table, an extraction, or a folder of files."""
    from polyseme.cli.reading import TableReader, is_table, read_untagged, tags_of_items
    from polyseme.features import Extracted
    from polyseme.features.extraction import find_media, is_extraction
    from polyseme.serve.collection import Collection

    reader = TableReader(TableOptions(), None, tagger.normalize_labels_)
    folder = media
    place = items
    extractor = tagger.features_
    if extractor is not None and items.is_dir() and not (is_extraction(items) or is_table(items)):
        place = _extracted(items, model, extractor)
        folder = items
    X = read_untagged(place, extractor, reader)
    ids = tuple(map(str, range(X.shape[0]))) if X.ids is None else tuple(X.ids)
    tags: Any = X.tags if isinstance(X, Extracted) else None
    if documents is not None:
        records: list[dict[str, str]] = [{}] * len(ids)
        if X.ids is not None:
            id_field = "file" if isinstance(X, Extracted) else "id"
            records = [{id_field: item_id} for item_id in ids]
        tags = tags_of_items(reader.corpus(documents), records, documents, items, reader)
    files = None
    if folder is not None:
        from polyseme.features import EXTRACTORS

        suffixes = frozenset().union(*(extractor.suffixes for extractor in EXTRACTORS.values()))
        path_by_id = {file.id: file.path for file in find_media([folder], suffixes)[0]}
        files = {name: path_by_id[name] for name in ids if name in path_by_id}
        if not files:
            refuse(f"None of the items is the name of a file in '{folder}'.")
    say(f"{counted(len(ids), 'item')} to review")
    return Collection(ids, X, tags, files)


def _extracted(items: Path, model: Path, extractor: MediaFeatures) -> Path:
    """Turn a folder of files into numbers, which are kept beside the model for the next time."""
    out = model.resolve().with_name(f"{model.resolve().name}.items")
    with resumable():
        extract_and_report(items, out, extractor)
    return out


def _learn(model: Path, items: Path | None, documents: Path | None) -> Path:
    """Learn a model that is not there from the items and their keywords; give their numbers."""
    if items is None or not items.is_dir():
        refuse(f"There is no model at '{model}'; give --items a folder to learn it from.")
    from polyseme.features import EXTRACTORS
    from polyseme.features.extraction import find_media, is_extraction

    numbers = items
    if not is_extraction(items):
        counts = {
            kind: len(find_media([items], one.suffixes)[0]) for kind, one in EXTRACTORS.items()
        }
        if not any(counts.values()):
            refuse(f"There is no model at '{model}', and no picture or sound in '{items}'.")
        say(f"there is no model at '{model}' yet: it is learned from '{items}'")
        numbers = _extracted(items, model, EXTRACTORS[max(counts, key=lambda kind: counts[kind])]())
    fit(model, documents=documents, features=numbers, tables=TableOptions())
    return numbers


@command(SERVING)
def token(tokens: Path, name: str, scope: Literal["read", "review", "admin"] = "review") -> None:
    """Make a token for somebody, and print it once: only its hash is kept."""
    from polyseme.serve.access import new_token

    made = new_token(tokens, name, scope)
    say(f"'{name}' may {scope}; send it as Authorization: Bearer TOKEN. It is not shown again:")
    typer.echo(made)
