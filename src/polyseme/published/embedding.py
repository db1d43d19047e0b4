"""The concept embedding: points in concept space for labels in context.

In: label documents. Out: a `ConceptEmbedding`, which turns every label of a document into a concept
and every document into a target point.

Terms: the *vocabulary* is the labels of the documents of `fit`; its order is that of columns and
label ids. An *oov* label is outside of it (in the paper: Γ_O). The *target* of a document is the
mean of its concepts, equation (5).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator, copy_of
from polyseme.base.machine import check_memory, one_thread_below
from polyseme.base.text import shown
from polyseme.base.validation import (
    InputError,
    IntArray,
    RandomState,
    as_generator,
    check_device,
    check_fitted,
    check_kind,
    check_number,
    check_option,
    check_path,
    draw_seed,
    unknown_name,
    warn_dropped,
)
from polyseme.documents.concepts import Concepts
from polyseme.documents.corpus import Documents, LabelCorpus, as_corpus, check_corpus, unique_rows
from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor
from polyseme.published.losses import WEIGHTINGS, LossSettings
from polyseme.published.network import (
    ConceptNetwork,
    count_weights,
    encode_documents,
    row_means,
)
from polyseme.published.training import (
    Checkpoint,
    ConceptTrainer,
    TrainingPlan,
    error_free_score,
    hold_out,
    training_progress,
)
from polyseme.storage.array_checks import (
    Anything,
    Array,
    Fields,
    Flag,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Plain,
    Text,
    Whole,
    check_arrays,
    check_parts,
    declare_parameters,
    name_part_in_errors,
    require,
)
from polyseme.storage.model_file import State, as_python_value, join_states, part_arrays

# Documents whose concepts are in memory at a time; targets do not depend on it.
_DOCUMENTS_TOGETHER = 32_768
# Parameters that the state leaves out: those of the training alone, and the descriptors, which have
# a state of their own.
_UNSAVED_PARAMETERS = {"checkpoint", "device", "verbose", "random_state"}
_UNSAVED_PARAMETERS |= {"label_descriptor", "context_descriptor"}


class AlignedDocuments(NamedTuple):
    """Documents by their columns in the vocabulary and their columns of oov labels."""

    vocabulary: sp.csr_matrix  # boolean, (n_documents, n_vocabulary)
    oov: sp.csr_matrix  # boolean, (n_documents, n_oov)
    oov_labels: tuple[str, ...]  # in the order of their columns
    dropped: IntArray  # rows of documents none of whose labels is in the vocabulary


@dataclass(repr=False, eq=False)  # both are scikit-learn's
class ConceptEmbedding(Estimator):
    """Learn what a label means in the company of the other labels of a document.

    A Siamese network sees a label's descriptor and its document's topics, learns to predict the
    document, and is shaped so that distances between concepts follow the likeness of their
    contexts (in the paper: CE(τ, δ), section 3.2).

    Parameters
    ----------
    n_components : int
        Dimensions of the concept space (in the paper: d).
    hidden_sizes : sequence of int
        Units of the hidden layers (in the paper: 100, 100 for MagTag5K and 200, 200 for HSUN).
    label_descriptor : LabelDescriptor, optional
        How labels are described (in the paper: t(τ)).
    context_descriptor : ContextDescriptor, optional
        How contexts are described (in the paper: lc(δ)); holds the number of topics |Φ|.
    positive_weighting : {"balanced", "literal", "none"}
        Weight on the labels that a target names (in the paper: κ). "balanced" is what the paper's
        text asks for, "literal" what its formula prints, "none" leaves the weight out.
    context_sensitivity : float
        How fast likeness falls with the divergence of two contexts (in the paper: λ).
    distance_scale : float, optional
        Distance of unrelated concepts (in the paper: β); default √n_components.
    negative_weight : float
        Weight of pairs of two negative examples (in the paper: ρ).
    distance_weight : float
        Weight of the distance loss against the prediction loss (in the paper: α).
    training : TrainingPlan, optional
        Optimiser, schedule, sampling, stopping.
    normalize_labels : bool
        Whether labels that differ only in case or white space are one label.
    checkpoint : str or Path, optional
        A folder where training leaves its state after every epoch. If it holds the state of a run
        on the same data with the same parameters, that run goes on and ends as if it had never
        stopped; a finished one is taken as it is. Remove the folder when it is no longer needed.
    device : str
        Where the network is trained ("cpu", "cuda"); it is used on the processor.
    verbose : bool
        Whether a progress bar is shown on standard error.
    random_state : int, numpy Generator or None
        Seeds topics, weights, held-out documents and sampling. Same seed, same result.

    Attributes
    ----------
    classes_ : tuple of str, length n_labels
        The vocabulary, in column order (in the paper: Γ^(S)).
    history_ : list of dict
        One record per epoch: stage, losses, and once weights may be kept the held-out score.
    best_score_ : float
        Error-free example MAP of the weights that were kept, in 0..1, on documents held out from
        the network (the descriptors know them); nan without held-out documents.
    distance_scale_ : float
        The distance scale used.
    label_descriptor_, context_descriptor_ : fitted descriptors
    network_ : ConceptNetwork

    References
    ----------
    U. Sandouk, K. Chen: Multi-Label Zero-Shot Learning via Concept Embedding, 2016, section 3.2.

    Examples
    --------
    >>> from polyseme.published.embedding import ConceptEmbedding
    >>> from polyseme.published.training import TrainingPlan
    >>> documents = [{"apple", "phone"}, {"apple", "pie"}, {"phone", "screen"}, {"pie", "oven"}] * 5
    >>> embedding = ConceptEmbedding(n_components=4, training=TrainingPlan(max_epochs=2),
    ...                              random_state=0).fit(documents)
    >>> embedding.transform([{"apple", "pie"}]).points.shape
    (2, 4)
    """

    components: ClassVar[dict[str, type[Estimator]]] = {
        "label_descriptor": LabelDescriptor,
        "context_descriptor": ContextDescriptor,
        "training": TrainingPlan,
    }

    n_components: int = 200
    hidden_sizes: Sequence[int] = (200, 200)
    label_descriptor: LabelDescriptor | None = None
    context_descriptor: ContextDescriptor | None = None
    positive_weighting: str = "balanced"
    context_sensitivity: float = 0.6
    distance_scale: float | None = None
    negative_weight: float = 0.5
    distance_weight: float = 1.0
    training: TrainingPlan | None = None
    normalize_labels: bool = True
    checkpoint: str | Path | None = None
    device: str = "cpu"
    verbose: bool = False
    random_state: RandomState = None

    @classmethod
    def from_preset(cls, name: str = "default", **parameters: Any) -> Self:
        """Return an embedding with a named set of parameters.

        Parameters
        ----------
        name : {"default", "paper"}
            "default" leaves the constructor's defaults: what trains best. "paper" is the published
            structure and constants: greedy layer-wise pre-training, prediction learning, then the
            combined loss, by plain stochastic gradient descent on losses summed over the batch,
            with a rate that decays by 0.95 every 200 epochs. The layers are those published for
            HSUN, the rate is the one published for MagTag5K: with HSUN's own (5e-6) an epoch moves
            the weights twenty times less, and several thousand are needed. What the paper leaves
            open (batch size, epochs, stopping, λ) is our choice.
        **parameters
            Overrides of single parameters.
        """
        if name not in ("default", "paper"):
            raise unknown_name("preset", name, ("default", "paper"))
        if name == "paper":
            plan = TrainingPlan(
                optimizer="sgd", learning_rate=1e-4, schedule="step", decay=0.95, decay_every=200,
                reduction="sum", batch_size=256, min_steps=1, max_epochs=300, min_epochs=50,
                patience=50, pretrain_epochs=10, prediction_epochs=20,
            )  # fmt: skip
            published = {"n_components": 200, "hidden_sizes": (200, 200), "distance_scale": None}
            published |= {"negative_weight": 0.5, "distance_weight": 1.0, "training": plan}
            parameters = published | {"context_sensitivity": 1.0} | parameters
        return cls(**parameters)

    def fit(
        self,
        documents: Documents,
        labels: Sequence[str] | None = None,
        validation: Documents | None = None,
    ) -> Self:
        """Learn the concept space from label documents.

        Parameters
        ----------
        documents : LabelCorpus, iterable of label collections, indicator matrix, or path
            The label sets.
        labels : sequence of str, optional
            The labels of the columns, when `documents` is an indicator matrix.
        validation : the same forms, optional
            Documents for early stopping (in the paper: S_val), of which nothing else is learned;
            by default a share of `documents` is held out, see `TrainingPlan`.
        """
        # Check parameters and input.
        plan = self.check_parameters()
        corpus = as_corpus(documents, labels, normalize=self.normalize_labels)
        corpus = check_corpus(corpus, owner=type(self).__name__).without_unused()
        matrix = corpus.matrix
        held_out = None
        if validation is not None:
            held_out = self._validation_matrix(validation, labels, corpus)
        checkpoint = Checkpoint(
            self.checkpoint,
            self.get_params(),
            corpus.labels,
            (matrix, held_out),
        )
        seed = checkpoint.seed(self.random_state)
        # Topics, weights, held-out documents and sampling draw from it in this order; another order
        # gives another model for the same seed.
        generator = as_generator(seed)

        # Describe labels and contexts.
        label_descriptor = copy_of(self.label_descriptor or LabelDescriptor())
        label_descriptor.fit(matrix)
        context_descriptor = copy_of(self.context_descriptor or ContextDescriptor())
        topic_seed = draw_seed(generator)
        if context_descriptor.random_state is None:
            context_descriptor.set_params(random_state=topic_seed)
        context_descriptor.fit(matrix)
        contexts = context_descriptor.transform(matrix)

        # Build the network and its loss.
        n_topics = contexts.shape[1]
        n_labels = len(corpus.labels)
        self._check_network_size(n_labels, n_topics)
        weight_seed = draw_seed(generator)
        weight_generator = torch.Generator().manual_seed(weight_seed)
        network = ConceptNetwork(
            label_descriptor.descriptors_,
            n_topics,
            self.hidden_sizes,
            self.n_components,
            weight_generator,
        )
        scale = self.distance_scale
        if scale is None:
            scale = math.sqrt(self.n_components)
        loss = LossSettings(
            weighting=self.positive_weighting,
            sensitivity=self.context_sensitivity,
            scale=scale,
            negative_weight=self.negative_weight,
            distance_weight=self.distance_weight,
        )

        # Hold out documents for early stopping.
        if held_out is not None:
            held_out_contexts = context_descriptor.transform(held_out)
        else:
            rows = hold_out(matrix, plan.validation_fraction, generator)
            if len(rows):
                n_documents = matrix.shape[0]
                training_rows = np.setdiff1d(np.arange(n_documents), rows)
                held_out = sp.csr_matrix(matrix[rows])
                held_out_contexts = contexts[rows]
                matrix = sp.csr_matrix(matrix[training_rows])
                contexts = contexts[training_rows]
        evaluate = None
        if held_out is not None:
            evaluate = error_free_score(matrix, contexts, held_out, held_out_contexts)

        # Train, or go on where an interrupted run stopped.
        sampling_seed = draw_seed(generator)
        sampling_generator = np.random.default_rng(sampling_seed)
        trainer = ConceptTrainer(
            network,
            matrix,
            contexts,
            plan,
            loss,
            sampling_generator,
            evaluate,
            self.device,
        )
        checkpoint.restore(trainer)
        with (
            one_thread_below(n_labels),
            training_progress(trainer, verbose=self.verbose) as show,
        ):

            def after_epoch(record: dict[str, Any]) -> None:
                checkpoint.write(trainer, seed)
                show(record)

            trainer.run(after_epoch)

        best_score = trainer.best_score
        if math.isinf(best_score):
            best_score = math.nan  # no epoch was scored
        self.network_ = trainer.network.to("cpu")
        self.label_descriptor_ = label_descriptor
        self.context_descriptor_ = context_descriptor
        self.classes_ = corpus.labels
        self.normalize_labels_ = corpus.normalize
        self.spellings_ = dict(corpus.spellings)
        self.distance_scale_ = float(scale)
        self.history_ = trainer.history
        self.best_score_ = best_score
        return self

    def _validation_matrix(
        self, validation: Documents, labels: Sequence[str] | None, corpus: LabelCorpus
    ) -> sp.csr_matrix:
        """Return the documents for early stopping over the vocabulary, without empty ones.

        `corpus` has the vocabulary; `labels` are those of the columns of `validation`, where it is
        an indicator matrix. The columns of the result, (n_filled, n_labels), are the vocabulary's.
        """
        documents = as_corpus(validation, labels, normalize=self.normalize_labels)
        matrix, _ = documents.align(corpus.labels)
        n_labels = len(corpus.labels)
        vocabulary_columns = matrix[:, :n_labels]
        matrix = sp.csr_matrix(vocabulary_columns)
        if not matrix.nnz:
            raise InputError("`validation` holds no label of `documents`; give other documents.")
        lengths = np.diff(matrix.indptr)
        is_filled = lengths > 0
        return sp.csr_matrix(matrix[is_filled])

    def _layer_sizes(self, n_labels: int, n_topics: int) -> list[int]:
        """Return the `sizes` of the network: inputs, units of each layer, outputs.

        Descriptors of labels have a number for each label.
        """
        n_inputs = n_labels + n_topics
        return [n_inputs, *self.hidden_sizes, self.n_components, n_labels]

    def _check_network_size(self, n_labels: int, n_topics: int) -> None:
        """Raise where the network would not fit into memory."""
        sizes = self._layer_sizes(n_labels, n_topics)
        n_weights = count_weights(sizes)
        # Weights, their gradient, two moments and the best so far, in single precision.
        check_memory(
            20 * n_weights,
            f"A network with `n_components` {self.n_components} (--components) and `hidden_sizes` "
            f"{shown(self.hidden_sizes)}",
            "lower them",
        )

    def check_parameters(self) -> TrainingPlan:
        """Check every parameter; return the training plan."""
        owner = type(self).__name__
        for name, kind in self.components.items():
            component = getattr(self, name)
            check_kind(name, component, kind, owner=owner)
        if self.checkpoint is not None:
            check_path(self.checkpoint, subject=f"`checkpoint` of `{owner}`")
        check_number("n_components", self.n_components, owner=owner, low=1, whole=True)
        sizes = self.hidden_sizes
        if not isinstance(sizes, (list, tuple, np.ndarray)):
            got = shown(sizes)
            raise InputError(
                f"`hidden_sizes` of `{owner}` must be a list of whole numbers; got {got}."
            )
        for size in sizes:
            check_number("hidden_sizes", size, owner=owner, low=1, whole=True)
        check_option("positive_weighting", self.positive_weighting, WEIGHTINGS, owner=owner)
        for name in ("context_sensitivity", "distance_weight", "negative_weight"):
            weight = getattr(self, name)
            check_number(name, weight, owner=owner, low=0)
        if self.distance_scale is not None:
            check_number("distance_scale", self.distance_scale, owner=owner, low=0, above=True)
        check_device(self.device, owner=owner)
        plan = TrainingPlan() if self.training is None else self.training
        plan.check()
        return plan

    def transform(self, documents: Documents, labels: Sequence[str] | None = None) -> Concepts:
        """Embed every label of every document in its context.

        A label outside the vocabulary (oov) takes the mean of the concepts of the document's other
        labels. A document none of whose labels is in the vocabulary cannot be embedded: it is named
        in a warning and listed in `dropped`. Documents and labels are as in `fit`.
        """
        aligned = self._align(documents, labels)
        matrix = aligned.vocabulary
        n_documents, n_vocabulary = matrix.shape
        points = self.encode(matrix)
        label_ids = matrix.indices.astype(np.int64)
        rows = np.arange(n_documents)
        lengths = np.diff(matrix.indptr)
        document_ids = np.repeat(rows, lengths)
        if aligned.oov_labels:
            oov_lengths = np.diff(aligned.oov.indptr)
            oov_documents = np.repeat(rows, oov_lengths)
            is_embedded = ~np.isin(oov_documents, aligned.dropped)
            oov_documents = oov_documents[is_embedded]
            oov_columns = aligned.oov.indices[is_embedded]
            oov_ids = oov_columns + n_vocabulary
            # They lie at the mean of the document's other concepts.
            targets = row_means(matrix, points)
            oov_points = targets[oov_documents]
            points = np.concatenate([points, oov_points])
            label_ids = np.concatenate([label_ids, oov_ids])
            document_ids = np.concatenate([document_ids, oov_documents])
            # `Concepts` has them document by document.
            order = np.lexsort((label_ids, document_ids))
            points = points[order]
            label_ids = label_ids[order]
            document_ids = document_ids[order]
        classes = self.classes_ + aligned.oov_labels
        return Concepts(
            points,
            label_ids,
            document_ids,
            classes,
            aligned.dropped,
        )

    def targets(
        self, documents: Documents, labels: Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Return the target of each document, equation (5): (n_documents, n_components).

        It is the mean of its concepts; oov labels, which lie there themselves, do not move it. NaN,
        with a warning, for a document none of whose labels is in the vocabulary.
        """
        aligned = self._align(documents, labels)
        # Numbers of the distinct documents, one for each document.
        distinct, distinct_numbers = unique_rows(aligned.vocabulary)
        n_distinct = distinct.shape[0]
        means = np.empty((n_distinct, self.n_components), dtype=np.float32)
        # The concepts of all documents are several times as large as their means.
        for start in range(0, n_distinct, _DOCUMENTS_TOGETHER):
            stop = start + _DOCUMENTS_TOGETHER
            rows = slice(start, stop)
            block = sp.csr_matrix(distinct[rows])
            concepts = self.encode(block)
            means[rows] = row_means(block, concepts)
        return np.asarray(means[distinct_numbers])

    def encode(self, matrix: sp.csr_matrix) -> NDArray[np.float32]:
        """Embed the entries of documents over the vocabulary, (n_documents, n_vocabulary).

        Points, (matrix.nnz, n_components), are in the order of `matrix.indices`, which are put in
        order. Documents with the same labels get the same points.
        """
        check_fitted(self, "network_")
        distinct, distinct_numbers = unique_rows(matrix)
        contexts = self.context_descriptor_.transform(distinct)
        points = encode_documents(self.network_, distinct, contexts)
        if distinct.shape[0] == matrix.shape[0]:
            return points  # every document stands for itself
        # For each entry of a document, the entry of the distinct document that it equals.
        bounds = distinct.indptr
        distinct_lengths = np.diff(bounds)
        lengths = distinct_lengths[distinct_numbers]
        first_entries = bounds[distinct_numbers]
        ends = np.cumsum(lengths)
        starts = ends - lengths
        shifts = first_entries - starts
        entry_shifts = np.repeat(shifts, lengths)
        n_entries = len(entry_shifts)
        entries = np.arange(n_entries) + entry_shifts
        return np.asarray(points[entries])

    def _align(self, documents: Documents, labels: Sequence[str] | None) -> AlignedDocuments:
        """Align documents with the vocabulary; warn of those that it has no label of.

        Documents and labels are as in `fit`.
        """
        check_fitted(self, "network_")
        corpus = as_corpus(documents, labels, normalize=self.normalize_labels_)
        matrix, oov_labels = corpus.align(self.classes_)
        n_vocabulary = len(self.classes_)
        vocabulary_columns = matrix[:, :n_vocabulary]
        oov_columns = matrix[:, n_vocabulary:]
        vocabulary_matrix = sp.csr_matrix(vocabulary_columns)
        oov_matrix = sp.csr_matrix(oov_columns)
        lengths = np.diff(vocabulary_matrix.indptr)
        dropped = np.flatnonzero(lengths == 0)
        dropped_ids = [corpus.ids[row] for row in dropped]
        n_documents = len(corpus)
        warn_dropped(dropped_ids, n_documents)
        return AlignedDocuments(
            vocabulary_matrix,
            oov_matrix,
            oov_labels,
            dropped,
        )

    def get_state(self) -> State:
        """Return the fitted embedding as JSON values and arrays; not the seed, nor the device.

        The names of both are the format on disk; see `_STATE_SCHEMA`.
        """
        check_fitted(self, "network_")
        params = self.get_params(deep=False)
        saved_names = params.keys() - _UNSAVED_PARAMETERS
        parameters = {name: as_python_value(params[name]) for name in saved_names}
        plan = self.training or TrainingPlan()
        plan_params = plan.get_params()
        parameters["hidden_sizes"] = [int(size) for size in self.hidden_sizes]
        parameters["training"] = {
            name: as_python_value(value) for name, value in plan_params.items()
        }
        states = {
            "labels": self.label_descriptor_.get_state(),
            "contexts": self.context_descriptor_.get_state(),
        }
        descriptors, descriptor_arrays = join_states(states)
        weights = self.network_.weights.numpy()
        config: dict[str, Any] = {
            "parameters": parameters,
            "label_descriptor": descriptors["labels"],
            "context_descriptor": descriptors["contexts"],
            "labels": list(self.classes_),
            "normalize_labels": self.normalize_labels_,
            "spellings": self.spellings_,
            "distance_scale": self.distance_scale_,
            "history": self.history_,
            "best_score": None if math.isnan(self.best_score_) else self.best_score_,
        }
        return config, {"weights": weights, **descriptor_arrays}

    @classmethod
    def from_state(cls, config: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted embedding from `get_state`; it embeds bit for bit the same."""
        _STATE_SCHEMA.check(config)
        part_names = ("labels", "contexts")
        check_parts(arrays, dict.fromkeys(part_names), part_names, ("weights",))
        parameters = dict(config["parameters"])
        parameters["hidden_sizes"] = tuple(parameters["hidden_sizes"])
        parameters["training"] = TrainingPlan(**parameters["training"])
        with name_part_in_errors("labels"):
            label_descriptor = LabelDescriptor.from_state(
                config["label_descriptor"],
                part_arrays(arrays, "labels"),
            )
        with name_part_in_errors("contexts"):
            context_descriptor = ContextDescriptor.from_state(
                config["context_descriptor"],
                part_arrays(arrays, "contexts"),
            )
        embedding = cls(
            label_descriptor=copy_of(label_descriptor),
            context_descriptor=copy_of(context_descriptor),
            **parameters,
        )
        embedding.check_parameters()
        labels = tuple(config["labels"])
        n_labels = len(labels)
        has_all_labels = label_descriptor.n_features_in_ == n_labels
        require(has_all_labels, "labels", "as many as are described")
        has_all_columns = context_descriptor.n_features_in_ == n_labels
        require(has_all_columns, "contexts", "those of as many labels")

        # The size of the weights is checked before there is a network of that size.
        n_topics = context_descriptor.n_topics_
        sizes = embedding._layer_sizes(n_labels, n_topics)
        weights = {name: array for name, array in arrays.items() if name == "weights"}
        declared = Array("float32", (count_weights(sizes),))
        check_arrays(weights, {"weights": declared})
        embedding.network_ = ConceptNetwork(
            label_descriptor.descriptors_,
            n_topics,
            embedding.hidden_sizes,
            embedding.n_components,
        )
        saved_weights = torch.tensor(weights["weights"])
        embedding.network_.weights.copy_(saved_weights)
        best_score = config["best_score"]
        embedding.label_descriptor_ = label_descriptor
        embedding.context_descriptor_ = context_descriptor
        embedding.classes_ = labels
        embedding.normalize_labels_ = config["normalize_labels"]
        embedding.spellings_ = config["spellings"]
        embedding.distance_scale_ = config["distance_scale"]
        embedding.history_ = config["history"]
        embedding.best_score_ = math.nan if best_score is None else best_score
        return embedding


# Parameters that the state holds as they are.
_PLAIN_PARAMETERS = [
    name
    for name in inspect.signature(ConceptEmbedding).parameters
    if name not in _UNSAVED_PARAMETERS | {"hidden_sizes", "training"}
]
# The format of an embedding's state beside that of its descriptors, which check their own.
_STATE_SCHEMA = Fields(
    {
        "parameters": Fields(
            {
                **declare_parameters(ConceptEmbedding, *_PLAIN_PARAMETERS).kinds,
                "hidden_sizes": ListOf(Whole(1)),
                "training": declare_parameters(TrainingPlan),
            }
        ),
        "label_descriptor": MappingOf(Anything()),
        "context_descriptor": MappingOf(Anything()),
        "labels": ListOf(Text(), distinct=True),
        "normalize_labels": Flag(),
        "spellings": MappingOf(Text()),
        "distance_scale": Number(1e-30, 1e30),
        "history": ListOf(MappingOf(Plain())),
        "best_score": Maybe(Number()),
    }
)
