"""Crafted models: real ones with wrong arrays and values under a digest that fits them.

Each is refused with one sentence or works; a raw exception, a signal, numbers that are none, no
end in time are faults. Models are loaded and used in a process of its own, so that a signal is
noticed. `python -m torture.models space:17` looks at one of them again.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from torture import Tried
from torture.worker import Outcome, Worker, judged, sentence, spoiled, work

State = tuple[dict[str, Any], dict[str, np.ndarray]]
_LABELS = [f"tag {letter}" for letter in "abcdefghijkl"]


# ---------------------------------------------------------------------- real models


def _documents(rng: np.random.Generator, n: int) -> list[list[str]]:
    """Draw tag sets from two halves of the labels."""
    halves = (_LABELS[:7], _LABELS[5:])
    return [rng.choice(halves[row % 2], size=3, replace=False).tolist() for row in range(n)]


def _tiny_space(**parameters: Any) -> Any:
    from polyseme import ConceptSpace, SpacePlan

    plan = SpacePlan(hidden=8, code=6, document_batch=16, item_batch=12, probable_batch=6)
    return ConceptSpace(n_folds=2, n_steps=12, plan=plan, random_state=0, **parameters)


def _space_model(folder: Path, **options: Any) -> None:
    """Save a default tagger with everything that one can have."""
    from polyseme import ZeroShotTagger

    rng = np.random.default_rng(0)
    documents = _documents(rng, 40)
    X: Any = rng.normal(size=(40, 5))
    unseen = [["tag a", "tag unseen"], ["tag k", "tag unseen", "tag other"]] * 4
    vectors = {word: rng.normal(size=4) for tag in [*_LABELS, "x unseen other"] for word in tag}
    vectors |= {label: rng.normal(size=4) for label in [*_LABELS, "tag unseen", "tag other"]}
    tagger = ZeroShotTagger(space=_tiny_space(), n_validations=1, random_state=0)
    if options.get("plain"):
        tagger.fit(None, documents)
    elif options.get("sparse"):
        tagger.fit(sp.csr_matrix(X), documents, documents + unseen)
    else:
        tagger.fit(X, documents, documents + unseen, label_names=vectors)
        if not tagger.name_share_:
            tagger.name_share_ = 0.2
            tagger._likeness = rng.normal(size=(2, tagger.space_.n_seen_)) * 0.1
        tagger.add_documents([["tag a", "later"], ["tag b", "later", "much later"]])
        tagger.add_labels(["by name"], vectors | {"by name": rng.normal(size=4)})
        tagger.block(["tag c"])
    tagger.save(folder)


def _media_items(kind: str, n: int) -> Any:
    """Return raw numbers of clips or pictures, as they are extracted."""
    from polyseme.media import extractor_class
    from polyseme.media.base import Extracted

    shape = (n, 6, 36) if kind == "audio" else (n, 6)
    raw = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    ids = tuple(map(str, range(n)))
    preprocessing = extractor_class(kind)().preprocessing()
    return Extracted(kind, preprocessing, ids, raw)


def _media_model(folder: Path, kind: str) -> None:
    """Save a default tagger with a feature extractor; that of sound learned something."""
    from polyseme import AudioFeatures, ImageFeatures, ZeroShotTagger

    audio = kind == "audio"
    extractor = AudioFeatures(n_words=5, random_state=0) if audio else ImageFeatures()
    tagger = ZeroShotTagger(_tiny_space(), extractor, n_validations=0, random_state=0)
    tagger.fit(_media_items(kind, 24), _documents(np.random.default_rng(0), 24)).save(folder)


def _embedding(**parameters: Any) -> Any:
    from polyseme.published.descriptors import ContextDescriptor
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.training import TrainingPlan

    return ConceptEmbedding(
        n_components=4,
        hidden_sizes=(6,),
        context_descriptor=ContextDescriptor(n_topics=3, n_iter=20),
        training=TrainingPlan(max_epochs=3, batch_size=32, min_steps=2),
        random_state=0,
        **parameters,
    )


def _published_model(folder: Path, *, sparse: bool = False) -> None:
    """Save a tagger of the published method, dense or with sparse features and descriptors."""
    from polyseme import PublishedTagger
    from polyseme.published import descriptors
    from polyseme.published.mapping import InstanceMapper

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    kind = "kernel-ridge" if sparse else "nu-svr"
    before = descriptors._MANY_LABELS, descriptors._FEW_PAIRS
    if sparse:
        descriptors._MANY_LABELS, descriptors._FEW_PAIRS = 1, 1.0
    try:
        tagger = PublishedTagger(_embedding(), InstanceMapper(kind=kind), random_state=0)
        tagger.fit(sp.csr_matrix(X) if sparse else X, _documents(rng, 40))
    finally:
        descriptors._MANY_LABELS, descriptors._FEW_PAIRS = before
    tagger.add_documents([["tag a", "later"]])
    tagger.save(folder)


class _StopError(Exception):
    """Ends a training half-way."""


def _go_on(folder: Path, stop_after: int | None = None) -> Any:
    """Train a space, from its checkpoint where there is one."""
    rng = np.random.default_rng(0)
    documents = sp.csr_matrix(rng.random((40, 6)) < 0.4, dtype=np.float64)

    def progress(done: int, total: int, losses: object) -> None:
        if done == stop_after:
            raise _StopError

    space = _tiny_space(checkpoint=folder)
    return space.fit(documents, rng.normal(size=(40, 5)), progress=progress)


def _go_on_embedding(folder: Path, stop_after: int | None = None) -> Any:
    """Train an embedding, from its checkpoint where there is one."""
    from polyseme.published.training import Checkpoint

    written = []
    plain_write = Checkpoint.write

    def write(self: Checkpoint, *arguments: Any) -> None:
        plain_write(self, *arguments)
        written.append(None)
        if len(written) == stop_after:
            raise _StopError

    Checkpoint.write = write  # type: ignore[method-assign]
    try:
        return _embedding(checkpoint=folder).fit(_documents(np.random.default_rng(0), 30))
    finally:
        Checkpoint.write = plain_write  # type: ignore[method-assign]


def _stopped(train: Callable[..., Any], folder: Path) -> None:
    try:
        train(folder, stop_after=2)
    except _StopError:
        return
    raise AssertionError("the training was not stopped")


BASES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "space": ("tagger", _space_model),
    "space-sparse": ("tagger", lambda folder: _space_model(folder, sparse=True)),
    "space-documents": ("tagger", lambda folder: _space_model(folder, plain=True)),
    "space-audio": ("tagger", lambda folder: _media_model(folder, "audio")),
    "space-image": ("tagger", lambda folder: _media_model(folder, "image")),
    "published": ("tagger", _published_model),
    "published-sparse": ("tagger", lambda folder: _published_model(folder, sparse=True)),
    "training": ("training", lambda folder: _stopped(_go_on, folder)),
    "checkpoint": ("checkpoint", lambda folder: _stopped(_go_on_embedding, folder)),
}


def make_bases(folder: Path) -> None:
    """Save every real model that crafted ones are made of."""
    for name, (_, make) in BASES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(folder / name)


# ---------------------------------------------------------------------- wrong arrays and values

_TYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint64", "bool")
_NUMBERS = (np.nan, np.inf, -np.inf, 1e300, -1e300, 1e38, -1e38, 1e9, 0, -1, 1, 2**31, 2**62)


def _some_place(rng: random.Random, array: np.ndarray) -> tuple[int, ...]:
    return tuple(rng.randrange(size) for size in array.shape)


def _with_number(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Put wild numbers in some places, or in all."""
    wild = array.copy()
    value = rng.choice(_NUMBERS)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if array.dtype.kind in "iu":
            value = rng.choice([-1, -(2**31), 2**31 - 1, 2**31, 2**62, -(2**62), 7, 10**6, 0])
        value = np.array([value]).astype(array.dtype)[0]
        if not array.size or rng.random() < 0.15:
            wild[...] = value
        else:
            for _ in range(rng.choice([1, 1, 1, 5])):
                wild[_some_place(rng, array)] = value
    return wild


def _cast(rng: random.Random, array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return array.astype(rng.choice(_TYPES))


def _swapped_numbers(rng: random.Random, array: np.ndarray) -> np.ndarray:
    flat = array.copy().ravel()
    if len(flat) > 1:
        first, second = rng.sample(range(len(flat)), 2)
        flat[[first, second]] = flat[[second, first]]
    return flat.reshape(array.shape)


def _repeated(rng: random.Random, array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, array]) if array.ndim else array


def _mixed(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Draw all numbers anew from those that are there: each by itself is sound."""
    rng_of_arrays = np.random.default_rng(rng.randrange(2**32))
    return rng_of_arrays.choice(array.ravel(), size=array.shape) if array.size else array


_OF_ARRAY: dict[str, Callable[[random.Random, np.ndarray], np.ndarray]] = {
    "number": _with_number,
    "type": _cast,
    "transposed": lambda rng, array: np.ascontiguousarray(array.T),
    "reversed": lambda rng, array: array[::-1] if array.ndim else array,
    "flat": lambda rng, array: array.ravel(),
    "deeper": lambda rng, array: array[None],
    "empty": lambda rng, array: array[:0] if array.ndim else array,
    "no columns": lambda rng, array: array[..., :0] if array.ndim else array,
    "shorter": lambda rng, array: array[: rng.randrange(len(array) + 1)] if array.ndim else array,
    "narrower": lambda rng, array: array[..., :-1] if array.ndim else array,
    "longer": _repeated,
    "swapped": _swapped_numbers,
    "negative": lambda rng, array: -array if array.dtype.kind == "f" else ~array,
    "scalar": lambda rng, array: np.array(1.0),
    "mixed": _mixed,
    "zeros": lambda rng, array: np.zeros_like(array),
    "largest": lambda rng, array: np.full_like(array, array.max()) if array.size else array,
    "smallest": lambda rng, array: np.full_like(array, array.min()) if array.size else array,
    "halved": lambda rng, array: (array * 0.5).astype(array.dtype),
}

_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 5, 10**6, 2**31, 2**63, 10**30, -(10**30), 0.5, -0.5, 1e300),
    *("INFINITY", "", "x", "a\0", "\ud800", "y" * 5000, [], {}, [[]], [1, "a"], {"x": 1}, [None]),
    *("space", "published", "audio", "image", "../..", ["tag a", "tag a"], [1e300, "INFINITY"]),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values; of long lists those of the first few."""
    if isinstance(value, dict):
        for key in value:
            yield (*path, key)
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for place in range(min(len(value), 3)):
            yield (*path, place)
            yield from _places(value[place], (*path, place))


def change_value(rng: random.Random, config: dict[str, Any]) -> str:
    """Change a value somewhere in a config."""
    path = rng.choice(list(_places(config)))
    holder: Any = config
    for step in path[:-1]:
        holder = holder[step]
    key = path[-1]
    name = ".".join(map(str, path))
    how = rng.choice(["replace"] * 6 + ["delete", "add", "shorten", "repeat", "nudge", "nudge"])
    old = holder[key]
    if how == "delete":
        del holder[key]
    elif how == "add" and isinstance(holder, dict):
        holder["unheard of"] = deepcopy(rng.choice(_VALUES))
    elif how == "shorten" and isinstance(old, list):
        del old[rng.randrange(len(old) + 1) :]
    elif how == "repeat" and isinstance(old, list):
        old.extend(old[:1])
    elif how == "nudge" and type(old) in (int, float):
        holder[key] = old + rng.choice([-1, 1, 2, -old, old, 100])
    else:
        how, holder[key] = "replace", deepcopy(rng.choice(_VALUES))
        how = f"replace by {holder[key]!r:.40}"
    return f"{name}: {how}"


def _change_array(rng: random.Random, arrays: dict[str, np.ndarray]) -> str:
    """Change an array, or what it is called."""
    name = rng.choice(sorted(arrays))
    how = rng.choice([*_OF_ARRAY, *["number"] * 6, "missing", "renamed", "exchanged", "more"])
    if how == "missing":
        del arrays[name]
    elif how == "renamed":
        arrays[f"{name}x"] = arrays.pop(name)
    elif how == "exchanged":
        name_of_other = rng.choice(sorted(arrays))
        arrays[name], arrays[name_of_other] = arrays[name_of_other], arrays[name]
        how = f"exchanged with {name_of_other}"
    elif how == "more":
        arrays[f"{name}.more"] = np.zeros(3)
    else:
        arrays[name] = np.array(_OF_ARRAY[how](rng, arrays[name]), order="C")
    return f"[{name}]: {how}"


def mutated(state: State, rng: random.Random) -> tuple[State, str]:
    """Return a state with one to three changes, and what they are."""
    config = json.loads(json.dumps(state[0]))
    arrays = dict(state[1])
    changes = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if arrays and rng.random() < 0.65:
            changes.append(_change_array(rng, arrays))
        else:
            changes.append(change_value(rng, config))
    return (config, arrays), "; ".join(changes)


def sealed(data: bytes) -> bytes:
    """Return the bytes of a model file with a digest that fits them, whatever they are."""
    from polyseme.storage import model_file

    identity = model_file._FILE_START.match(data)
    if identity is None:
        return data
    start, stop = identity.span("digest")
    return data[:start] + model_file._compute_digest(data, identity).encode() + data[stop:]


def craft(folder: Path, kind: str, state: State) -> None:
    """Write a state as a model, with a digest that fits it."""
    from safetensors.numpy import save

    from polyseme.storage.model_file import FORMAT_NUMBER, MODEL_FILE

    # JSON has no infinity, but numbers so large that Python reads one.
    config = json.dumps(state[0], sort_keys=True).replace('"INFINITY"', "1e999")
    start = f'{{"format":{FORMAT_NUMBER},"kind":"{kind}","sha256":"{"0" * 64}","polyseme":"0"'
    data = save(state[1], {"polyseme": f'{start},"config":{config}}}'})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL_FILE).write_bytes(sealed(data))


# ---------------------------------------------------------------------- use


def _check_scores(labels: np.ndarray, scores: np.ndarray) -> None:
    if labels.shape != scores.shape:
        raise AssertionError(f"{labels.shape} labels and {scores.shape} scores")
    if not np.isfinite(scores).all() or scores.min(initial=0) < 0 or scores.max(initial=0) > 1:
        raise AssertionError("scores that are no probabilities")
    if (np.diff(scores, axis=-1) > 0).any():
        raise AssertionError("scores that do not fall")


def use(base: str, folder: Path) -> list[str]:
    """Load a model and ask it everything; give what was refused on the way."""
    import polyseme
    from polyseme.base.validation import InputError

    if base == "training":
        space = _go_on(folder)
        if not np.isfinite(space.members_.readout).all():
            raise AssertionError("weights that are no numbers")
        return []
    if base == "checkpoint":
        points = _go_on_embedding(folder).transform([_LABELS[:3]]).points
        if not np.isfinite(points).all():
            raise AssertionError("points that are no numbers")
        return []
    tagger: Any = polyseme.load(folder)
    refused: list[str] = []

    def attempt(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except InputError as error:
            refused.append(sentence(error))
            return None

    rng = np.random.default_rng(2)
    X: Any = rng.normal(size=(3, 5)) * [[1], [100], [1e-3]]
    media = base.removeprefix("space-") in ("audio", "image")
    if media:
        X = _media_items(base.removeprefix("space-"), 3)
    label = str(next(iter(tagger.classes_)))

    def ask() -> None:
        ranked = attempt(lambda: tagger.rank(X, k=4))
        completed = attempt(lambda: tagger.complete(["tag a", "tag b"], k=3))
        for pair in (ranked, completed):
            if pair is not None:
                _check_scores(*pair)
        if base.startswith("space"):
            for method in ("space", "priming"):
                options = {"k": 3, "tags": [["tag a"]] * 3, "method": method}
                pair = attempt(partial(tagger.rank, X, **options))
                if pair is not None:
                    _check_scores(*pair)
            attempt(lambda: tagger.predict(X, precision=0.5))
            attempt(lambda: tagger.space_.points(tagger.transform(None, [["tag a"]])))

    ask()
    from polyseme.label_changes import suggest_merges
    from polyseme.scoring.senses import label_senses

    item = X[:1] if media else X[0]
    for name in (label, "later", "by name"):
        attempt(partial(tagger.explain, item, name))
    if base.startswith("space"):
        attempt(lambda: tagger.store_.concepts())
        attempt(lambda: label_senses(tagger.store_, label))
        attempt(lambda: suggest_merges(tagger))
        attempt(lambda: repr(tagger.validation_) + str(tagger.validation_))
    added = attempt(lambda: tagger.add_documents([["tag a", "brand new"], ["tag b", "tag c"]]))
    ask()
    if added is not None:
        attempt(lambda: tagger.remove_documents(added))
    attempt(lambda: tagger.remove_documents(tagger.store_.ids[:2]))
    ask()
    copy_folder = folder.parent / "again"
    if attempt(lambda: tagger.save(copy_folder) or True):
        polyseme.load(copy_folder)
    return refused


def _attacked(base: str, state: State, seed: int) -> Outcome:
    """Craft one model, use it, and say what came of it."""
    changed = mutated(state, random.Random(seed))[0] if seed >= 0 else state
    with tempfile.TemporaryDirectory(prefix="crafted-") as place:
        folder = Path(place) / "model"

        def crafted() -> str:
            craft(folder, BASES[base][0], changed)
            return "; ".join(use(base, folder))

        return judged(crafted)


# ---------------------------------------------------------------------- processes


def _work(bases: Path) -> None:
    """Craft models of those in a folder, in a process of its own."""
    import torch

    import polyseme
    from polyseme.storage.model_file import read_model

    torch.set_num_threads(1)
    polyseme.load(bases / "space")
    state = cache(lambda base: read_model(bases / base, BASES[base][0]))
    work(lambda job: _attacked(job[0], state(job[0]), job[1]))


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Use every real model, which must work, and then crafted ones of all kinds in turn."""
    bases = place / "bases"
    make_bases(bases)
    worker = Worker("-m", __name__, "--work", str(bases))
    yield from spoiled(worker, BASES, BASES, rng)


def main() -> None:
    """Work for another process, or use one crafted model and let it fail where it fails."""
    if sys.argv[1] == "--work":
        _work(Path(sys.argv[2]))
        return
    from polyseme.storage.model_file import read_model

    base, _, number = sys.argv[1].partition(":")
    with tempfile.TemporaryDirectory() as folder:
        make_bases(Path(folder) / "bases")
        path = Path(folder) / "bases" / base
        state = read_model(path, BASES[base][0])
        changed, changes = mutated(state, random.Random(int(number)))
        print(changes, flush=True)
        craft(Path(folder) / "one" / "model", BASES[base][0], changed)
        print(use(base, Path(folder) / "one" / "model"))


if __name__ == "__main__":
    main()
