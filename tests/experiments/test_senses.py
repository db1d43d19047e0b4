"""Labels with several senses, chosen by the rule."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme.documents.concepts import Concepts
from polyseme_experiments.senses import SenseRule, find_senses


@pytest.fixture
def concepts():
    """Label 0 stands with label 1 in six documents and with label 2 in four others."""
    generator = np.random.default_rng(5)
    label_ids = np.array([0, 1] * 6 + [0, 2] * 4)
    document_ids = np.repeat(np.arange(10), 2)
    theme = np.where(document_ids < 6, 10.0, 20.0)
    places = np.column_stack([theme, label_ids, np.zeros(20)])
    noise = generator.normal(size=(20, 3))
    points = (places + 0.1 * noise).astype(np.float32)
    labels = ("bank", "river", "money")
    no_documents = np.empty(0, dtype=np.int64)
    return Concepts(points, label_ids, document_ids, labels, no_documents)


OWNERS = np.arange(100, 110)
CATEGORIES = ["?"] * 100 + ["nature"] * 6 + ["objects"] * 4


def test_senses_of_a_label_with_two_meanings_are_found_and_named(concepts):
    rule = SenseRule(n_labels=1, fewest=8)
    (bank,) = find_senses(concepts, OWNERS, CATEGORIES, rule, random_state=0)
    assert bank.label == "bank"
    assert bank.senses.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert bank.words == (("river",), ("money",))
    assert bank.owners.tolist() == OWNERS.tolist()
    assert bank.silhouette > 0.9
    assert bank.agreement == pytest.approx(1.0)
    (unjudged,) = find_senses(concepts, OWNERS, rule=rule, random_state=0)
    assert unjudged.agreement == 1


@pytest.mark.parametrize("rule", [SenseRule(fewest=11), SenseRule(fewest=2, most=3)])
def test_labels_with_too_few_or_too_many_documents_are_passed_over(concepts, rule):
    assert find_senses(concepts, OWNERS, CATEGORIES, rule=rule, random_state=0) == ()
