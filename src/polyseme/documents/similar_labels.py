"""Labels that may be one: card and cards, film and movies.

In: documents, their labels, and perhaps vectors of the labels' names. Out: pairs of labels, each
with a reason to merge them and the figures behind it.

- *Spelling*: names are the same but for case, accents, punctuation, small words, the order of words
  or an English plural; or one letter differs, and the labels are used alike.
- *Meaning*: names are nearest to each other by their vectors, and the labels are used alike.
- *Use*: labels stand beside the same others.

Use alone is weak: boy stands beside the same labels as girl. So are names alone: vectors of words
have cat beside dog. Names that share a word, such as metal and death metal, are mostly a label and
a narrower one, and names with other numbers differ on purpose: they are pairs by spelling alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray, check_number
from polyseme.documents.corpus import normalize_label
from polyseme.documents.label_names import LabelNames

Pair = tuple[int, int]  # columns, the lower one first
Matrix = NDArray[np.float64]

REASONS = ("spelling", "meaning", "use")
# So many of the commonest labels are compared by names and by use: a table of all pairs has 128 MB.
_MOST_COMPARED = 4000
# The fewest documents of labels that are compared by names, and by use alone.
FEWEST_NAMED = 5
_FEWEST_USED = 10
# From which strength on two names have the same meaning: by an encoder of texts, and by vectors of
# words, which have cat as near to dog as film to movie.
_SAME_MEANING = 0.52
_SAME_MEANING_BY_WORDS = 0.65
# The least cosine of use for labels whose names say nothing, and for those that differ in a letter.
_SAME_USE = 0.9
_SAME_USE_OF_TYPOS = 0.8
# The fewest letters of names in which one that differs may be a slip.
_FEWEST_LETTERS = 8

_APOSTROPHES = re.compile("['\u2019]")
_BETWEEN_WORDS = re.compile(r"[\W_]+")
_SMALL_WORDS = frozenset(("a", "an", "and", "of", "the"))
# Endings that an "e" stands behind in the plural: boxes, churches; and so houses and house agree.
_HISSING = ("s", "x", "z", "ch", "sh")


@dataclass(frozen=True)
class SimilarLabels:
    """Two labels that may be one.

    Attributes
    ----------
    label, into : str
        The rarer one, and the commoner one into which to merge it.
    reason : str
        "spelling", "meaning" or "use".
    spelling : float
        The share of letters that the names have in common, in order.
    use : float
        The cosine of how much more often than by chance others stand beside each.
    meaning : float or None
        The cosine of the vectors of the names, less the mean of all names; None without vectors.
    """

    label: str
    into: str
    reason: str
    spelling: float
    use: float
    meaning: float | None


class _Names(NamedTuple):
    """Vectors of names as they are compared, at length 1 around 0."""

    units: Matrix  # (n_labels, n_dimensions); 0 where a name has no vector
    are_words: bool  # whether they are those of the words in a table

    def cosine(self, pair: Pair) -> float | None:
        """Return the cosine of two names; None where one has no vector."""
        first, second = self.units[list(pair)]
        if not (first.any() and second.any()):
            return None
        return float(first @ second)


def similar_labels(
    documents: sp.csr_matrix,
    labels: Sequence[str],
    most: int = 20,
    names: LabelNames | None = None,
    *,
    names_are_words: bool = False,
) -> list[SimilarLabels]:
    """Suggest labels that may be one, by spelling, by meaning and by use.

    Parameters
    ----------
    documents : csr_matrix of bool, shape (n_documents, n_labels)
        Such as `store_.matrix` of a tagger.
    labels : sequence of str, length n_labels
        Its columns, `store_.labels`.
    most : int
        How many pairs to return for each reason.
    names : LabelNames, optional
        Vectors of these labels' names; without them there are no pairs by meaning.
    names_are_words : bool
        Whether the vectors are means of word vectors, rather than those of an encoder of texts.

    Returns
    -------
    list of SimilarLabels
        By reason, and the most alike first.
    """
    check_number("most", most, owner="similar_labels", low=1, whole=True)
    incidence = sp.csr_matrix(documents, dtype=np.float64)
    column_sums = incidence.sum(axis=0)
    counts: Matrix = np.asarray(column_sums, dtype=np.float64).ravel()
    profiles = _use_profiles(incidence, counts)
    compared_names = None
    if names is not None:
        compared_names = _Names(_centred_units(names, labels), names_are_words)

    pairs_by_reason = {
        "spelling": _pairs_by_spelling(labels, counts, profiles),
        "meaning": _pairs_by_meaning(labels, counts, profiles, compared_names),
        "use": _pairs_by_use(labels, counts, profiles),
    }
    suggestions: list[SimilarLabels] = []
    known_pairs: set[Pair] = set()
    for reason in REASONS:
        pairs = pairs_by_reason[reason] - known_pairs
        known_pairs |= pairs
        candidates = []
        for pair in sorted(pairs):
            rarer, commoner = sorted(pair, key=lambda column: (counts[column], labels[column]))
            if normalize_label(labels[rarer]) == normalize_label(labels[commoner]):
                continue  # a vocabulary takes them for one name, so that they cannot be merged
            candidate = SimilarLabels(
                label=labels[rarer],
                into=labels[commoner],
                reason=reason,
                spelling=_common_letters(labels[rarer], labels[commoner]),
                use=_cosine(profiles, pair),
                meaning=None if compared_names is None else compared_names.cosine(pair),
            )
            candidates.append(candidate)
        candidates.sort(key=_rank)
        suggestions += candidates[:most]
    return suggestions


def _rank(suggestion: SimilarLabels) -> tuple[float, str, str]:
    """Return the sort key of a suggestion among those of the same reason."""
    strength = suggestion.use
    if suggestion.reason == "meaning" and suggestion.meaning is not None:
        strength = _same_meaning(suggestion.meaning, suggestion.use)
    return (-strength, suggestion.label, suggestion.into)


# ---------------------------------------------------------------------- use


def _use_profiles(incidence: sp.csr_matrix, counts: Matrix) -> sp.csr_matrix:
    """Return how much others stand beside each label, (n_labels, n_labels), in rows of length 1.

    Each entry is the positive pointwise mutual information of two labels. `incidence` (n_documents,
    n_labels) is 1 where a document holds a label; rows are 0 where a label stands alone.
    """
    product = incidence.T @ incidence
    table = sp.coo_matrix(product)
    is_pair = table.row != table.col
    rows = table.row[is_pair]
    columns = table.col[is_pair]
    expected_counts = counts[rows] * counts[columns] / max(incidence.shape[0], 1)
    information = np.log(table.data[is_pair] / expected_counts)
    values = np.maximum(information, 0.0)
    profiles = sp.csr_matrix((values, (rows, columns)), shape=table.shape)
    profiles.eliminate_zeros()
    squares = profiles.multiply(profiles).sum(axis=1)
    lengths = np.sqrt(np.asarray(squares).ravel())
    scales = sp.diags_array(1 / np.where(lengths > 0, lengths, 1.0))
    return sp.csr_matrix(scales @ profiles)


def _cosine(profiles: sp.csr_matrix, pair: Pair) -> float:
    """Return the cosine of two labels' use."""
    first, second = pair
    product = profiles[[first]] @ profiles[[second]].T  # (1, 1)
    return float(product.toarray()[0, 0])


def _pairs_by_use(labels: Sequence[str], counts: Matrix, profiles: sp.csr_matrix) -> set[Pair]:
    """Return pairs of labels that are nearest to each other by use, and nearly the same."""
    columns = _commonest(counts, _FEWEST_USED)
    compared = profiles[columns]
    cosines = np.asarray((compared @ compared.T).toarray())
    cosines[_paired_by_spelling_alone([labels[column] for column in columns])] = 0.0
    return _mutual_neighbours(cosines, columns, _SAME_USE)


def _commonest(counts: Matrix, fewest: int) -> IntArray:
    """Return the columns of the commonest labels of at least so many documents."""
    columns = np.flatnonzero(counts >= fewest)
    by_count = np.argsort(-counts[columns], kind="stable")
    return columns[by_count[:_MOST_COMPARED]]


def _mutual_neighbours(likeness: Matrix, columns: IntArray, least: float) -> set[Pair]:
    """Return pairs of columns that are each other's nearest, and at least so alike.

    Several that are equally near are all nearest. `likeness` (n_columns, n_columns) is 0 where two
    are no pair.
    """
    if not len(columns):
        return set()
    highest = likeness.max(axis=1)
    is_nearest = (likeness >= highest[:, None]) & (likeness >= least)
    places = np.argwhere(np.triu(is_nearest & is_nearest.T, 1))
    pairs = np.sort(columns[places], axis=1).tolist()
    return {(first, second) for first, second in pairs}


def _paired_by_spelling_alone(labels: Sequence[str]) -> NDArray[np.bool_]:
    """Return which names share a word or a spelling or have other digits, (n, n)."""
    rows = []
    all_words = []
    for row, label in enumerate(labels):
        words = _name_words(label)
        for word in {*words, *_spellings(words)}:
            rows.append(row)
            all_words.append(word)
    _, word_numbers = np.unique(all_words, return_inverse=True)
    entries = (np.ones(len(rows)), (rows, word_numbers.ravel()))
    n_words = int(word_numbers.max(initial=0)) + 1
    has_word = sp.csr_matrix(entries, shape=(len(labels), n_words))
    shared_words = (has_word @ has_word.T).astype(bool)
    shares_word = shared_words.toarray()
    digits = ["".join(letter for letter in label if letter.isdigit()) for label in labels]
    _, digit_numbers = np.unique(digits, return_inverse=True)
    has_other_digits = digit_numbers[:, None] != digit_numbers[None, :]
    return np.asarray(shares_word | has_other_digits, dtype=bool)


# ------------------------------------------------------------------ meaning


def _centred_units(names: LabelNames, labels: Sequence[str]) -> Matrix:
    """Return the vectors of labels' names less the mean of all, at length 1; 0 for unknown ones."""
    table = names.vectors.toarray() if sp.issparse(names.vectors) else names.vectors
    row_by_label = {label: row for row, label in enumerate(names.labels)}
    vectors = np.zeros((len(labels), table.shape[1]))
    for place, label in enumerate(labels):
        row = row_by_label.get(label)
        if row is not None:
            vectors[place] = table[row]
    has_vector = vectors.any(axis=1)
    units = vectors[has_vector]
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    if len(units):
        units -= units.mean(axis=0)
    lengths = np.linalg.norm(units, axis=1, keepdims=True)
    vectors[has_vector] = units / np.where(lengths > 0, lengths, 1.0)
    return vectors


def _pairs_by_meaning(
    labels: Sequence[str], counts: Matrix, profiles: sp.csr_matrix, names: _Names | None
) -> set[Pair]:
    """Return pairs of labels whose names are nearest to each other, and which are used alike."""
    if names is None:
        return set()
    least = _SAME_MEANING_BY_WORDS if names.are_words else _SAME_MEANING
    columns = _commonest(counts, FEWEST_NAMED)
    units = names.units[columns].astype(np.float32)
    likeness = np.asarray(units @ units.T, dtype=np.float64)
    likeness[_paired_by_spelling_alone([labels[column] for column in columns])] = 0.0
    pairs = set()
    for pair in _mutual_neighbours(likeness, columns, least):
        cosine = names.cosine(pair)
        if cosine is not None and _same_meaning(cosine, _cosine(profiles, pair)) >= least:
            pairs.add(pair)
    return pairs


def _same_meaning(likeness: float, use: float) -> float:
    """Return how strongly two labels seem to mean the same, by cosines of names and of use."""
    return likeness * float(np.sqrt(use))


# ----------------------------------------------------------------- spelling


def _pairs_by_spelling(labels: Sequence[str], counts: Matrix, profiles: sp.csr_matrix) -> set[Pair]:
    """Return pairs of names that are spelled alike, each with the commonest of its spellings."""
    columns = np.flatnonzero(counts > 0)
    # The commonest first, so that the first of each group is what the others are merged into.
    by_count = sorted(columns.tolist(), key=lambda column: (-counts[column], labels[column]))
    columns_by_spelling: dict[str, list[int]] = defaultdict(list)
    columns_by_slip: dict[str, list[int]] = defaultdict(list)
    for column in by_count:
        spellings = _spellings(_name_words(labels[column]))
        for spelling in set(spellings):
            columns_by_spelling[spelling].append(column)
        for slip in _slips(spellings[0]):
            columns_by_slip[slip].append(column)
    pairs = set(_pairs_with_first(columns_by_spelling))
    for pair in set(_pairs_with_first(columns_by_slip)) - pairs:
        if _cosine(profiles, pair) >= _SAME_USE_OF_TYPOS:
            pairs.add(pair)
    return pairs


def _pairs_with_first(columns_by_key: dict[str, list[int]]) -> Iterator[Pair]:
    """Yield the pairs of each group's first column with each other one."""
    for first, *rarer_columns in columns_by_key.values():
        for column in rarer_columns:
            yield min(first, column), max(first, column)


def _spellings(words: Sequence[str]) -> tuple[str, str]:
    """Return the words of a name as one, in their order and in the alphabet's."""
    return "".join(words), "".join(sorted(words))


def _slips(spelling: str) -> set[str]:
    """Return a spelling with and without each of its letters; none of short names and numbers.

    Two spellings of which one letter is missing, too many or another have one of these in common.
    """
    if len(spelling) < _FEWEST_LETTERS or any(letter.isdigit() for letter in spelling):
        return set()
    shortened = {spelling[:place] + spelling[place + 1 :] for place in range(len(spelling))}
    return shortened | {spelling}


def _name_words(label: str) -> list[str]:
    """Return the words of a name without case, accents, small words and English plurals."""
    decomposed = unicodedata.normalize("NFKD", normalize_label(label))
    letters = [letter for letter in decomposed if not unicodedata.combining(letter)]
    text = "".join(letters).replace("&", " and ")
    text = _APOSTROPHES.sub("", text)
    words = [word for word in _BETWEEN_WORDS.split(text) if word]
    large_words = [word for word in words if word not in _SMALL_WORDS]
    stems = [_stem(word) for word in large_words or words]
    return stems or [normalize_label(label)]


def _stem(word: str) -> str:
    """Return a word without an English plural's ending."""
    stem = word
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        stem = word.removesuffix("s")
    if len(stem) > 3 and stem.endswith("ie"):
        return stem.removesuffix("ie") + "y"
    if len(stem) > 3 and stem.removesuffix("e").endswith(_HISSING):
        return stem.removesuffix("e")
    return stem


def _common_letters(first: str, second: str) -> float:
    """Return the share of letters that two names have in common, in order."""
    matcher = SequenceMatcher(None, normalize_label(first), normalize_label(second), autojunk=False)
    return matcher.ratio()
