from __future__ import annotations

import importlib
import inspect

import pytest

from polyseme import WordVectors
from polyseme._validation import InputError
from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.draws import Conditions
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.methods import METHODS, RANKERS, get_method
from polyseme_experiments.progress import Display, duration
from polyseme_experiments.schedule import Run, Space, digest_of, make_tasks
from polyseme_experiments.settings import SETTINGS, get_setting

QUICK = Conditions(quick=True)


def test_concept_spaces_come_before_the_trials_that_need_them_and_are_learned_once():
    runs = [Run("hsun", method, trial) for trial in range(7) for method in ("polyseme", "costa")]
    tasks = make_tasks(runs)
    spaces = [task for task in tasks if task.space is not None]
    assert [task.gives[0] for task in spaces] == [Space("hsun", p, 200) for p in range(3)]
    there = set()
    for task in tasks:
        assert there.issuperset(task.needs)
        there |= set(task.gives)
    assert [task.methods for task in tasks if task.methods] == [("polyseme", "costa")] * 7


def test_settings_share_spaces_where_they_say_so():
    tasks = make_tasks([Run("magtag-system", "polyseme", 0), Run("magtag-oov", "polyseme", 0)])
    assert [task.space for task in tasks] == [200, None, None]
    assert tasks[1].needs == tasks[2].needs == (Space("magtag-system", 0, 200),)


def test_nothing_to_do_is_no_task():
    assert make_tasks([]) == []


def test_every_experiment_names_known_settings_and_methods_and_its_runs_are_unique():
    for name in EXPERIMENTS:
        experiment = get_experiment(name)
        assert experiment.name == name
        runs = experiment.runs(3)
        assert len(set(runs)) == len(runs) > 0
        for run in runs:
            get_setting(run.setting)
            get_method(run.method)


def test_every_figure_file_is_listed():
    import polyseme_experiments.figures as figures

    (folder,) = figures.__path__
    from pathlib import Path

    files = {path.stem for path in Path(folder).glob("*.py")} - {"__init__"}
    assert files == {name.lower() for name in EXPERIMENTS}


def test_every_setting_and_method_is_used():
    runs = [run for name in EXPERIMENTS for run in get_experiment(name).runs(1)]
    assert {run.setting for run in runs} == set(SETTINGS)
    assert {run.method for run in runs} == set(METHODS)


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
    assert digest_of(run, QUICK) == digest_of(run, Conditions(quick=True, cache="elsewhere"))
    others = {
        digest_of(Run("hsun", "costa", 1), QUICK),
        digest_of(Run("hsun", "costa-dice", 0), QUICK),
        digest_of(Run("hsun-12", "costa", 0), QUICK),
        digest_of(run, Conditions(quick=True, seed=1)),
    }
    assert len(others | {digest_of(run, QUICK)}) == 5
    # Only what learns a concept space depends on how it is trained.
    paper = Conditions(quick=True, preset="paper")
    assert digest_of(run, paper) == digest_of(run, QUICK)
    assert digest_of(Run("hsun", "polyseme", 0), paper) != digest_of(
        Run("hsun", "polyseme", 0), QUICK
    )


@pytest.mark.parametrize(
    ("method", "owner", "parameter"),
    [
        ("polyseme", "polyseme.published.descriptors.ContextDescriptor", "n_iter"),
        ("polyseme", "polyseme.published.descriptors.LabelDescriptor", "strength"),
        ("polyseme", "polyseme.published.training.TrainingPlan", "patience"),
        ("polyseme", "polyseme.published.embedding.ConceptEmbedding", "context_sensitivity"),
        ("polyseme", "polyseme.published.mapping.InstanceMapper", "tolerance"),
        ("default", "polyseme.space.ConceptSpace", "context"),
        ("default-mix", "polyseme.training.SpacePlan", "hidden_tags"),
        ("default-no-soft", "polyseme.space.ConceptSpace", "n_folds"),
        ("calibration", "polyseme.training.SpacePlan", "decays"),
        ("costa-mix", "polyseme.baselines.TunedCosta", "penalties"),
    ],
)
def test_the_digest_follows_defaults_that_nobody_names(method, owner, parameter, monkeypatch):
    real = Conditions()
    monkeypatch.setattr("polyseme_experiments.schedule._data", lambda *_: (("a", "a"), {}))
    run = Run("hsun", method, 0)
    before = digest_of(run, real)
    module, _, name = owner.rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    defaults = list(kind.__init__.__defaults__)
    names = list(inspect.signature(kind.__init__).parameters)[1:]
    defaults[names.index(parameter)] = 0.123
    monkeypatch.setattr(kind.__init__, "__defaults__", tuple(defaults))
    assert digest_of(run, real) != before


@pytest.mark.parametrize(
    "constant", ["space.SLOPES", "space.TEMPERATURE", "space._RIDGE", "calibration._USUAL"]
)
def test_the_digest_of_the_default_follows_its_constants(constant, monkeypatch):
    monkeypatch.setattr("polyseme_experiments.schedule._data", lambda *_: (("a", "a"), {}))
    runs = [Run("hsun", method, 0) for method in ("default", "default-no-soft", "calibration")]
    before = [digest_of(run, Conditions()) for run in runs]
    others = digest_of(Run("hsun", "costa-mix", 0), Conditions())
    monkeypatch.setattr(f"polyseme.{constant}", 0.123)
    assert all(digest_of(run, Conditions()) != one for run, one in zip(runs, before, strict=True))
    assert digest_of(Run("hsun", "costa-mix", 0), Conditions()) == others


def test_the_parts_of_the_default_have_digests_of_their_own():
    names = [name for name in METHODS if name.startswith(("default", "calibration", "costa-"))]
    assert len({digest_of(Run("hsun", name, 0), QUICK) for name in names}) == len(names)


def test_the_digest_follows_the_word_vectors(monkeypatch):
    monkeypatch.setattr("polyseme_experiments.schedule._data", lambda *_: (("a", "a"), {}))
    found = []
    for words in ({"sea": [1.0, 0.0]}, {"sea": [0.0, 1.0]}):
        vectors = WordVectors(words)
        monkeypatch.setattr(
            "polyseme_experiments.methods.word_vectors", lambda data, vectors=vectors: vectors
        )
        found.append(digest_of(Run("hsun", "conse", 0), Conditions()))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("ask", "kind"),
    [(get_experiment, "experiment"), (get_setting, "setting"), (get_method, "method")],
)
def test_unknown_names_list_the_known_ones(ask, kind):
    with pytest.raises(InputError, match=f"Unknown {kind} 'nothing'; known: "):
        ask("nothing")


# ------------------------------------------------------------------ progress


def test_progress_says_what_is_done_and_how_long_is_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("polyseme_experiments.progress.time.monotonic", lambda: now[0])
    tasks = make_tasks([Run("hsun", "polyseme", 0), Run("hsun", "popularity", 0)])
    said = []
    display = Display(tasks, n_known=4, say=said.append)
    with display:
        assert display.left() is None
        now[0] = 40.0
        display.tell(0, tasks[0], "space", {"concept space 200": 38.0})
        # The space is 40 of 75 parts of the work.
        assert display.left() == pytest.approx(35.0)
        display.tell(0, tasks[1], "start", "hsun 1: concept embedding")
        record = {"method": "polyseme", "seconds": 31.4}
        now[0] = 70.0
        display.tell(0, tasks[1], "record", record)
    assert said == [
        "4 runs are recorded already; 2 to go",
        "[0/2] hsun, trial 0: concept space of 200 dimensions, 38 s; about 35 s left",
        "[1/2] hsun, trial 0: concept embedding, 31 s; about 5 s left",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"), [(12.4, "12 s"), (100, "2 min"), (3540, "59 min"), (3900, "1 h 05 min")]
)
def test_times_are_words(seconds, words):
    assert duration(seconds) == words
