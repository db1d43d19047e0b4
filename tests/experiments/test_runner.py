"""Tasks, what a run's digest follows, and that every name in the configuration is known."""

from __future__ import annotations

import importlib
import inspect

import pytest

from polyseme import WordVectors
from polyseme.base.validation import InputError
from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.figures import experiments, get_experiment
from polyseme_experiments.methods import METHODS, RANKERS, get_method
from polyseme_experiments.records import config_hash
from polyseme_experiments.runner import Run, Task, make_tasks, run_config
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.settings import SETTINGS, get_setting

QUICK = RunConfig(quick=True)


def digest_of(run, config):
    return config_hash(run_config(run, config))


NO_DATA = "polyseme_experiments.runner._data", lambda *_: (("a", "a"), {})


def test_concept_spaces_come_first_and_are_learned_once():
    runs = []
    for trial in range(7):
        runs.append(Run("hsun", "polyseme", trial))
        runs.append(Run("hsun", "costa", trial))
    spaces = [Task("hsun", trial, n_components=200) for trial in range(3)]
    methods = [Task("hsun", trial, ("polyseme", "costa")) for trial in range(7)]
    assert make_tasks(runs) == spaces + methods
    assert make_tasks([]) == []


def test_settings_share_a_concept_space():
    runs = [Run("magtag-system", "polyseme", 0), Run("magtag-oov", "polyseme", 0)]
    tasks = make_tasks(runs)
    assert [task.n_components for task in tasks] == [200, None, None]


def test_every_setting_and_method_is_known_and_used_and_runs_are_unique():
    assert tuple(experiments()) == EXPERIMENTS
    all_runs = set()
    for name in EXPERIMENTS:
        runs = get_experiment(name).runs(3)
        assert len(runs) > 0
        assert len(set(runs)) == len(runs)
        all_runs.update(runs)
    assert {run.setting for run in all_runs} == set(SETTINGS)
    assert {run.method for run in all_runs} == set(METHODS)


@pytest.mark.parametrize(
    ("n_trials", "quick", "expected"),
    [(3, False, 10), (12, False, 12), (3, True, 2)],
)
def test_the_comparison_has_ten_trials_or_more(n_trials, quick, expected):
    runs = get_experiment("compare").runs(n_trials, quick=quick)
    assert {run.trial for run in runs} == set(range(expected))


def test_the_comparison_has_every_ranker_on_few_labels():
    runs = get_experiment("compare").runs(3)
    rankers = {run.method for run in runs if run.setting == "hsun-12"}
    assert rankers == set(RANKERS)
    # Composition tries every combination of labels, so it runs where these are few.
    settings = {run.setting for run in runs if run.method == "composition"}
    assert settings == {"hsun-12"}


def test_the_digest_follows_the_configuration():
    run = Run("hsun", "costa", 0)
    digest = digest_of(run, QUICK)
    elsewhere = RunConfig(quick=True, cache="elsewhere")
    assert digest_of(run, elsewhere) == digest
    changed_digests = {
        digest_of(Run("hsun", "costa", 1), QUICK),
        digest_of(Run("hsun", "costa-dice", 0), QUICK),
        digest_of(Run("hsun-12", "costa", 0), QUICK),
        digest_of(run, RunConfig(quick=True, seed=1)),
    }
    assert len(changed_digests) == 4
    assert digest not in changed_digests


def test_only_digests_of_what_learns_a_concept_space_follow_its_training():
    paper = RunConfig(quick=True, preset="paper")
    costa = Run("hsun", "costa", 0)
    assert digest_of(costa, paper) == digest_of(costa, QUICK)
    polyseme = Run("hsun", "polyseme", 0)
    assert digest_of(polyseme, paper) != digest_of(polyseme, QUICK)


@pytest.mark.parametrize(
    ("method", "owner", "parameter"),
    [
        ("polyseme", "polyseme.published.descriptors.ContextDescriptor", "n_iter"),
        ("polyseme", "polyseme.published.training.TrainingPlan", "patience"),
        ("polyseme", "polyseme.published.embedding.ConceptEmbedding", "context_sensitivity"),
        ("polyseme", "polyseme.published.mapping.InstanceMapper", "tolerance"),
        ("default", "polyseme.space.concept_space.ConceptSpace", "context"),
        ("default-mix", "polyseme.space.training.SpacePlan", "hidden_tags"),
        ("calibration", "polyseme.space.training.SpacePlan", "decays"),
        ("costa-mix", "polyseme_experiments.baselines.TunedCosta", "penalties"),
    ],
)
def test_the_digest_follows_defaults_that_nobody_names(method, owner, parameter, monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    run = Run("hsun", method, 0)
    digest = digest_of(run, RunConfig())
    module, _, name = owner.rpartition(".")
    constructor = getattr(importlib.import_module(module), name).__init__
    _, *names = inspect.signature(constructor).parameters
    defaults = list(constructor.__defaults__)
    defaults[names.index(parameter)] = 0.123
    monkeypatch.setattr(constructor, "__defaults__", tuple(defaults))
    assert digest_of(run, RunConfig()) != digest


@pytest.mark.parametrize(
    "constant",
    ["space.concept_space.SLOPES", "space.votes.TEMPERATURE", "space.calibration._PRIOR_DOCUMENTS"],
)
@pytest.mark.parametrize("method", ["default", "default-no-soft", "calibration"])
def test_the_digest_of_the_default_follows_its_constants(method, constant, monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    run = Run("hsun", method, 0)
    digest = digest_of(run, RunConfig())
    monkeypatch.setattr(f"polyseme.{constant}", 0.123)
    assert digest_of(run, RunConfig()) != digest


@pytest.mark.parametrize(
    "constant",
    ["space.concept_space.SLOPES", "space.votes.TEMPERATURE", "space.calibration._PRIOR_DOCUMENTS"],
)
def test_the_digest_of_costa_does_not_follow_constants_of_the_default(constant, monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    run = Run("hsun", "costa-mix", 0)
    digest = digest_of(run, RunConfig())
    monkeypatch.setattr(f"polyseme.{constant}", 0.123)
    assert digest_of(run, RunConfig()) == digest


def test_every_method_has_a_digest_of_its_own(monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    runs = [Run("hsun", name, 0) for name in METHODS]
    digests = {digest_of(run, QUICK) for run in runs}
    assert len(digests) == len(METHODS)


def test_the_digest_follows_the_word_vectors(monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    digests = set()
    for vector in ([1.0, 0.0], [0.0, 1.0]):
        vectors_by_path = {None: WordVectors({"sea": vector})}
        target = "polyseme_experiments.methods.baselines.word_vectors"
        monkeypatch.setattr(target, vectors_by_path.__getitem__)
        digest = digest_of(Run("hsun", "conse", 0), RunConfig())
        digests.add(digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("find", "kind"),
    [(get_experiment, "experiment"), (get_setting, "setting"), (get_method, "method")],
)
def test_unknown_names_list_the_known_ones(find, kind):
    with pytest.raises(InputError, match=f"Unknown {kind} 'nothing'; known: "):
        find("nothing")
