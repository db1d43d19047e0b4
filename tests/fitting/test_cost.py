"""What a fit will take is told before it begins, with the figure and the way round."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from polyseme import ConceptSpace, SpacePlan, ZeroShotTagger
from polyseme.base.machine import check_memory, machine_bytes
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.fitting.cost import Cost, cost_of_fit, in_time, warn_about_cost

# Items, labels, features, documents beside those of items; seconds of one processor and megabytes,
# measured by experiments/scripts/growth_of_fits.py.
MEASURED = [
    ((200, 20, 16, 0), 1.6, 431),
    ((1000, 50, 64, 0), 6.1, 469),
    ((1000, 300, 64, 0), 10.8, 529),
    ((3000, 100, 256, 0), 8.8, 535),
    ((3000, 300, 64, 3000), 12.9, 640),
    ((3000, 993, 64, 0), 27.4, 950),
    ((8000, 200, 32, 0), 15.2, 650),
    ((2000, 2000, 32, 2000), 44.3, 1186),
    ((2000, 100, 2000, 0), 17.2, 954),
    ((20000, 100, 32, 0), 23.5, 701),
]
# The same with 24 steps and without validations.
SHORT = [
    ((3000, 993, 64, 0), 3.9, 851),
    ((2000, 2000, 32, 0), 6.3, 971),
    ((2000, 5000, 32, 0), 10.4, 1478),
    ((2000, 100, 2000, 0), 2.6, 879),
    ((3000, 20000, 32, 3000), 19.8, 2246),
    ((30000, 100, 32, 0), 3.3, 611),
    ((60000, 300, 64, 60000), 13.0, 894),
]


@pytest.mark.parametrize(
    ("sizes", "seconds", "megabytes", "n_steps"),
    [(*measured, None) for measured in MEASURED] + [(*measured, 24) for measured in SHORT],
)
def test_the_forecast_is_within_a_factor_of_two_of_what_was_measured(
    sizes, seconds, megabytes, n_steps
):
    n_items, n_labels, n_features, n_label_sets = sizes
    n_documents = n_items + n_label_sets
    plan = SpacePlan().sized(n_documents, n_items).within(n_documents, n_items)
    if n_steps is not None:
        plan = replace(plan, n_steps=n_steps)
    validations = 0 if n_steps else 2
    cost = cost_of_fit(plan, n_documents, n_labels, n_items, n_features, validations)
    assert 0.5 < cost.seconds / seconds < 2
    measured_bytes = 1e6 * megabytes
    assert 0.5 < cost.bytes / measured_bytes < 2


def test_more_of_anything_never_takes_less():
    plan = SpacePlan()
    sizes = {"n_documents": 2000, "n_labels": 200}
    sizes |= {"n_items": 2000, "n_features": 50, "n_validations": 1}
    before = cost_of_fit(plan, **sizes)
    for name, value in sizes.items():
        after = cost_of_fit(plan, **(sizes | {name: 3 * value}))
        assert after.seconds >= before.seconds, name
        assert after.bytes >= before.bytes, name
    assert cost_of_fit(plan, 2000, 200).seconds < before.seconds


def test_a_long_fit_says_so_before_it_begins(monkeypatch):
    calls = []
    monkeypatch.setattr("polyseme.fitting.cost.n_cores", lambda: 1)
    monkeypatch.setattr("polyseme.fit_stages.validate", lambda *_, **__: calls.append("validate"))
    monkeypatch.setattr(ConceptSpace, "fit", lambda *_, **__: pytest.fail("begun in silence"))
    generator = np.random.default_rng(0)
    documents = []
    for _ in range(3000):
        numbers = generator.choice(993, 6)
        documents.append([f"label {number}" for number in numbers])
    X = generator.normal(size=(3000, 64))
    space = ConceptSpace(members_per_fold=2, n_steps=1200)
    tagger = ZeroShotTagger(space=space, device="cpu", random_state=0)
    message = r"about [23] minutes on 1 core: 10 members, 1200"
    with warnings.catch_warnings():
        warnings.simplefilter("error", PolysemeWarning)
        with pytest.raises(PolysemeWarning, match=message):
            tagger.fit(X, documents)
    assert not calls


def test_a_short_fit_says_nothing(monkeypatch):
    monkeypatch.setattr("polyseme.fitting.cost.n_cores", lambda: 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_cost(Cost(119, 1e8), SpacePlan(), 10)


def test_the_memory_of_a_fit_is_reported_and_too_much_is_refused(monkeypatch):
    monkeypatch.setattr("polyseme.fitting.cost.machine_bytes", lambda: 8e9)
    with pytest.warns(PolysemeWarning, match="about 6.0 GB of the 8.0 GB of memory"):
        warn_about_cost(Cost(1, 6e9), SpacePlan(), 10)
    with pytest.raises(InputError, match=r"would need about 20 GB of memory, and this machine has"):
        warn_about_cost(Cost(1, 2e10), SpacePlan(), 10)


def test_the_machine_has_some_memory_and_no_more_is_given_out():
    assert 2**28 < machine_bytes() <= 2**62
    check_memory(1, "A number", "give less")
    with pytest.raises(InputError, match=r"A job would need .* GB of memory, .*; give less\."):
        check_memory(2.0**63, "A job", "give less")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(5, "5 seconds"), (600, "10 minutes"), (9e3, "2 hours"), (1e6, "12 days")],
)
def test_durations_are_written_in_words(seconds, words):
    assert in_time(seconds) == words
