"""A refit in the background: the model answers meanwhile, verdicts stay, errors change nothing."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from rest import ModelClient

import polyseme
from polyseme import ZeroShotTagger
from polyseme.base.validation import InputError
from polyseme.documents.corpus import LabelCorpus
from polyseme.feedback.verdict_log import Verdict
from polyseme.io import Table
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost
from polyseme.studio.refit import RefitRunningError, Refitting

NAMES = [f"photo-{row}" for row in range(300)]


@pytest.fixture(scope="session")
def saved_photos(tmp_path_factory, world, tiny_space) -> Path:
    """A model of all items of the toy world but the last ones, by their names."""
    path = tmp_path_factory.mktemp("refit") / "photos"
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=1, random_state=0)
    corpus = LabelCorpus.from_documents(world.documents[:-20], ids=NAMES[:-20])
    tagger.fit(world.X[:-20], corpus, label_sets=world.label_sets)
    tagger.save(path)
    return path


@pytest.fixture
def photos(saved_photos, tmp_path, world) -> ModelHost:
    """A copy of the saved model, with all items of the toy world."""
    model = Path(shutil.copytree(saved_photos, tmp_path / "photos"))
    table = Table(features=world.X, ids=NAMES)
    return ModelHost(model, Collection(NAMES, table, world.documents))


def refit(host, user=None):
    """Refit a model and return the status at the end."""
    host.refitting.start(user)
    return host.refitting.wait()


ZEPPELIN = Verdict(NAMES[0], "zeppelin", True)


@pytest.fixture
def zeppelin_refit(photos, world):
    """A model before and after a refit to a new label at the beach, and the status at its end."""
    beach = list(world.themes).index("beach")
    rows = np.flatnonzero(world.X[:, beach] > 0.5)[:20]
    photos.learn([Verdict(NAMES[row], "zeppelin", True) for row in rows])
    before = photos.snapshot
    status = refit(photos, "ada")
    return before, photos.snapshot, status


def test_a_refit_learns_accepted_tags(zeppelin_refit, world):
    before, after, status = zeppelin_refit
    assert (status.state, status.reason) == ("done", None)
    assert status.rounds_done == status.rounds > 0
    assert after.digest != before.digest
    assert before.kinds["zeppelin"] == "oov"
    assert after.kinds["zeppelin"] == "seen"
    assert len(after.tagger.verdicts_.standing()) == 20
    zeppelin = after.tagger.classes_.tolist().index("zeppelin")
    scores = after.tagger.predict_proba(world.X_test)[:, zeppelin]
    at_beach = np.array(world.themes_test) == "beach"
    assert scores[at_beach].mean() > 2 * scores[~at_beach].mean()


def test_a_refit_takes_fewer_steps_and_keeps_the_folds_and_the_validation(zeppelin_refit):
    before, after, _ = zeppelin_refit
    former, refitted = before.tagger, after.tagger
    assert refitted.space_.plan_.n_steps < former.space_.plan_.n_steps
    assert refitted.validation_.get_state() == former.validation_.get_state()
    former_keys = former.document_keys_.items.tolist()
    row_by_key = {key: row for row, key in enumerate(refitted.document_keys_.items.tolist()) if key}
    for former_row, key in enumerate(former_keys):
        if key:
            row = row_by_key[key]
            assert refitted.space_.folds_[row] == former.space_.folds_[former_row]


def test_a_refit_is_saved_as_a_version(zeppelin_refit, photos, world):
    _, after, _ = zeppelin_refit
    version = photos.versions.all()[-1]
    assert (version.action, version.who) == ("refit", "ada")
    scores = polyseme.load(photos.path).predict_proba(world.X_test)
    assert_array_equal(scores, after.tagger.predict_proba(world.X_test))


def test_a_refit_keeps_known_tag_sets_without_items(photos, world):
    assert refit(photos).state == "done"
    for label in world.unseen:
        assert photos.snapshot.kinds[label] == "unseen"
    store = photos.snapshot.tagger.store_
    tag_sets = [set(store.document(row)) for row in range(len(world.label_sets))]
    assert not set(world.unseen).isdisjoint(set().union(*tag_sets))


def test_verdicts_during_a_refit_are_kept_and_the_former_model_answers_until_its_end(
    photos, monkeypatch
):
    is_fitted, may_adopt = threading.Event(), threading.Event()
    adopt = ModelHost.adopt

    def wait_and_adopt(host, *arguments):
        is_fitted.set()
        assert may_adopt.wait(60)
        adopt(host, *arguments)

    monkeypatch.setattr(ModelHost, "adopt", wait_and_adopt)
    photos.refitting.start()
    assert is_fitted.wait(60)
    before = photos.snapshot
    with pytest.raises(RefitRunningError):
        photos.refitting.start()
    photos.learn([ZEPPELIN, Verdict(NAMES[290], "sun", False)])
    assert photos.snapshot.digest == before.digest
    assert photos.collection.ask(photos.snapshot.tagger, "sun", 3, "likeliest")
    may_adopt.set()
    assert photos.refitting.wait().state == "done"
    tagger = photos.snapshot.tagger
    standing = {(event.item, event.label, event.answer) for event in tagger.verdicts_.standing()}
    assert standing == {(NAMES[0], "zeppelin", True), (NAMES[290], "sun", False)}
    labels = tagger.classes_.tolist()
    assert {labels.index("zeppelin"), labels.index("sun")} <= set(tagger._corrections.by_column)
    # Items of later verdicts are encoded in the new space.
    photos.learn([Verdict(NAMES[1], "sun", True)])
    assert len(photos.snapshot.tagger.verdicts_.standing()) == 3


def test_a_change_during_a_refit_makes_it_fail_and_stays(photos, monkeypatch):
    run = Refitting._run

    def change_and_run(refitting, *arguments):
        refitting.host.change("block", "sun", None, lambda tagger: tagger.block(["sun"]))
        run(refitting, *arguments)

    monkeypatch.setattr(Refitting, "_run", change_and_run)
    status = refit(photos)
    assert status.state == "failed"
    assert "was changed meanwhile" in status.reason
    assert photos.snapshot.tagger.vocabulary_.blocked == ("sun",)


def test_an_error_during_a_refit_leaves_the_model_in_service(photos, monkeypatch):
    def fail(*_, **__):
        raise MemoryError("no room for it")

    monkeypatch.setattr(ZeroShotTagger, "fit", fail)
    before = photos.snapshot
    status = refit(photos)
    assert status.state == "failed"
    assert status.reason == "Not refitted: no room for it"
    assert photos.snapshot is before
    assert photos.suggest([]) == []


def test_a_refit_that_would_lose_items_is_refused(host, photos, world):
    with pytest.raises(InputError, match="300 of the 300 items that this model was fitted to"):
        host.refitting.start()
    host.collection = None
    with pytest.raises(InputError, match="start the service with --items"):
        host.refitting.start()
    photos.collection = Collection(NAMES, Table(features=world.X, ids=NAMES), None)
    with pytest.raises(InputError, match="None of the items has a tag"):
        photos.refitting.start()


def test_the_routes_start_a_refit_and_return_its_progress(photos, serving):
    client = serving(photos)
    model = ModelClient(client, "/v1/models/photos")
    assert model.get("/refit")["state"] == "none"
    response = client.post("/v1/models/photos/refit")
    assert response.status_code == 202
    assert response.json()["state"] in ("running", "done")
    photos.refitting.wait()
    status = model.get("/refit")
    assert status["state"] == "done"
    assert status["rounds_done"] == status["rounds"]
    assert model.get()["version"] == photos.snapshot.version
    assert model.get("/versions")["versions"][-1]["action"] == "refit"


def test_a_second_refit_at_the_same_time_is_a_409(photos, serving, monkeypatch):
    may_end = threading.Event()
    monkeypatch.setattr(Refitting, "_run", lambda *_: may_end.wait(60))
    client = serving(photos)
    assert client.post("/v1/models/photos/refit").status_code == 202
    response = client.post("/v1/models/photos/refit")
    may_end.set()
    assert response.status_code == 409
    assert "running already" in response.json()["detail"]
