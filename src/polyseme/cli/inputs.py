"""Read what commands take: documents, features, extracted folders, verdicts.

In: paths and options of a command. Out: corpora, items and verdicts that belong together, or an
error of one sentence.

Terms: a *corpus* is the documents of a table, in its order. *Items* are the rows of a table of
features, or the files of an *extraction*, the folder that `polyseme extract` wrote. Both have `ids`
(None where rows have only numbers) and can be indexed by rows. The *head* of an item is what its
output record begins with: its file, its id or its row.
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

_MOST_DIGITS = 18  # of a row's number, so that it is one of 64 bits
_MOST_SKIPPED = 20  # skipped files that are printed


class TableReader(NamedTuple):
    """Read tables with the options of a command; print how they were understood."""

    tables: TableOptions = TableOptions()
    features_column: str | None = None  # the column of vectors that are the features
    normalize: bool = True  # whether labels that differ only in case or white space are one

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
        documents_with_tags = filter(None, corpus)
        first_document = next(documents_with_tags, ())
        listed = first_few(first_document, most=8) or "no tags"
        n_tags = counted(len(corpus.labels), "tag")
        mean_length = corpus.lengths.mean()
        say(f"{path.name}: {n_tags}, {mean_length:.1f} a document; first document: {listed}")
        return corpus


class Items(NamedTuple):
    """Items with their documents."""

    X: Any  # a `Table` of features, `Extracted` files, or None where there are only tags
    documents: LabelCorpus  # of the items, in their order
    everything: LabelCorpus | None = None  # all documents in use, also those of no item


def read_items(
    features: Path | None, documents: Path | None, split: str | None, reader: TableReader
) -> Items:
    """Read features, or an extracted folder, with the documents of all items or of a split.

    Parameters
    ----------
    features, documents : Path or None
        One table may hold both: it is then given as features alone, or, where it has a column of
        vectors, as documents alone. An extracted folder may have its keywords as documents.
    split : str or None
        Use only documents whose `split` field has this value.
    reader : TableReader

    Returns
    -------
    Items
        Features and documents are joined by id or by file name, else row by row.
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
    is_in_split = _documents_of_split(corpus, split, documents)
    split_corpus = corpus
    if not is_in_split.all():
        split_corpus = corpus.select(is_in_split)
    sources = (features, documents)
    if extraction is not None:
        n_tagged = sum(bool(tags) for tags in extraction.tags)
        if n_tagged:
            say(
                f"the keywords of {counted(n_tagged, 'file')} are not used, since --documents "
                "names their tags; leave it out to learn from them"
            )
        rows, document_rows = _join(extraction.ids, split_corpus, reader, sources, files=True)
        joined_files = extraction[rows.tolist()]
        return Items(joined_files, split_corpus.select(document_rows), split_corpus)

    # Without ids row joins row, so that the split is taken only after the join.
    table = read_features_of(features, reader.feature_options)
    table = table.merged(features.name, strict=reader.tables.strict)
    names = range(len(table)) if table.ids is None else table.ids
    rows, document_rows = _join(names, corpus, reader, sources)
    is_wanted = is_in_split[document_rows]
    item_corpus = corpus.select(document_rows[is_wanted])
    has_all = len(item_corpus) == len(split_corpus)
    everything = None if has_all else split_corpus
    X = table[rows[is_wanted]]
    return Items(X, item_corpus, everything)


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
    joined_sets, _ = join_corpora(items.everything, label_sets)
    return joined_sets


def is_table(folder: Path) -> bool:
    """Return whether a folder is a table in shards, and none that `polyseme extract` wrote."""
    return not is_extraction(folder) and is_sharded(folder)


def _items_of_table(
    path: Path, split: str | None, reader: TableReader, has_number_columns: bool
) -> Items:
    """Read items with their documents from one table.

    With `has_number_columns` every column of numbers is a feature; otherwise the features are a
    column of vectors, and without any the items are None.
    """
    table = reader.table(path, "all" if has_number_columns else "vectors")
    if not table.has_tags:
        raise InputError(
            f"'{path}' has no column of tags; name it with --tags-column, or give the tags of "
            "each item with --documents."
        )
    corpus = reader.to_corpus(table, path)
    is_in_split = _documents_of_split(corpus, split, path)
    if table.features is None and table.unused:
        listed = first_few(table.unused, most=3)
        say(
            f"columns of numbers in '{path}' are not used ({listed}); --features with the same "
            "table takes them as features"
        )
    X = None
    if table.features is not None:
        rows = np.flatnonzero(is_in_split)
        X = table[rows]
        if not has_number_columns:
            say(f"features: the column of vectors, {X.shape[1]} numbers each")
    if not is_in_split.all():
        corpus = corpus.select(is_in_split)
    return Items(X, corpus)


def _documents_of_split(corpus: LabelCorpus, split: str | None, path: Path) -> NDArray[np.bool_]:
    """Return which documents are of a split, (n_documents,); all where no split is given."""
    if split is None:
        return np.ones(len(corpus), dtype=bool)
    split_of_each = corpus.splits or ()
    if split not in split_of_each:
        known_splits = sorted(set(split_of_each))
        listed = "none; the documents have no `split` field"
        if known_splits:
            listed = ", ".join(known_splits)
        raise InputError(f"Unknown split '{split}' in '{path}'; known: {listed}.")
    return np.array([document_split == split for document_split in split_of_each])


def _join(
    names: Sequence[Any],
    corpus: LabelCorpus,
    reader: TableReader,
    sources: tuple[Path, Path],
    *,
    files: bool = False,
    all_tagged: bool = True,
) -> tuple[IntArray, IntArray]:
    """Join items and documents; print how.

    Parameters
    ----------
    names : sequence
        Ids of the items, names of files, or numbers of rows.
    corpus : LabelCorpus
        Joined by its ids, or row by row where it has none of its own.
    reader : TableReader
    sources : (Path, Path)
        The files of the items and of the documents, for messages.
    files : bool
        Whether names are those of files, which may be given by any end of their path.
    all_tagged : bool
        Whether items without a document are worth a warning.

    Returns
    -------
    rows, document_rows : int64 arrays, shape (n_joined,)
        Items, and the document of each.
    """
    # Files are matched by name, however the documents came by their ids.
    has_ids = files or not corpus.numbered
    document_ids = corpus.ids if has_ids else None
    join = join_rows(
        names,
        document_ids,
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


def extractor_of(X: Any, n_words: int | None) -> MediaFeatures | None:
    """Make the unfitted feature extractor of extracted items; None for a table of numbers.

    It has the parameters that the items were extracted with. `n_words` is the size of the codebook
    that it learns for sound.
    """
    if not isinstance(X, Extracted):
        if n_words is not None:
            raise InputError("`--words` is for folders that `extract` wrote, not for numbers.")
        return None
    extractor = extractor_class(X.kind)
    parameters = dict(X.parameters)
    if n_words is not None:
        has_codebook = "n_words" in extractor().get_params()
        has_network = parameters.get("network") is not None
        if not has_codebook:
            raise InputError(f"`--words` does not apply to {X.kind} files.")
        if has_network:
            raise InputError(f"`--words` does not apply to {X.kind} files of a network.")
        parameters["n_words"] = n_words
    return extractor(**parameters)


def item_heads(X: Any) -> list[dict[str, str]]:
    """Return the head of each item: its file or its id; empty where rows have only numbers."""
    if X.ids is None:
        return [{} for _ in range(X.shape[0])]
    field = "file" if isinstance(X, Extracted) else "id"
    return [{field: item_id} for item_id in X.ids]


def tags_of_items(
    corpus: LabelCorpus,
    heads: Sequence[Mapping[str, Any]],
    tags_file: Path,
    features_file: Path,
    reader: TableReader,
) -> list[tuple[str, ...]]:
    """Return the tags that each item has in a corpus; none where it is not in it.

    Parameters
    ----------
    corpus : LabelCorpus
    heads : sequence of dict
        Of the items, as `item_heads` returns them: joined by file, by id, or else row by row.
    tags_file, features_file : Path
        Where corpus and items were read, for messages.
    reader : TableReader
    """
    n_items = len(heads)
    are_files = n_items > 0 and "file" in heads[0]
    names: Any = [head.get("file", head.get("id")) for head in heads]
    if None in names:
        names = range(n_items)
    sources = (features_file, tags_file)
    rows, document_rows = _join(names, corpus, reader, sources, files=are_files, all_tagged=False)
    item_tags: list[tuple[str, ...]] = [()] * n_items
    for row, document_row in zip(rows, document_rows, strict=True):
        item_tags[row] = corpus.document(document_row)
    return item_tags


def read_item(path: Path, name: str, reader: TableReader) -> tuple[Any, dict[str, Any]]:
    """Read one item, by its id, its row's number or its file's name; return it and its head."""
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
    head: dict[str, Any] = {}
    if names:
        head["id"] = names[row]
    head["row"] = row
    return table[row : row + 1], head


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
    """Read items without tags; leave out those whose ids are among the tagged items `X`."""
    pool = read_untagged(path, extractor, reader)
    if not pool.ids:
        return pool
    tagged_ids = set(X.ids or ())
    untagged_rows = [row for row, item_id in enumerate(pool.ids) if item_id not in tagged_ids]
    n_tagged = len(pool.ids) - len(untagged_rows)
    if not n_tagged:
        return pool
    if not untagged_rows:
        raise InputError(f"All items in '{path}' have tags; leave out --unlabelled.")
    say(f"{path.name}: {counted(n_tagged, 'item')} with tags left out")
    return pool[untagged_rows]


def read_media(paths: Sequence[Path], extractor: MediaFeatures) -> Extracted:
    """Extract media files, with their paths below the given folders as ids; skip unusable ones."""
    files, _ = find_media(paths, extractor.suffixes)
    ids = []
    raw_features = []
    skipped = []
    with FileProgress(f"looking at {extractor.kind} files") as progress, quiet_decoders():
        file_paths = [file.path for file in files]
        outcomes = extractor.extract(file_paths)  # one at a time, as they are asked for
        for file, outcome in zip(files, outcomes, strict=True):
            if isinstance(outcome, MediaError):
                skipped.append((file.id, str(outcome)))
            else:
                ids.append(file.id)
                raw_features.append(outcome)
            n_done = len(ids) + len(skipped)
            progress.tell(n_done, len(files), len(skipped))
    for file_id, reason in skipped[:_MOST_SKIPPED]:
        say(f"skipped {file_id}: {reason}")
    if not ids:
        listed = first_few([str(path) for path in paths])
        raise InputError(f"There are no {extractor.kind} files that can be used in {listed}.")
    return Extracted(extractor.kind, extractor.preprocessing(), tuple(ids), raw_features)


# ---------------------------------------------------------------------- answers


def read_answers(path: Path) -> list[Verdict]:
    """Read the answers in a file that people have filled in; there must be at least one."""
    verdicts = read_verdicts(path)
    if not verdicts:
        raise InputError(
            f"'{path}' has no answer; write true or false as the `answer` of its questions."
        )
    return verdicts


def read_label_pairs(path: Path) -> list[tuple[str, str]]:
    """Read the columns `label` and `into` of a `.jsonl`, `.csv` or `.tsv` file."""
    from polyseme.io.text_tables import read_records

    if not path.is_file():
        raise InputError(f"There is no file at {path}; check the path.")
    pairs: list[tuple[str, str]] = []
    for number, record in read_records(path):
        label = record.get("label")
        into = record.get("into")
        if not (isinstance(label, str) and isinstance(into, str)):
            raise InputError(
                f"Line {number} of {path.name} must have a tag as `label` and one as `into`, as "
                "`labels --merges` writes them."
            )
        pairs.append((label, into))
    if not pairs:
        raise InputError(f"'{path}' has no pair of tags.")
    return pairs


def items_to_learn(
    names: Sequence[str], tagger: ZeroShotTagger, features: Path | None, reader: TableReader
) -> tuple[list[str], Any]:
    """Return the items that a command line or a file of answers names, and their features.

    Parameters
    ----------
    names : sequence of str
        Ids, numbers of rows or paths of files; an item may be named several times.
    tagger : ZeroShotTagger
    features : Path or None
        Where the items are. Without it, they are files for the model's feature extractor, or known
        from earlier verdicts.
    reader : TableReader

    Returns
    -------
    item_names : list of str, of the same length
        As the model's verdicts name the items.
    X : as for `ZeroShotTagger.learn`
        None where all items are known from earlier verdicts.
    """
    extractor = tagger.features_
    if features is not None:
        X = read_untagged(features, extractor, reader)
        return _names_within(names, X, features), X
    log = tagger.verdicts_
    known_items = log.vector_keys(tagger.space_.digest_, set(names))
    distinct_names = dict.fromkeys(names)
    new_names = [name for name in distinct_names if name not in known_items]
    if not new_names:
        return list(names), None
    if extractor is None or not Path(new_names[0]).exists():
        noun = "item" if extractor is None else "file"
        raise InputError(
            f"Nothing is known of the {noun} '{new_names[0]}'; give its features with --features."
        )
    path_by_name = {name: Path(name) for name in new_names}
    item_names = []
    for name in names:
        # A single file's id is its path with slashes, also on Windows.
        item_name = path_by_name[name].as_posix() if name in path_by_name else name
        item_names.append(item_name)
    return item_names, read_media(list(path_by_name.values()), extractor)


def check_rows(tagger: ZeroShotTagger, X: Any) -> None:
    """Raise where rows without ids are other items than the verdicts on their numbers are about."""
    n_rows, n_features = X.shape
    if X.ids is not None or n_features != tagger.n_features_in_:
        return
    feedback = Feedback(tagger.verdicts_, tagger.space_.digest_)
    row_by_name = {str(row): row for row in range(n_rows)}
    row_by_item = {}
    for item in feedback.items():
        if item in row_by_name:
            row_by_item[item] = row_by_name[item]
    if not row_by_item:
        return
    fitted_names = getattr(tagger, "feature_names_in_", None)
    table = in_order(X, fitted_names, owner="learn")
    features = check_features(table, owner="learn")
    feedback.check_rows(row_by_item, lambda rows: tagger.space_.project(features[rows]))


def _names_within(names: Sequence[str], X: Any, path: Path) -> list[str]:
    """Return items under their ids in a table or extraction; files may be named by any path."""
    if X.ids is None:
        ids = {str(row) for row in range(X.shape[0])}
    else:
        ids = set(X.ids)
    id_by_name = {name: name for name in names if name in ids}
    for name in dict.fromkeys(names):
        if name in id_by_name:
            continue
        matching_rows: list[int] = []
        if isinstance(X, Extracted):
            with suppress(InputError):  # what matches no file, or several, is refused below
                file_rows, _ = match_files(X.ids, [name])
                matching_rows = file_rows.tolist()
        if not matching_rows:
            naming = "the numbers of its rows, from 0" if X.ids is None else "its ids, each once"
            raise InputError(
                f"There is no item '{in_words(name, 60)}' in '{path}'; items are named by {naming}."
            )
        id_by_name[name] = X.ids[matching_rows[0]]
    return [id_by_name[name] for name in names]


@contextmanager
def verdicts_for(model: Path, verdicts: Path | None, update: Path | None) -> Iterator[VerdictLog]:
    """Yield a log of all verdicts that a new model learns from; it is deleted at the end.

    Parameters
    ----------
    model : Path
        The model that is written; where it replaces one, that one's verdicts are learned from.
    verdicts : Path or None
        A file of answers, a log (`.sqlite`), or the folder of a model that has one.
    update : Path or None
        The model that the new one starts from.
    """
    log_source = None
    file_verdicts: list[Verdict] = []
    if verdicts is not None:
        if verdicts.is_dir() or verdicts.suffix == ".sqlite":
            log_source = verdicts
        else:
            file_verdicts = read_answers(verdicts)
    sources = [source for source in (model, update, log_source) if source is not None]
    # The logs themselves must not change, so that all are copied into a temporary one.
    with TemporaryDirectory() as temporary:
        log = VerdictLog(Path(temporary) / "together.sqlite")
        assert log.file is not None
        for source in sources:
            with closing(VerdictLog(source)) as source_log:
                if source == log_source and not source_log.count:
                    raise InputError(
                        f"There are no verdicts in '{source}'; `polyseme learn` adds some."
                    )
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
