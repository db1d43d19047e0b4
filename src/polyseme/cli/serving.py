"""The commands of the service: `serve` starts it, `token` makes a token for a user.

A token has a scope: *read* may rank and look, *review* also answer, *admin* also change the
vocabulary and the model. `SERVING` is where the help lists these commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

import typer

from polyseme.base.text import counted
from polyseme.cli.app import SERVING, EngineName, TableOptions, command, refuse, resumable
from polyseme.cli.fitting import fit
from polyseme.cli.media import extract_and_report
from polyseme.cli.output import say

if TYPE_CHECKING:
    from polyseme.media import MediaFeatures
    from polyseme.studio.collection import Collection
    from polyseme.tagger import ZeroShotTagger

_LOOPBACK = ("127.0.0.1", "localhost", "::1")  # addresses that only this machine reaches


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
    """Serve models by REST, and the studio in the browser.

    A missing model is learned from the items, such as pictures with keywords.
    """
    from polyseme.storage.atomic_files import check_not_dangling
    from polyseme.studio import needs_extra

    needs_extra()
    if tokens is None and host not in _LOOPBACK:
        refuse(
            f"Anyone who reaches {host} could change the model; make a token first (`polyseme "
            "token tokens.json NAME`) and start with --tokens tokens.json."
        )
    for model in models:
        check_not_dangling(model)
    folders = [model.resolve() for model in models]
    names = {folder.name for folder in folders}
    if len(names) < len(folders):
        refuse("Models are known by the names of their folders, which must differ.")
    fitted_features: dict[str, Path] = {}
    for model, folder in zip(models, folders, strict=True):
        if not model.exists():
            fitted_features[str(folder)] = _fit_missing(model, items, documents)
    # Replicas on other machines receive these and make the application themselves.
    app_arguments: dict[str, Any] = {
        "models": list(map(str, folders)),
        "items": items,
        "media": media,
        "documents": documents,
        "fitted_features": fitted_features,
        "tokens": tokens,
        "word_vectors": word_vectors,
        "max_body": max_body * 2**20,  # bytes
        "deadline": deadline,
        "watch": watch,
    }
    url_host = f"[{host}]" if ":" in host else host
    url = f"http://{url_host}:{port}"
    addresses = f"the studio: {url}/   the API: {url}/openapi.json"
    if engine == "ray":
        from polyseme.studio.replicas import replicas

        say(addresses)
        serving = replicas(make_app, app_arguments, host, port, workers or 2, address)
        with serving, suppress(KeyboardInterrupt):
            Event().wait()
        return
    from polyseme.studio.process import run

    app = make_app(**app_arguments)
    say(f"{addresses}   (Ctrl-C ends it)")
    run(app, host, port, json_log=log == "json")


def make_app(
    models: list[str],
    items: Path | None = None,
    media: Path | None = None,
    documents: Path | None = None,
    fitted_features: Mapping[str, Path] | None = None,
    tokens: Path | None = None,
    word_vectors: Path | None = None,
    **limits: Any,
) -> Any:
    """Make the application that `serve` runs; replicas on other machines make it again.

    Parameters
    ----------
    models : list of str
        Folders of models, as absolute paths.
    items, media, documents, tokens, word_vectors : Path or None
        As the options of `serve`.
    fitted_features : dict of str to Path, optional
        For models that were fitted to the items just now: where the features of the items are.
    limits
        Of `polyseme.studio.app.Settings`.

    Returns
    -------
    ASGI application
    """
    from polyseme import WordVectors
    from polyseme.studio.access import Tokens
    from polyseme.studio.app import Settings, create_app
    from polyseme.studio.host import ModelHost

    known_tokens = None if tokens is None else Tokens.read(tokens)
    words = None if word_vectors is None else WordVectors.read(word_vectors)
    features_by_model = fitted_features or {}
    hosts = []
    for model in models:
        host = ModelHost(model, words=words)
        if items is not None:
            # Where the items were extracted just now, they are themselves the media to show.
            features = features_by_model.get(model, items)
            media_folder = media if features == items else items
            tagger = host.snapshot.tagger
            host.collection = read_collection(
                tagger, Path(model), features, media_folder, documents
            )
        hosts.append(host)
    settings = Settings(tokens=known_tokens, **limits)
    return create_app(hosts, settings)


def read_collection(
    tagger: ZeroShotTagger, model: Path, items: Path, media: Path | None, documents: Path | None
) -> Collection:
    """Read the items that people review: a table, an extraction, or a folder of files.

    Parameters
    ----------
    tagger : ZeroShotTagger
    model : Path
        Its folder; a folder of files is extracted to one beside it.
    items : Path
    media : Path or None
        The files of an extraction or table, for people to see.
    documents : Path or None
        The tags that items have; by default the keywords of files.
    """
    from polyseme.cli.inputs import (
        TableReader,
        is_table,
        item_heads,
        read_untagged,
        tags_of_items,
    )
    from polyseme.media import Extracted
    from polyseme.media.extraction import is_extraction
    from polyseme.studio.collection import Collection

    reader = TableReader(TableOptions(), None, tagger.normalize_labels_)
    media_folder = media
    path = items
    extractor = tagger.features_
    has_features = is_extraction(items) or is_table(items)
    if extractor is not None and items.is_dir() and not has_features:
        path = _extract(items, model, extractor)
        media_folder = items
    X = read_untagged(path, extractor, reader)
    ids = X.ids
    if ids is None:
        ids = [str(row) for row in range(X.shape[0])]
    tags: Any = None
    if documents is not None:
        corpus = reader.corpus(documents)
        tags = tags_of_items(corpus, item_heads(X), documents, items, reader)
    elif isinstance(X, Extracted):
        tags = X.tags
    files = None
    if media_folder is not None:
        files = _find_files(media_folder, ids)
    say(f"{counted(len(ids), 'item')} to review")
    return Collection(tuple(ids), X, tags, files)


def _find_files(folder: Path, ids: Sequence[str]) -> dict[str, Path]:
    """Return the media file of each item that has one, by the item's id."""
    from polyseme.media import media_suffixes
    from polyseme.media.extraction import find_media

    media, _ = find_media([folder], media_suffixes())
    path_by_id = {file.id: file.path for file in media}
    files = {item_id: path_by_id[item_id] for item_id in ids if item_id in path_by_id}
    if not files:
        refuse(f"No item has the name of a file in '{folder}'.")
    return files


def _extract(items: Path, model: Path, extractor: MediaFeatures) -> Path:
    """Extract a folder of files to a folder beside the model, `NAME.items`; return that.

    Files that were extracted there before are not extracted again.
    """
    folder = model.resolve()
    out = folder.with_name(f"{folder.name}.items")
    with resumable():
        extract_and_report(items, out, extractor)
    return out


def _fit_missing(model: Path, items: Path | None, documents: Path | None) -> Path:
    """Fit a missing model to the items and their tags, by default keywords; return their features.

    Where the items are files, the model is one of the kind that most of them are.
    """
    if items is None or not items.is_dir():
        refuse(f"There is no model at '{model}'; give --items a folder to learn it from.")
    from polyseme.media import extractor_classes
    from polyseme.media.extraction import find_media, is_extraction

    features = items
    if not is_extraction(items):
        classes = extractor_classes()
        n_files_by_kind: dict[str, int] = {}
        for kind, extractor_class in classes.items():
            files, _ = find_media([items], extractor_class.suffixes)
            n_files_by_kind[kind] = len(files)
        if not any(n_files_by_kind.values()):
            *nouns, last_noun = [extractor.noun for extractor in classes.values()]
            listed = f"{', '.join(nouns)} or {last_noun}"
            refuse(f"There is no model at '{model}', and no {listed} in '{items}'.")
        say(f"there is no model at '{model}' yet: it is learned from '{items}'")
        commonest_kind = max(n_files_by_kind, key=lambda kind: n_files_by_kind[kind])
        extractor = classes[commonest_kind].usual()
        features = _extract(items, model, extractor)
    fit(model, documents=documents, features=features, tables=TableOptions())
    return features


@command(SERVING)
def token(tokens: Path, name: str, scope: Literal["read", "review", "admin"] = "review") -> None:
    """Make a token for a user, and print it once: only its hash is kept."""
    from polyseme.studio.access import new_token

    secret = new_token(tokens, name, scope)
    say(
        f"'{name}' may {scope}; send the token as `Authorization: Bearer TOKEN`. It is not shown "
        "again:"
    )
    typer.echo(secret)
