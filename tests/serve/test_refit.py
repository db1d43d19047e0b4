"""A refit in the background: the model answers meanwhile, answers stay, and errors change nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import polyseme
from polyseme import ZeroShotTagger
from polyseme._validation import InputError
from polyseme.corpus import LabelCorpus
from polyseme.io import Table
from polyseme.serve.collection import Collection
from polyseme.serve.host import ModelHost
from polyseme.serve.refit import RefitRunningError, Refitting
from polyseme.verdicts import Verdict

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
    """A copy of it, with all items of the toy world."""
    import shutil

    model = Path(shutil.copytree(saved_photos, tmp_path / "photos"))
    table = Table(features=world.X, ids=NAMES)
    return ModelHost(model, Collection(NAMES, table, world.documents))


def test_a_refit_learns_accepted_tags_and_stays_in_the_folds(photos, world):
    at_beach = np.flatnonzero(world.X[:, list(world.themes).index("beach")] > 0.5).tolist()
    photos.learn([Verdict(NAMES[row], "zeppelin", True) for row in at_beach[:20]])
    before = photos.now
    assert before.kinds["zeppelin"] == "oov"
    photos.refitting.start("ada")
    status = photos.refitting.wait()
    assert (status.state, status.reason) == ("done", None)
    assert status.rounds_done == status.rounds > 0
    after = photos.now
    assert after.digest != before.digest and after.kinds["zeppelin"] == "seen"
    tagger, former = after.tagger, before.tagger
    assert tagger.space_.plan_.n_steps < former.space_.plan_.n_steps
    assert tagger.validation_.get_state() == former.validation_.get_state()
    assert len(tagger.verdicts_.standing()) == 20
    assert photos.versions.all()[-1].action == "refit" and photos.versions.all()[-1].who == "ada"
    place = tagger.classes_.tolist().index("zeppelin")
    scores = tagger.predict_proba(world.X_test)[:, place]
    on_beach = np.array([theme == "beach" for theme in world.themes_test])
    assert scores[on_beach].mean() > 2 * scores[~on_beach].mean()
    # What others read from disk is what answers here.
    loaded = polyseme.load(photos.path)
    np.testing.assert_array_equal(
        loaded.predict_proba(world.X_test), tagger.predict_proba(world.X_test)
    )
    # Every item that both fits had is where it was.
    keys, former_keys = tagger.document_keys_, former.document_keys_
    rows = {key: row for row, key in enumerate(keys.items.tolist()) if key}
    for row in np.flatnonzero(former_keys.items):
        again = rows[int(former_keys.items[row])]
        assert tagger.space_.folds_[again] == former.space_.folds_[row]


def test_known_tag_sets_without_items_are_kept(photos, world):
    unseen = set(world.unseen)
    photos.refitting.start()
    assert photos.refitting.wait().state == "done"
    kinds = photos.now.kinds
    assert all(kinds[label] == "unseen" for label in unseen)
    held = [set(photos.now.tagger.store_.document(row)) for row in range(len(world.label_sets))]
    assert any(unseen & tags for tags in held)


def test_answers_given_meanwhile_count_and_the_old_model_answers_until_then(photos, monkeypatch):
    reached, go_on = threading.Event(), threading.Event()
    adopt = ModelHost.adopt

    def late(host, *given):
        reached.set()
        assert go_on.wait(60)
        adopt(host, *given)

    monkeypatch.setattr(ModelHost, "adopt", late)
    photos.refitting.start()
    assert reached.wait(60)
    before = photos.now
    with pytest.raises(RefitRunningError):
        photos.refitting.start()
    photos.learn([Verdict(NAMES[0], "zeppelin", True), Verdict(NAMES[290], "sun", False)])
    assert photos.now.digest == before.digest
    assert photos.collection.ask(photos.now.tagger, "sun", 3, "likeliest")
    go_on.set()
    assert photos.refitting.wait().state == "done"
    tagger = photos.now.tagger
    said = {(one.item, one.label, one.answer) for one in tagger.verdicts_.standing()}
    assert said == {(NAMES[0], "zeppelin", True), (NAMES[290], "sun", False)}
    places = [tagger.classes_.tolist().index(label) for label in ("zeppelin", "sun")]
    assert set(places) <= set(tagger._corrections.by_column)
    # And answers after it find their items coded in the new space.
    photos.learn([Verdict(NAMES[1], "sun", True)])
    assert len(photos.now.tagger.verdicts_.standing()) == 3


def test_a_change_meanwhile_or_an_error_leaves_the_model_in_service(photos, monkeypatch):
    run = Refitting._run

    def changed_first(self, *given):
        self.host.change("block", "sun", None, lambda tagger: tagger.block(["sun"]))
        run(self, *given)

    monkeypatch.setattr(Refitting, "_run", changed_first)
    photos.refitting.start()
    status = photos.refitting.wait()
    assert status.state == "failed" and "was changed meanwhile" in status.reason
    assert photos.now.tagger.vocabulary_.blocked == ("sun",)
    monkeypatch.setattr(Refitting, "_run", run)

    def broken(*given, **options):
        raise MemoryError("no room for it")

    monkeypatch.setattr(ZeroShotTagger, "fit", broken)
    before = photos.now
    photos.refitting.start()
    status = photos.refitting.wait()
    assert status.state == "failed" and status.reason == "Not refitted: no room for it"
    assert photos.now is before and photos.suggest([]) == []


def test_a_refit_that_would_lose_items_is_refused(host, photos, world):
    with pytest.raises(InputError, match="300 of the 300 items that this model was fitted to"):
        host.refitting.start()
    host.collection = None
    with pytest.raises(InputError, match="start the service with --items"):
        host.refitting.start()
    photos.collection = Collection(NAMES, Table(features=world.X, ids=NAMES), None)
    with pytest.raises(InputError, match="None of the items has a tag"):
        photos.refitting.start()


def test_the_routes_start_a_refit_and_tell_how_far_it_is(photos, serving):
    client = serving(photos)
    assert client.get("/v1/models/photos/refit").json()["state"] == "none"
    begun = client.post("/v1/models/photos/refit")
    assert begun.status_code == 202 and begun.json()["state"] in ("running", "done")
    photos.refitting.wait()
    told = client.get("/v1/models/photos/refit").json()
    assert told["state"] == "done" and told["rounds_done"] == told["rounds"]
    assert client.get("/v1/models/photos").json()["version"] == photos.now.version
    assert client.get("/v1/models/photos/versions").json()["versions"][-1]["action"] == "refit"


def test_one_refit_at_a_time_is_a_409(photos, serving, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(Refitting, "_run", lambda self, *given: go_on.wait(60))
    client = serving(photos)
    assert client.post("/v1/models/photos/refit").status_code == 202
    again = client.post("/v1/models/photos/refit")
    go_on.set()
    assert again.status_code == 409 and "running already" in again.json()["detail"]
