"""What a fitted tagger learns to know later, without re-training: documents, and labels by name.

In: documents, or labels with word vectors. Out: the same tagger, which ranks more labels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self

from numpy.typing import ArrayLike

from polyseme._validation import InputError, check_fitted, first_few, warn_unplaced
from polyseme.corpus import Documents, LabelCorpus, as_corpus
from polyseme.experts.named import NamedLabels
from polyseme.tagger.asking import AskedTagger
from polyseme.words import WordVectors


class GrowingTagger(AskedTagger):
    """What `ZeroShotTagger` takes in and gives up after it was fitted."""

    def add_documents(self, documents: Documents) -> tuple[str, ...]:
        """Let known concepts grow, without re-training; new labels become oov labels.

        Parameters
        ----------
        documents : LabelCorpus, iterable of label collections, indicator frame, or path

        Returns
        -------
        tuple of str
            The names of the documents taken in, for `remove_documents`.
        """
        check_fitted(self, "known_")
        corpus = as_corpus(documents, normalize=self.embedding_.normalize_labels_)
        known, ids, unplaced = self.known_.add(self.embedding_, corpus)
        self._know(known, self.named_)
        self.unplaced_ += unplaced
        warn_unplaced(unplaced, len(corpus))
        return ids

    def remove_documents(self, ids: Collection[str]) -> Self:
        """Forget known documents, without re-training.

        A vocabulary label without documents stays, with score 0; an oov label disappears.

        Parameters
        ----------
        ids : collection of str
            Names of known documents.
        """
        check_fitted(self, "known_")
        return self._know(self.known_.remove(ids), self.named_)

    def add_labels(
        self, labels: Collection[str], vectors: WordVectors | Mapping[str, ArrayLike]
    ) -> tuple[str, ...]:
        """Rank labels that no document holds, by what their names mean elsewhere.

        A hint is all that names give: documents say more, and as soon as some hold the label, they
        alone count. Labels that are known already are passed over.

        Parameters
        ----------
        labels : collection of str
        vectors : WordVectors, or mapping of str to sequence of float
            Vectors of words; every label must have a word among them. They are not kept.

        Returns
        -------
        tuple of str
            The labels taken in, of the kind "oov".
        """
        check_fitted(self, "known_")
        if self.experts_ is None:
            raise InputError("Labels by name need the score 'experts' and features; add documents.")
        if not isinstance(vectors, (WordVectors, Mapping)):
            raise InputError(
                "`vectors` must be WordVectors or a mapping of words to numbers; got "
                f"{type(vectors).__name__}. `WordVectors.read` reads a file."
            )
        words = vectors if isinstance(vectors, WordVectors) else WordVectors(vectors)
        known = {self._key(label) for label in self.labels_}
        fresh = [label for label in self._names(labels) if self._key(label) not in known]
        if fresh:
            seen = [self.expert_labels_[column] for column in self.experts_.seen_]
            placed = NamedLabels.place(fresh, seen, words)
            named = placed if self.named_ is None else self.named_.together(placed)
            self._know(self.known_, named)
        return tuple(fresh)

    def remove_labels(self, labels: Collection[str]) -> Self:
        """Forget labels that were added by name.

        Parameters
        ----------
        labels : collection of str
        """
        check_fitted(self, "known_")
        named = () if self.named_ is None else self.named_.labels
        gone = {self._key(label) for label in self._names(labels)}
        unknown = gone - {self._key(label) for label in named}
        if unknown:
            raise InputError(
                f"Not known by name: {first_few(sorted(unknown))}; labels that documents hold go "
                "with their documents."
            )
        if self.named_ is None:
            return self
        kept = [at for at, label in enumerate(named) if self._key(label) not in gone]
        return self._know(self.known_, self.named_.select(kept))

    def _names(self, labels: Collection[str]) -> tuple[str, ...]:
        """Check labels that are given by name, and tidy them as those of documents are."""
        given = [labels] if isinstance(labels, str) else labels
        corpus = LabelCorpus.from_documents([given], normalize=self.embedding_.normalize_labels_)
        return corpus.labels
