"""Tasks, what a run's digest follows, and that every name in the configuration is known."""

from __future__ import annotations

import importlib
import inspect

import pytest

from polyseme import WordVectors
from polyseme._validation import InputError
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
    runs = [Run("hsun", method, trial) for trial in range(7) for method in ("polyseme", "costa")]
    tasks = make_tasks(runs)
    assert tasks[:3] == [Task("hsun", trial, n_components=200) for trial in range(3)]
    assert tasks[3:] == [Task("hsun", trial, ("polyseme", "costa")) for trial in range(7)]
    shared = make_tasks([Run("magtag-system", "polyseme", 0), Run("magtag-oov", "polyseme", 0)])
    assert [task.n_components for task in shared] == [200, None, None]
    assert make_tasks([]) == []


def test_every_setting_and_method_is_known_and_used_and_runs_are_unique():
    assert tuple(experiments()) == EXPERIMENTS
    used = set()
    for name in EXPERIMENTS:
        runs = get_experiment(name).runs(3)
        assert len(set(runs)) == len(runs) > 0
        used |= set(runs)
    assert {run.setting for run in used} == set(SETTINGS)
    assert {run.method for run in used} == set(METHODS)


def test_the_comparison_has_ten_trials_and_every_ranker():
    compare = get_experiment("compare")
    assert {run.trial for run in compare.runs(3)} == set(range(10))
    assert {run.trial for run in compare.runs(12)} == set(range(12))
    assert {run.trial for run in compare.runs(3, quick=True)} == {0, 1}
    assert {run.method for run in compare.runs(3) if run.setting == "hsun-12"} == set(RANKERS)
    # Composition tries every combination of labels, so it runs where these are few.
    assert {run.setting for run in compare.runs(3) if run.method == "composition"} == {"hsun-12"}


def test_the_digest_follows_the_configuration():
    run = Run("hsun", "costa", 0)
    assert digest_of(run, QUICK) == digest_of(run, RunConfig(quick=True, cache="elsewhere"))
    others = {
        digest_of(Run("hsun", "costa", 1), QUICK),
        digest_of(Run("hsun", "costa-dice", 0), QUICK),
        digest_of(Run("hsun-12", "costa", 0), QUICK),
        digest_of(run, RunConfig(quick=True, seed=1)),
    }
    assert len(others | {digest_of(run, QUICK)}) == 5
    # Only what learns a concept space depends on how it is trained.
    paper = RunConfig(quick=True, preset="paper")
    whole = Run("hsun", "polyseme", 0)
    assert digest_of(run, paper) == digest_of(run, QUICK)
    assert digest_of(whole, paper) != digest_of(whole, QUICK)


@pytest.mark.parametrize(
    ("method", "owner", "parameter"),
    [
        ("polyseme", "polyseme.published.descriptors.ContextDescriptor", "n_iter"),
        ("polyseme", "polyseme.published.training.TrainingPlan", "patience"),
        ("polyseme", "polyseme.published.embedding.ConceptEmbedding", "context_sensitivity"),
        ("polyseme", "polyseme.published.mapping.InstanceMapper", "tolerance"),
        ("default", "polyseme.space.ConceptSpace", "context"),
        ("default-mix", "polyseme.training.SpacePlan", "hidden_tags"),
        ("calibration", "polyseme.training.SpacePlan", "decays"),
        ("costa-mix", "polyseme.baselines.TunedCosta", "penalties"),
    ],
)
def test_the_digest_follows_defaults_that_nobody_names(method, owner, parameter, monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    run = Run("hsun", method, 0)
    before = digest_of(run, RunConfig())
    module, _, name = owner.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    defaults = list(kind.__init__.__defaults__)
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    defaults[names.index(parameter)] = 0.123
    monkeypatch.setattr(kind.__init__, "__defaults__", tuple(defaults))
    assert digest_of(run, RunConfig()) != before


@pytest.mark.parametrize("constant", ["space.SLOPES", "space.TEMPERATURE", "calibration._USUAL"])
def test_the_digest_of_the_default_follows_its_constants(constant, monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    runs = [Run("hsun", method, 0) for method in ("default", "default-no-soft", "calibration")]
    before = [digest_of(run, RunConfig()) for run in runs]
    others = digest_of(Run("hsun", "costa-mix", 0), RunConfig())
    monkeypatch.setattr(f"polyseme.{constant}", 0.123)
    assert all(digest_of(run, RunConfig()) != one for run, one in zip(runs, before, strict=True))
    assert digest_of(Run("hsun", "costa-mix", 0), RunConfig()) == others


def test_every_method_has_a_digest_of_its_own(monkeypatch):
    monkeypatch.setattr(*NO_DATA)
    assert len({digest_of(Run("hsun", name, 0), QUICK) for name in METHODS}) == len(METHODS)
    found = set()
    for words in ({"sea": [1.0, 0.0]}, {"sea": [0.0, 1.0]}):
        found_vectors = {None: WordVectors(words)}
        target = "polyseme_experiments.methods.baselines.word_vectors"
        monkeypatch.setattr(target, found_vectors.__getitem__)
        found.add(digest_of(Run("hsun", "conse", 0), RunConfig()))
    assert len(found) == 2


@pytest.mark.parametrize(
    ("find", "kind"),
    [(get_experiment, "experiment"), (get_setting, "setting"), (get_method, "method")],
)
def test_unknown_names_list_the_known_ones(find, kind):
    with pytest.raises(InputError, match=f"Unknown {kind} 'nothing'; known: "):
        find("nothing")
