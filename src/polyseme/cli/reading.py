"""What commands read: documents, features, extracted folders, and which belong together.

In: paths and options of a command. Out: corpora and items, or one sentence about what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme._progress import FileProgress
from polyseme._text import in_words
from polyseme._validation import InputError, IntArray, check_features, first_few, in_order
from polyseme.cli.app import TableOptions
from polyseme.cli.output import counted, say
from polyseme.corpus import LabelCorpus
from polyseme.documents import join_corpora
from polyseme.features import (
    Extracted,
    MediaFeatures,
    extractor_class,
    match_documents,
    read_extraction,
)
from polyseme.features.base import MediaError, quiet_decoders
from polyseme.features.extraction import find_media, is_extraction
from polyseme.feedback import Feedback
from polyseme.io import Table, Wanted, read_table
from polyseme.io import read_items as read_features_of
from polyseme.io.shards import is_sharded
from polyseme.persistence import ModelFileError
from polyseme.verdict_files import read_verdicts
from polyseme.verdicts import Verdict, VerdictLog

if TYPE_CHECKING:
    from polyseme.tagger import ZeroShotTagger

_MOST_DIGITS = 18  # of a row's number
_NAMED = 20  # files that were skipped and are told


class Reading(NamedTuple):
    """How tables are read, and what is said about them."""

    tables: TableOptions = TableOptions()
    features_column: str | None = None
    normalize: bool = True

    @property
    def wanted(self) -> Wanted:
        """What is read of a table of features."""
        return Wanted(False, "all", self.tables.tags_column, self.features_column)

    def table(self, path: Path, features: Literal["none", "vectors", "all"]) -> Table:
        """Read one table with tags."""
        options = {"features_column": self.features_column} | asdict(self.tables)
        return read_table(path, features=features, **options)

    def corpus(self, path: Path) -> LabelCorpus:
        """Read documents, and tell how they were understood."""
        return self.understood(self.table(path, "none"), path)

    def understood(self, table: Table, path: Path) -> LabelCorpus:
        """Take the documents of a table; tell how many tags there are, and those of the first."""
        corpus = LabelCorpus.of_table(table, path.name, normalize=self.normalize)
        first = first_few(next(filter(None, corpus), ()), most=8)
        say(
            f"{path.name}: {counted(len(corpus.labels), 'tag')}, {corpus.lengths.mean():.1f} a "
            f"document; first document: {first or 'no tags'}"
        )
        return corpus


class Items(NamedTuple):
    """Items with their documents."""

    X: Any  # a table with features, extracted files, or None
    documents: LabelCorpus  # of the items
    everything: LabelCorpus | None = None  # all documents in use, also of no item


def read_items(
    features: Path | None, documents: Path | None, split: str | None, reading: Reading
) -> Items:
    """Read features, or an extracted folder, with the documents of all items or of a split.

    One table may hold both: it is then given as features alone, or, where it has a column of
    vectors, as documents alone.
    """
    extraction = None
    if features is not None and features.is_dir() and not is_table(features):
        extraction = read_extraction(features)
    if documents is None and extraction is not None:
        if split is not None:
            raise InputError("`--split` chooses among documents; give them with --documents.")
        return _tagged_items(extraction, reading.normalize)
    if documents is None or features is None or documents == features:
        place = features or documents
        if place is None:
            raise InputError("Give the tags of each item with --documents.")
        return _items_of_table(place, split, reading, features is not None)
    corpus = reading.corpus(documents)
    used = _rows_of_split(corpus, split, documents)
    chosen = corpus if used.all() else corpus.select(used)
    if extraction is not None:
        if n_tagged := sum(bool(tags) for tags in extraction.tags):
            say(
                f"the keywords of {counted(n_tagged, 'file')} are not used, since --documents "
                "names their tags; leave it out to learn from them"
            )
        rows, of_rows = _pairs(extraction.ids, chosen, reading, (features, documents), files=True)
        return Items(extraction[rows.tolist()], chosen.select(of_rows), chosen)
    table = read_features_of(features, reading.wanted)
    table = table.merged(features.name, strict=reading.tables.strict)
    names = range(len(table)) if table.ids is None else table.ids
    rows, of_rows = _pairs(names, corpus, reading, (features, documents))
    kept = used[of_rows]
    items = corpus.select(of_rows[kept])
    everything = None if len(items) == len(chosen) else chosen
    return Items(table[rows[kept]], items, everything)


def read_label_sets(
    path: Path | None, items: Items, reading: Reading, *, only: bool
) -> LabelCorpus | None:
    """Return the tag sets that teach meaning beside those of the items, or `only` those of a file.

    None where there are none but the items' own.
    """
    if path is None:
        if only:
            raise InputError("`--label-sets-only` needs the tag sets of --label-sets.")
        return items.everything
    label_sets = reading.corpus(path)
    if only or items.everything is None:
        return label_sets
    # In this order the items' documents keep the names by which they are found again.
    return join_corpora(items.everything, label_sets)[0]


def is_table(folder: Path) -> bool:
    """Return whether a folder is a table in files, and none that `polyseme extract` wrote."""
    return not is_extraction(folder) and is_sharded(folder)


def _items_of_table(place: Path, split: str | None, reading: Reading, wide: bool) -> Items:
    """Read items with their documents from one table; `wide`: columns of numbers are features."""
    table = reading.table(place, "all" if wide else "vectors")
    if not table.has_tags:
        raise InputError(
            f"'{place}' has no column of tags; name it with --tags-column, or give the tags of "
            "each item with --documents."
        )
    corpus = reading.understood(table, place)
    used = _rows_of_split(corpus, split, place)
    if table.features is None and table.unused:
        say(
            f"columns of numbers in '{place}' are not used ({first_few(table.unused, most=3)}); "
            "--features with the same table makes them features"
        )
    X = None if table.features is None else table[np.flatnonzero(used)]
    if X is not None and not wide:
        say(f"features: {X.shape[1]} numbers of the column of vectors")
    return Items(X, corpus if used.all() else corpus.select(used))


def _rows_of_split(corpus: LabelCorpus, split: str | None, place: Path) -> NDArray[np.bool_]:
    """Return which documents are of a split; all where none is asked for."""
    if split is None:
        return np.ones(len(corpus), dtype=bool)
    known = sorted(set(corpus.splits or ()))
    if split not in known:
        listed = ", ".join(known) if known else "none; the documents have no `split` field"
        raise InputError(f"Unknown split '{split}' in '{place}'; known: {listed}.")
    return np.array([name == split for name in corpus.splits or ()])


def _pairs(
    names: Sequence[Any],
    corpus: LabelCorpus,
    reading: Reading,
    places: tuple[Path, Path],
    *,
    files: bool = False,
    all_tagged: bool = True,
) -> tuple[IntArray, IntArray]:
    """Return matching rows of items and documents: by file, by id, or in order without ids.

    Names of items are numbers where they have none. One line says how rows were joined and counts
    what does not fit, which is refused where reading is strict.
    """
    features, documents = places
    if files:
        rows, of_rows = match_documents(names, corpus.ids)
    elif isinstance(names, range) or corpus.numbered:
        if len(names) != len(corpus):
            raise InputError(
                f"'{features}' has {len(names)} rows but there are {len(corpus)} documents in "
                f"'{documents}'; give one document per row, or ids in both."
            )
        lacking = [features.name] if isinstance(names, range) else []
        lacking += [documents.name] if corpus.numbered else []
        say(f"rows and documents are paired in order: no ids in {' and '.join(lacking)}")
        return np.arange(len(names)), np.arange(len(names))
    else:
        row_by_id = {name: row for row, name in enumerate(corpus.ids)}
        matches = [(row, row_by_id[name]) for row, name in enumerate(names) if name in row_by_id]
        if not matches:
            raise InputError(
                f"No id of '{features}' ({first_few(names, most=3)}) is among those of "
                f"'{documents}' ({first_few(corpus.ids, most=3)}); mend the ids, or drop those of "
                "one file to pair rows in order."
            )
        rows, of_rows = np.array(matches, dtype=np.int64).T
    noun = "file" if files else "item"
    a_noun = "a file" if files else "an item"
    items_left = [names[row] for row in _numbers_without(len(names), rows)]
    documents_left = [corpus.ids[row] for row in _numbers_without(len(corpus), of_rows)]
    misfits = []
    if items_left and all_tagged:
        listed = first_few(items_left, most=3)
        misfits.append(f"{counted(len(items_left), noun)} without a document ({listed})")
    if documents_left:
        listed = first_few(documents_left, most=3)
        misfits.append(f"{counted(len(documents_left), 'document')} without {a_noun} ({listed})")
    if misfits and reading.tables.strict:
        raise InputError(f"Ids do not fit: {'; '.join(misfits)}; mend them, or drop --strict.")
    key = "name" if files else "id"
    say("; ".join([f"joined by {key}: {counted(len(rows), noun)}", *misfits]))
    return rows, of_rows


def _tagged_items(extraction: Extracted, normalize: bool) -> Items:
    """Return the extracted files that have keywords, with these."""
    rows = [row for row, tags in enumerate(extraction.tags) if tags]
    if not rows:
        raise InputError(
            "No file has keywords, inside or in a sidecar; give the tags of each file with "
            "--documents."
        )
    if len(rows) < len(extraction):
        say(f"{len(rows):,} of {len(extraction):,} extracted files have keywords")
    corpus = LabelCorpus.from_documents(
        [extraction.tags[row] for row in rows],
        ids=[extraction.ids[row] for row in rows],
        normalize=normalize,
    )
    return Items(extraction[rows], corpus, corpus)


def _numbers_without(n: int, rows: IntArray) -> list[int]:
    """Return the numbers below n that are not among some rows."""
    return sorted(set(range(n)) - set(rows.tolist()))


def extractor_of(items: Any, n_words: int | None) -> MediaFeatures | None:
    """Make the unfitted feature extractor that continues an extraction; None for numbers."""
    if not isinstance(items, Extracted):
        if n_words is not None:
            raise InputError("`--words` is for folders that `extract` wrote, not for numbers.")
        return None
    kind = extractor_class(items.kind)
    known = kind().get_params()
    # Before parameters were kept, the preprocessing had all of them, and no network had a choice.
    parameters = dict(items.parameters) or {
        name: value
        for name, value in items.preprocessing.items()
        if name in known and name != "network"
    }
    if n_words is None:
        return kind(**parameters)
    if "n_words" not in known or parameters.get("network") is not None:
        whose = f"{items.kind} files" + (" of a network" if "n_words" in known else "")
        raise InputError(f"`--words` does not apply to {whose}, and these were extracted.")
    return kind(**parameters | {"n_words": n_words})


def tags_of_items(
    corpus: LabelCorpus,
    items: Sequence[Mapping[str, Any]],
    tags: Path,
    features: Path,
    reading: Reading,
) -> list[tuple[str, ...]]:
    """Return each item's own tags: by file, by id, or in order where there are no ids."""
    files = bool(items) and "file" in items[0]
    names: Any = [item.get("file", item.get("id")) for item in items]
    names = range(len(items)) if None in names else names
    item_tags: list[tuple[str, ...]] = [()] * len(items)
    pairs = _pairs(names, corpus, reading, (features, tags), files=files, all_tagged=False)
    for item, row in zip(*pairs, strict=True):
        item_tags[item] = corpus.document(row)
    return item_tags


def read_item(path: Path, name: str, reading: Reading) -> tuple[Any, dict[str, Any]]:
    """Read one item, a row by number or id or an extracted file by name, and what names it."""
    extracted = path.is_dir() and not is_table(path)
    table: Any = read_extraction(path) if extracted else read_features_of(path, reading.wanted)
    names = list(table.ids or ())
    n_items = len(names) or table.shape[0]
    if name not in names and not (name.isdecimal() and len(name) <= _MOST_DIGITS):
        raise InputError(
            f"There is no '{in_words(name, 60)}' in '{path}'; give a row's number, its id or a "
            "file's name."
        )
    row = names.index(name) if name in names else int(name)
    if row >= n_items:
        raise InputError(f"There is no row {row}: '{path}' has {n_items} rows.")
    if extracted:
        return table[[row]], {"file": names[row]}
    return table[row : row + 1], ({"id": names[row]} if names else {}) | {"row": row}


# ---------------------------------------------------------------------- items without tags


def read_untagged(place: Path, extractor: MediaFeatures | None, reading: Reading) -> Any:
    """Read items as a model takes them: a table, or an extraction, a folder or a file of media."""
    if extractor is None:
        if is_extraction(place):
            raise InputError(
                f"'{place}' was extracted from files, but numbers are asked for; give a table."
            )
        table = read_features_of(place, reading.wanted)
        return table.merged(place.name, strict=reading.tables.strict)
    if is_extraction(place):
        return read_extraction(place)
    return read_media([place], extractor)


def read_pool(place: Path, X: Any, extractor: MediaFeatures | None, reading: Reading) -> Any:
    """Read items without tags that stand beside others; of these none is taken twice."""
    pool = read_untagged(place, extractor, reading)
    tagged = set(X.ids or ())
    untagged = [row for row, name in enumerate(pool.ids or ()) if name not in tagged]
    if not pool.ids or len(untagged) == len(pool.ids):
        return pool
    if not untagged:
        raise InputError(f"All items in '{place}' have tags; leave out --unlabelled.")
    say(f"{place.name}: {counted(len(pool.ids) - len(untagged), 'item')} with tags left out")
    return pool[untagged]


def read_media(places: Sequence[Path], extractor: MediaFeatures) -> Extracted:
    """Look at media files, which are named by their paths below the folders that are given."""
    files = find_media(places, extractor.suffixes)[0]
    ids = []
    raw = []
    skipped = []
    with FileProgress(f"looking at {extractor.kind} files") as bar, quiet_decoders():
        outcomes = extractor.extract([file.path for file in files])
        pairs = zip(files, outcomes, strict=True)
        for n_done, (file, outcome) in enumerate(pairs, start=1):
            if isinstance(outcome, MediaError):
                skipped.append((file.id, str(outcome)))
            else:
                ids.append(file.id)
                raw.append(outcome)
            bar.tell(n_done, len(files), len(skipped))
    for name, reason in skipped[:_NAMED]:
        say(f"skipped {name}: {reason}")
    if not ids:
        listed = first_few([str(place) for place in places])
        raise InputError(f"There are no {extractor.kind} files that can be used in {listed}.")
    return Extracted(extractor.kind, extractor.preprocessing(), tuple(ids), raw)


# ---------------------------------------------------------------------- answers


def read_answers(path: Path) -> list[Verdict]:
    """Read answers that people gave; there must be one."""
    verdicts = read_verdicts(path)
    if not verdicts:
        raise InputError(
            f"'{path}' has no answer; write true or false as the `answer` of its questions."
        )
    return verdicts


def items_to_learn(
    names: Sequence[str], tagger: ZeroShotTagger, features: Path | None, reading: Reading
) -> tuple[list[str], Any]:
    """Return items as a model's verdicts name them, and where their features are found.

    Without features, they are files that the model looks at, or known to it from former verdicts.
    """
    if features is not None:
        X = read_untagged(features, tagger.features_, reading)
        return _names_within(names, X, features), X
    known_items = tagger.verdicts_.vector_keys(tagger.space_.digest_, set(names))
    new = [name for name in dict.fromkeys(names) if name not in known_items]
    if not new:
        return list(names), None
    if tagger.features_ is None or not Path(new[0]).exists():
        noun = "item" if tagger.features_ is None else "file"
        raise InputError(f"Nothing is known of the {noun} '{new[0]}'; say with --features where.")
    paths = {name: Path(name) for name in new}
    posix_names = {name: path.as_posix() for name, path in paths.items()}
    item_names = [posix_names.get(name, name) for name in names]
    return item_names, read_media(list(paths.values()), tagger.features_)


def check_rows(tagger: ZeroShotTagger, X: Any) -> None:
    """Raise if rows without ids are other items than verdicts were given on by their numbers."""
    if X.ids is not None or X.shape[1] != tagger.n_features_in_:
        return
    feedback = Feedback(tagger.verdicts_, tagger.space_.digest_)
    row_by_name = {str(row): row for row in range(X.shape[0])}
    rows = {item: row_by_name[item] for item in feedback.items() if item in row_by_name}
    if not rows:
        return
    table = in_order(X, getattr(tagger, "feature_names_in_", None), owner="learn")
    features = check_features(table, owner="learn")
    feedback.check_rows(rows, lambda numbers: tagger.space_.project(features[numbers]))


def _names_within(names: Sequence[str], X: Any, place: Path) -> list[str]:
    """Return items under the names they have among others; files may be named by any path."""
    ids = set(map(str, range(X.shape[0])) if X.ids is None else X.ids)
    id_by_name = {name: name for name in names if name in ids}
    for name in dict.fromkeys(names):
        if name in id_by_name:
            continue
        rows: Sequence[int] = ()
        if isinstance(X, Extracted):
            with suppress(InputError):
                rows = match_documents(X.ids, [name])[0].tolist()
        if not rows:
            naming = "the numbers of its rows, from 0" if X.ids is None else "its ids, each once"
            raise InputError(
                f"There is no item '{in_words(name, 60)}' in '{place}'; items are named by "
                f"{naming}."
            )
        id_by_name[name] = X.ids[rows[0]]
    return [id_by_name[name] for name in names]


@contextmanager
def verdicts_for(model: Path, given: Path | None, update: Path | None) -> Iterator[VerdictLog]:
    """Yield a log of all that a new model is to learn from; no other log is changed by that.

    These are the verdicts that a model in its place has, those of the model that is updated, and
    those that are given: a file, or a folder with a log.
    """
    folder = given if given is not None and (given.is_dir() or given.suffix == ".sqlite") else None
    fresh = read_answers(given) if given is not None and folder is None else []
    with TemporaryDirectory() as place:
        log = VerdictLog(Path(place) / "together.sqlite")
        assert log.file is not None
        for source in filter(None, (model, update, folder)):
            with closing(VerdictLog(source)) as source_log:
                if source == folder and not source_log.count:
                    raise InputError(f"There are no verdicts in '{source}'; `learn` makes some.")
                try:
                    source_log.copy_to(log.file)
                except ModelFileError as error:
                    raise InputError(
                        f"'{source}' and '{model}' have verdicts that differ; write the new model "
                        "to another folder."
                    ) from error
        log.append(fresh)
        with closing(log):
            yield log
