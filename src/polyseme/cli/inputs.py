"""Read what commands take: documents, features, extracted folders, verdicts.

In: paths and options of a command. Out: corpora, items and verdicts that belong together, or an
error of one sentence.
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

from polyseme.base.progress import FileProgress
from polyseme.base.text import counted, in_words
from polyseme.base.validation import InputError, IntArray, check_features, first_few, in_order
from polyseme.cli.app import TableOptions
from polyseme.cli.output import say
from polyseme.documents.corpus import LabelCorpus
from polyseme.documents.label_sets import join_corpora
from polyseme.feedback.standing_verdicts import Feedback
from polyseme.feedback.verdict_files import read_verdicts
from polyseme.feedback.verdict_log import Verdict, VerdictLog
from polyseme.io import ReadOptions, Table, read_table
from polyseme.io import read_items as read_features_of
from polyseme.io.join import join_rows, match_files
from polyseme.io.shards import is_sharded
from polyseme.media import (
    Extracted,
    MediaFeatures,
    extractor_class,
    read_extraction,
)
from polyseme.media.base import MediaError, quiet_decoders
from polyseme.media.extraction import find_media, is_extraction
from polyseme.storage.model_file import ModelFileError

if TYPE_CHECKING:
    from polyseme.tagger import ZeroShotTagger

_MOST_DIGITS = 18  # of a row's number
_MOST_SKIPPED = 20  # skipped files that are printed


class TableReader(NamedTuple):
    """Read tables with the options of a command; print how they were understood."""

    tables: TableOptions = TableOptions()
    features_column: str | None = None
    normalize: bool = True

    @property
    def feature_options(self) -> ReadOptions:
        """The options for reading a table of features."""
        return ReadOptions(False, "all", self.tables.tags_column, self.features_column)

    def table(self, path: Path, features: Literal["none", "vectors", "all"]) -> Table:
        """Read one table with tags."""
        options = {"features_column": self.features_column} | asdict(self.tables)
        return read_table(path, features=features, **options)

    def corpus(self, path: Path) -> LabelCorpus:
        """Read documents, and print how they were understood."""
        return self.to_corpus(self.table(path, "none"), path)

    def to_corpus(self, table: Table, path: Path) -> LabelCorpus:
        """Return the documents of a table; print the number of tags and the first document."""
        corpus = LabelCorpus.of_table(table, path.name, normalize=self.normalize)
        first_document = next((tags for tags in corpus if tags), ())
        listed = first_few(first_document, most=8) or "no tags"
        n_tags = counted(len(corpus.labels), "tag")
        mean_length = corpus.lengths.mean()
        say(f"{path.name}: {n_tags}, {mean_length:.1f} a document; first document: {listed}")
        return corpus


class Items(NamedTuple):
    """Items with their documents."""

    X: Any  # a table with features, extracted files, or None
    documents: LabelCorpus  # of the items
    everything: LabelCorpus | None = None  # all documents in use, also of no item


def read_items(
    features: Path | None, documents: Path | None, split: str | None, reader: TableReader
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
        return _tagged_items(extraction, reader.normalize)
    if documents is None or features is None or documents == features:
        path = features or documents
        if path is None:
            raise InputError("Give the tags of each item with --documents.")
        return _items_of_table(path, split, reader, features is not None)

    corpus = reader.corpus(documents)
    in_split = _documents_of_split(corpus, split, documents)
    chosen = corpus if in_split.all() else corpus.select(in_split)
    sources = (features, documents)
    if extraction is not None:
        n_tagged = sum(bool(tags) for tags in extraction.tags)
        if n_tagged:
            say(
                f"the keywords of {counted(n_tagged, 'file')} are not used, since --documents "
                "names their tags; leave it out to learn from them"
            )
        rows, document_rows = _join(extraction.ids, chosen, reader, sources, files=True)
        return Items(extraction[rows.tolist()], chosen.select(document_rows), chosen)
    table = read_features_of(features, reader.feature_options)
    table = table.merged(features.name, strict=reader.tables.strict)
    names = range(len(table)) if table.ids is None else table.ids
    rows, document_rows = _join(names, corpus, reader, sources)
    is_chosen = in_split[document_rows]
    items = corpus.select(document_rows[is_chosen])
    everything = None if len(items) == len(chosen) else chosen
    return Items(table[rows[is_chosen]], items, everything)


def read_label_sets(
    path: Path | None, items: Items, reader: TableReader, *, only: bool
) -> LabelCorpus | None:
    """Return the tag sets that teach meaning beside those of the items, or `only` those of a file.

    None where there are none but the items' own.
    """
    if path is None:
        if only:
            raise InputError("`--label-sets-only` needs the tag sets of --label-sets.")
        return items.everything
    label_sets = reader.corpus(path)
    if only or items.everything is None:
        return label_sets
    # In this order the items' documents keep the names by which they are found again.
    return join_corpora(items.everything, label_sets)[0]


def is_table(folder: Path) -> bool:
    """Return whether a folder is a table in files, and none that `polyseme extract` wrote."""
    return not is_extraction(folder) and is_sharded(folder)


def _items_of_table(path: Path, split: str | None, reader: TableReader, wide: bool) -> Items:
    """Read items with their documents from one table; `wide`: columns of numbers are features."""
    table = reader.table(path, "all" if wide else "vectors")
    if not table.has_tags:
        raise InputError(
            f"'{path}' has no column of tags; name it with --tags-column, or give the tags of "
            "each item with --documents."
        )
    corpus = reader.to_corpus(table, path)
    in_split = _documents_of_split(corpus, split, path)
    if table.features is None and table.unused:
        listed = first_few(table.unused, most=3)
        say(
            f"columns of numbers in '{path}' are not used ({listed}); --features with the same "
            "table makes them features"
        )
    X = None
    if table.features is not None:
        X = table[np.flatnonzero(in_split)]
        if not wide:
            say(f"features: {X.shape[1]} numbers of the column of vectors")
    if not in_split.all():
        corpus = corpus.select(in_split)
    return Items(X, corpus)


def _documents_of_split(corpus: LabelCorpus, split: str | None, path: Path) -> NDArray[np.bool_]:
    """Return which documents are of a split; all where no split is given."""
    if split is None:
        return np.ones(len(corpus), dtype=bool)
    splits = corpus.splits or ()
    if split not in splits:
        names = sorted(set(splits))
        listed = ", ".join(names) if names else "none; the documents have no `split` field"
        raise InputError(f"Unknown split '{split}' in '{path}'; known: {listed}.")
    return np.array([name == split for name in splits])


def _join(
    names: Sequence[Any],
    corpus: LabelCorpus,
    reader: TableReader,
    sources: tuple[Path, Path],
    *,
    files: bool = False,
    all_tagged: bool = True,
) -> tuple[IntArray, IntArray]:
    """Return the rows that belong to documents, and these documents; print how they were joined."""
    # Files are matched by name, however the documents came by their ids.
    has_ids = files or not corpus.numbered
    join = join_rows(
        names,
        corpus.ids if has_ids else None,
        sources,
        n_documents=len(corpus),
        files=files,
        all_tagged=all_tagged,
        strict=reader.tables.strict,
    )
    say(join.summary)
    return join.rows, join.documents


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
    tags = [extraction.tags[row] for row in rows]
    ids = [extraction.ids[row] for row in rows]
    corpus = LabelCorpus.from_documents(tags, ids=ids, normalize=normalize)
    return Items(extraction[rows], corpus, corpus)


def extractor_of(items: Any, n_words: int | None) -> MediaFeatures | None:
    """Make the unfitted feature extractor that continues an extraction; None for numbers."""
    if not isinstance(items, Extracted):
        if n_words is not None:
            raise InputError("`--words` is for folders that `extract` wrote, not for numbers.")
        return None
    extractor = extractor_class(items.kind)
    parameters = dict(items.parameters)
    if n_words is not None:
        takes_words = "n_words" in extractor().get_params()
        if not takes_words or parameters.get("network") is not None:
            owner = f"{items.kind} files" + (" of a network" if takes_words else "")
            raise InputError(f"`--words` does not apply to {owner}, and these were extracted.")
        parameters["n_words"] = n_words
    return extractor(**parameters)


def tags_of_items(
    corpus: LabelCorpus,
    items: Sequence[Mapping[str, Any]],
    tags: Path,
    features: Path,
    reader: TableReader,
) -> list[tuple[str, ...]]:
    """Return each item's own tags: by file, by id, or in order where there are no ids."""
    are_files = bool(items) and "file" in items[0]
    names: Any = [item.get("file", item.get("id")) for item in items]
    if None in names:
        names = range(len(items))
    sources = (features, tags)
    rows, document_rows = _join(names, corpus, reader, sources, files=are_files, all_tagged=False)
    item_tags: list[tuple[str, ...]] = [()] * len(items)
    for row, document_row in zip(rows, document_rows, strict=True):
        item_tags[row] = corpus.document(document_row)
    return item_tags


def read_item(path: Path, name: str, reader: TableReader) -> tuple[Any, dict[str, Any]]:
    """Read one item, a row by number or id or a file by name, with its name as a record."""
    is_extracted = path.is_dir() and not is_table(path)
    table: Any
    if is_extracted:
        table = read_extraction(path)
    else:
        table = read_features_of(path, reader.feature_options)
    names = list(table.ids or ())
    n_items = len(names) or table.shape[0]
    if name in names:
        row = names.index(name)
    elif name.isdecimal() and len(name) <= _MOST_DIGITS:
        row = int(name)
    else:
        raise InputError(
            f"There is no '{in_words(name, 60)}' in '{path}'; give a row's number, its id or a "
            "file's name."
        )
    if row >= n_items:
        raise InputError(f"There is no row {row}: '{path}' has {n_items} rows.")
    if is_extracted:
        return table[[row]], {"file": names[row]}
    item = {"id": names[row]} if names else {}
    return table[row : row + 1], item | {"row": row}


# ---------------------------------------------------------------------- items without tags


def read_untagged(path: Path, extractor: MediaFeatures | None, reader: TableReader) -> Any:
    """Read items as a model takes them: a table, or an extraction, a folder or a file of media."""
    if extractor is None:
        if is_extraction(path):
            raise InputError(
                f"'{path}' was extracted from files, but the model takes numbers; give a table."
            )
        table = read_features_of(path, reader.feature_options)
        return table.merged(path.name, strict=reader.tables.strict)
    if is_extraction(path):
        return read_extraction(path)
    return read_media([path], extractor)


def read_pool(path: Path, X: Any, extractor: MediaFeatures | None, reader: TableReader) -> Any:
    """Read items without tags; leave out those that are among the tagged items."""
    pool = read_untagged(path, extractor, reader)
    if not pool.ids:
        return pool
    tagged = set(X.ids or ())
    untagged = [row for row, name in enumerate(pool.ids) if name not in tagged]
    n_tagged = len(pool.ids) - len(untagged)
    if not n_tagged:
        return pool
    if not untagged:
        raise InputError(f"All items in '{path}' have tags; leave out --unlabelled.")
    say(f"{path.name}: {counted(n_tagged, 'item')} with tags left out")
    return pool[untagged]


def read_media(paths: Sequence[Path], extractor: MediaFeatures) -> Extracted:
    """Extract media files, which are named by their paths below the given folders."""
    files, _ = find_media(paths, extractor.suffixes)
    ids = []
    raw = []
    skipped = []
    with FileProgress(f"looking at {extractor.kind} files") as progress, quiet_decoders():
        file_paths = [file.path for file in files]
        outcomes = extractor.extract(file_paths)
        pairs = zip(files, outcomes, strict=True)
        for n_done, (file, outcome) in enumerate(pairs, start=1):
            if isinstance(outcome, MediaError):
                skipped.append((file.id, str(outcome)))
            else:
                ids.append(file.id)
                raw.append(outcome)
            progress.tell(n_done, len(files), len(skipped))
    for name, reason in skipped[:_MOST_SKIPPED]:
        say(f"skipped {name}: {reason}")
    if not ids:
        listed = first_few([str(path) for path in paths])
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
    names: Sequence[str], tagger: ZeroShotTagger, features: Path | None, reader: TableReader
) -> tuple[list[str], Any]:
    """Return items as a model's verdicts name them, and their features.

    Without features, they are files for the model's extractor, or known from earlier verdicts.
    """
    extractor = tagger.features_
    if features is not None:
        X = read_untagged(features, extractor, reader)
        return _names_within(names, X, features), X
    known_items = tagger.verdicts_.vector_keys(tagger.space_.digest_, set(names))
    new_names = [name for name in dict.fromkeys(names) if name not in known_items]
    if not new_names:
        return list(names), None
    if extractor is None or not Path(new_names[0]).exists():
        noun = "item" if extractor is None else "file"
        raise InputError(
            f"Nothing is known of the {noun} '{new_names[0]}'; give its features with --features."
        )
    paths = [Path(name) for name in new_names]
    posix_names = {name: path.as_posix() for name, path in zip(new_names, paths, strict=True)}
    item_names = [posix_names.get(name, name) for name in names]
    return item_names, read_media(paths, extractor)


def check_rows(tagger: ZeroShotTagger, X: Any) -> None:
    """Raise where rows without ids are other items than the verdicts on their numbers are about."""
    if X.ids is not None or X.shape[1] != tagger.n_features_in_:
        return
    feedback = Feedback(tagger.verdicts_, tagger.space_.digest_)
    row_by_name = {str(row): row for row in range(X.shape[0])}
    rows = {item: row_by_name[item] for item in feedback.items() if item in row_by_name}
    if not rows:
        return
    fitted_names = getattr(tagger, "feature_names_in_", None)
    table = in_order(X, fitted_names, owner="learn")
    features = check_features(table, owner="learn")
    feedback.check_rows(rows, lambda numbers: tagger.space_.project(features[numbers]))


def _names_within(names: Sequence[str], X: Any, path: Path) -> list[str]:
    """Return items under the names that they have in a table; files may be named by any path."""
    ids = {str(row) for row in range(X.shape[0])} if X.ids is None else set(X.ids)
    id_by_name = {name: name for name in names if name in ids}
    for name in dict.fromkeys(names):
        if name in id_by_name:
            continue
        rows: list[int] = []
        if isinstance(X, Extracted):
            with suppress(InputError):
                file_rows, _ = match_files(X.ids, [name])
                rows = file_rows.tolist()
        if not rows:
            naming = "the numbers of its rows, from 0" if X.ids is None else "its ids, each once"
            raise InputError(
                f"There is no item '{in_words(name, 60)}' in '{path}'; items are named by {naming}."
            )
        id_by_name[name] = X.ids[rows[0]]
    return [id_by_name[name] for name in names]


@contextmanager
def verdicts_for(model: Path, verdicts: Path | None, update: Path | None) -> Iterator[VerdictLog]:
    """Yield a log of all verdicts that a new model learns from, without changing another log.

    These are the verdicts of the model that is replaced, of the model that is updated, and those
    that are given: a file, or a folder with a log.
    """
    folder = None
    file_verdicts: list[Verdict] = []
    if verdicts is not None:
        if verdicts.is_dir() or verdicts.suffix == ".sqlite":
            folder = verdicts
        else:
            file_verdicts = read_answers(verdicts)
    sources = [source for source in (model, update, folder) if source is not None]
    with TemporaryDirectory() as temporary:
        log = VerdictLog(Path(temporary) / "together.sqlite")
        assert log.file is not None
        for source in sources:
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
        log.append(file_verdicts)
        with closing(log):
            yield log
