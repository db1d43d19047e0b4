"""A model in use: changed by copies, saved, and reloaded beside the old one."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest

from polyseme import ZeroShotTagger, load
from polyseme.base.validation import InputError
from polyseme.feedback.verdict_log import Verdict
from polyseme.io import Table
from polyseme.storage.model_file import MODEL_FILE, ModelFileError
from polyseme.studio.collection import UnknownItemError
from polyseme.studio.host import ModelHost, SuggestRequest, UnknownLabelError


def features_of(world, row=0):
    return world.X_test[row].astype(np.float32)


def suggest(host, *requests):
    """Return the suggestions for each request."""
    return [suggestions for _, suggestions in host.suggest(requests)]


def probability_by_label(suggestions):
    return {suggestion.label: suggestion.probability for suggestion in suggestions}


def block(*labels):
    return lambda tagger: tagger.block(labels)


def rename(label, name):
    return lambda tagger: tagger.rename(label, name)


def blocked(host):
    return set(host.snapshot.tagger.vocabulary_.blocked)


def n_verdicts(host):
    return len(host.snapshot.tagger.verdicts_.standing())


def block_on_disk(model, label):
    load(model).block([label]).save(model)


def actions(host):
    return [version.action for version in host.versions.all()]


def test_suggestions_are_those_of_the_tagger(host, model, world):
    tagger = load(model)
    for row in range(3):
        features = features_of(world, row)
        labels, scores = tagger.rank(features[None], 4)
        (suggestions,) = suggest(host, SuggestRequest(features, (), 4))
        expected = dict(zip(labels[0], scores[0], strict=True))
        probabilities = probability_by_label(suggestions)
        assert list(probabilities) == list(expected)
        assert probabilities == pytest.approx(expected)


def test_requests_of_all_kinds_get_the_same_suggestions_in_a_batch_as_alone(host, world):
    requests = [
        SuggestRequest(features_of(world), (), 3),
        SuggestRequest(None, ("sand", "sea"), 3),
        SuggestRequest(features_of(world, 1), ("oven",), 3),
        SuggestRequest(features_of(world, 2), (), 3, kinds=("unseen",)),
        SuggestRequest(features_of(world, 2), (), 30, threshold=0.5),
        SuggestRequest(features_of(world, 2), (), 30, precision=0.5),
    ]
    batch = suggest(host, *requests)
    for request, suggestions in zip(requests, batch, strict=True):
        (alone,) = suggest(host, request)
        expected = probability_by_label(alone)
        probabilities = probability_by_label(suggestions)
        assert list(probabilities) == list(expected)
        assert probabilities == pytest.approx(expected)
    _, _, beside_oven, unseen, likely, _ = batch
    assert "oven" not in probability_by_label(beside_oven)
    assert {suggestion.kind for suggestion in unseen} == {"unseen"}
    assert min(probability_by_label(likely).values(), default=1) >= 0.5


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (SuggestRequest(None), "Give features"),
        (SuggestRequest(None, ("zzz",)), "None of the tags is known: zzz"),
        (SuggestRequest(np.zeros(3, np.float32)), "takes 5 features an item; got 3"),
        (SuggestRequest(np.full(5, np.nan, np.float32)), "must be finite"),
        (SuggestRequest(None, ("sand",), precision=0.5), "for tags alone"),
    ],
    ids=range(5),
)
def test_a_wrong_request_is_refused_before_it_waits(host, request_, sentence):
    with pytest.raises(InputError, match=sentence):
        host.check(request_)


def test_unknown_tags_are_returned_and_counted(host, world):
    request, unknown = host.check(SuggestRequest(features_of(world), ("Sand", "canoe", "canoe")))
    assert request.tags == ("sand",)
    assert unknown == ["canoe"]
    assert host.notices.unknown_tags == {"canoe": 1}


def test_a_change_is_saved_as_a_version_and_serves_at_once(host, model):
    before = host.snapshot
    host.change("rename", "sand", "ann", rename("sand", "grit"))
    assert host.snapshot.find_label("grit") == host.snapshot.find_label("sand") == "grit"
    assert "grit" in load(model).classes_
    versions = [(version.action, version.who) for version in host.versions.all()]
    assert versions == [("opened", None), ("rename", "ann")]
    assert host.snapshot.version != before.version
    # Who still reads the former state sees it as it was.
    assert "sand" in before.kinds
    assert before.tagger is not host.snapshot.tagger


def test_a_change_that_fails_changes_nothing(host):
    before = host.snapshot
    with pytest.raises(InputError, match="already"):
        host.change("rename", "", None, rename("sand", "sea"))
    assert host.snapshot is before
    assert actions(host) == ["opened"]


def test_a_restored_version_keeps_the_verdicts(host, model):
    host.change("block", "sand", None, block("sand"))
    host.learn([Verdict("item-2", "sea", True)])
    host.restore(1, "ann")
    assert "sand" not in blocked(host)
    assert n_verdicts(host) == 1
    assert actions(host) == ["opened", "block", "restore"]
    assert ModelHost(model).snapshot.version == host.snapshot.version


def test_verdicts_change_scores_at_once_and_undo_restores_them_exactly(host, world):
    request = SuggestRequest(features_of(world), (), 30)
    (before,) = suggest(host, request)
    numbers = host.learn([Verdict(f"item-{n}", "towel", True) for n in (0, 5, 10)])
    (after,) = suggest(host, request)
    assert probability_by_label(after)["towel"] > probability_by_label(before)["towel"]
    host.undo(numbers)
    assert suggest(host, request) == [before]


def test_a_verdict_on_an_unknown_item_needs_its_features(model, world):
    host = ModelHost(model)
    features = {"x": features_of(world)}
    verdict = Verdict("x", "sand", True)
    with pytest.raises(UnknownItemError, match="There is no item 'x', and no features"):
        host.learn([verdict])
    host.learn([verdict], features)
    assert host.snapshot.reviewed == {"x"}
    with pytest.raises(UnknownItemError, match="There is no item 'y'"):
        host.learn([Verdict("y", "sand", True)], features)


def test_a_refresh_reads_what_other_processes_wrote(host, model, world):
    assert not host.refresh()
    table = Table(features=world.X_test[:1], ids=["x"])
    load(model).learn([("x", "towel", True)], table)
    assert host.refresh()
    assert n_verdicts(host) == 1
    block_on_disk(model, "sand")
    assert host.refresh()
    assert "sand" in blocked(host)


def test_a_change_applies_to_the_model_on_disk(host, model):
    block_on_disk(model, "sand")
    host.change("block", "sun", None, block("sun"))
    assert blocked(host) == {"sand", "sun"}
    assert set(load(model).vocabulary_.blocked) == {"sand", "sun"}


def test_a_damaged_model_is_refused_and_the_former_one_serves_on(host, model):
    before = host.snapshot
    file = model / MODEL_FILE
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(InputError, match="former model goes on"):
        host.reload()
    assert host.snapshot is before
    assert "refused" in host.notices.reload_error
    assert not host.refresh(), "it is not tried again"
    file.write_bytes(content)
    host.reload()
    assert host.notices.reload_error is None


def test_a_model_with_another_number_of_features_is_refused(
    host, model, world, tiny_space, tmp_path
):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=20), n_validations=0, random_state=0)
    tagger.fit(np.hstack([world.X, world.X]), world.documents)
    tagger.save(tmp_path / "wide")
    shutil.copy(tmp_path / "wide" / MODEL_FILE, model)
    with pytest.raises(InputError, match="takes 10 features, and callers send 5"):
        host.reload()


def test_a_change_of_its_own_is_not_loaded_again(host, monkeypatch):
    host.change("block", "sun", None, block("sun"))
    monkeypatch.setattr(host, "reload", lambda: pytest.fail("loaded again"))
    assert not host.refresh()


def test_a_model_that_is_copied_slowly_serves_when_it_is_complete(host, model, tmp_path):
    load(model).block(["sand"]).save(tmp_path / "new")
    content = (tmp_path / "new" / MODEL_FILE).read_bytes()
    (model / MODEL_FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="former model goes on"):
        host.refresh()
    (model / MODEL_FILE).write_bytes(content)
    assert host.refresh()
    assert host.notices.reload_error is None
    assert "sand" in blocked(host)


@pytest.mark.parametrize("content", [b"{}", None], ids=["broken", "missing"])
def test_trouble_is_over_when_the_former_model_is_back(host, model, content):
    file = model / MODEL_FILE
    whole = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match="former model goes on"):
        host.refresh()
    assert "refused" in host.notices.reload_error
    assert host.changed
    assert not host.refresh(), "it is not tried again"
    file.write_bytes(whole)
    host.refresh()
    assert host.notices.reload_error is None


def test_readers_see_consistent_states_while_the_model_changes(host, world):
    inconsistent = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            ((state, suggestions),) = host.suggest([SuggestRequest(features_of(world), (), 30)])
            if not set(probability_by_label(suggestions)) <= set(state.kinds):
                inconsistent.append(suggestions)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(2):
        host.change("rename", "", None, rename("sand", "grit"))
        host.change("rename", "", None, rename("grit", "sand"))
    stop.set()
    for reader in readers:
        reader.join()
    assert not inconsistent


def test_for_an_unknown_label_similar_labels_are_proposed(host):
    with pytest.raises(UnknownLabelError) as refusal:
        host.snapshot.label("Sandd")
    sentence, _, hint = str(refusal.value).partition("; did you mean ")
    assert sentence == "There is no label 'Sandd'"
    assert hint.startswith("'sand'")
    proposals = hint.split(" or ")
    assert 1 <= len(proposals) <= 3
    with pytest.raises(UnknownLabelError, match=r"^There is no label 'qqqqqq'\.$"):
        host.snapshot.label("qqqqqq")
    assert host.snapshot.label("  SAND ") == "sand"


def test_a_model_of_the_published_method_is_refused(published_tagger, tmp_path):
    folder = tmp_path / "paper"
    published_tagger.save(folder)
    with pytest.raises(InputError, match="published method"):
        ModelHost(folder)


def test_a_model_in_a_folder_that_cannot_be_written_still_answers(model, world, monkeypatch):
    monkeypatch.setattr("polyseme.studio.host._can_write", lambda _: False)
    host = ModelHost(model)
    request = SuggestRequest(features_of(world))
    (suggestions,) = suggest(host, request)
    assert suggestions
    versions = model / "versions"
    assert not versions.exists()


@pytest.mark.parametrize("first", ["service", "command line"])
def test_the_second_of_two_concurrent_changes_is_refused_and_none_is_lost(host, model, first):
    from polyseme.cli.models import change_model

    block_sand = block("sand")
    rename_sea = rename("sea", "ocean")

    def change_in_service(function):
        host.change("change", "", None, function)

    def change_at_command_line(function):
        change_model(model, None, "change", function)

    changes = (change_in_service, change_at_command_line)
    change_first, change_second = changes if first == "service" else reversed(changes)

    def rename_too_late(tagger):
        change_first(block_sand)
        rename_sea(tagger)

    with pytest.raises(ModelFileError, match="was changed since it was loaded"):
        change_second(rename_too_late)
    change_second(rename_sea)
    tagger = load(model)
    assert "ocean" in tagger.classes_
    assert "sand" in tagger.vocabulary_.blocked
