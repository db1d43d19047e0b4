"""A model in use: changed by copies, saved, and reloaded beside the old one."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest

from polyseme import load
from polyseme._validation import InputError
from polyseme.persistence import MODEL, ModelFileError
from polyseme.serve.collection import UnknownItemError
from polyseme.serve.host import Ask, ModelHost, UnknownLabelError
from polyseme.verdicts import Verdict


def row(world, number=0):
    return world.X_test[number].astype(np.float32)


def test_answers_are_those_of_the_tagger(host, model, world):
    tagger = load(model)
    asks = [Ask(row(world, number), (), 4) for number in range(3)]
    labels, scores = tagger.rank(world.X_test[:3].astype(np.float32), 4)
    for (_, found), names, values in zip(host.suggest(asks), labels, scores, strict=True):
        assert [one.label for one in found] == names.tolist()
        assert [one.probability for one in found] == pytest.approx(values.tolist())


def test_questions_of_all_kinds_are_answered_in_one_batch_as_they_would_be_alone(host, world):
    asks = [
        Ask(row(world), (), 3),
        Ask(None, ("sand", "sea"), 3),
        Ask(row(world, 1), ("oven",), 3),
        Ask(row(world, 2), (), 3, kinds=("unseen",)),
        Ask(row(world, 2), (), 30, threshold=0.5),
        Ask(row(world, 2), (), 30, precision=0.5),
    ]
    together = [found for _, found in host.suggest(asks)]
    alone = [host.suggest([ask])[0][1] for ask in asks]
    for one, other in zip(together, alone, strict=True):
        assert [s.label for s in one] == [s.label for s in other]
        assert [s.probability for s in one] == pytest.approx([s.probability for s in other])
    assert "oven" not in [one.label for one in together[2]]
    assert {one.kind for one in together[3]} == {"unseen"}
    assert all(one.probability >= 0.5 for one in together[4])


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (Ask(None), "Give features"),
        (Ask(None, ("zzz",)), "None of the tags is known: zzz"),
        (Ask(np.zeros(3, np.float32)), "takes 5 features an item; got 3"),
        (Ask(np.full(5, np.nan, np.float32)), "must be finite"),
        (Ask(None, ("sand",), precision=0.5), "for tags alone"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_it_waits(host, ask, sentence):
    with pytest.raises(InputError, match=sentence):
        host.check(ask)


def test_unknown_tags_are_told_and_noted(host, world):
    ask, unknown = host.check(Ask(row(world), ("Sand", "canoe", "canoe")))
    assert ask.tags == ("sand",) and unknown == ["canoe"]
    assert host.told.typed == {"canoe": 1}


def test_a_change_is_saved_kept_as_a_version_and_answers_at_once(host, model):
    before = host.now
    host.change("rename", "sand", "ann", lambda tagger: tagger.rename("sand", "grit"))
    assert host.now.known("grit") == host.now.known("sand") == "grit"
    assert "sand" in before.kinds and before.tagger is not host.now.tagger
    assert "grit" in load(model).classes_
    assert [(one.action, one.who) for one in host.versions.all()] == [
        ("opened", None),
        ("rename", "ann"),
    ]
    assert host.now.version != before.version


def test_a_change_that_fails_changes_nothing(host, model):
    before = host.now
    with pytest.raises(InputError, match="already"):
        host.change("rename", "", None, lambda tagger: tagger.rename("sand", "sea"))
    assert host.now is before and len(host.versions.all()) == 1


def test_a_version_is_put_back_and_answers_stay(host, model):
    host.change("block", "sand", None, lambda tagger: tagger.block(["sand"]))
    host.learn([Verdict("item-2", "sea", True)])
    host.restore(1, "ann")
    assert "sand" not in host.now.tagger.vocabulary_.blocked
    assert len(host.now.tagger.verdicts_.standing()) == 1
    assert [one.action for one in host.versions.all()] == ["opened", "block", "restore"]
    assert ModelHost(model).now.version == host.now.version


def test_verdicts_move_scores_at_once_and_undo_takes_them_back_to_the_bit(host, world):
    ask = [Ask(row(world, 0), (), 30)]
    before = host.suggest(ask)[0][1]
    numbers = host.learn([Verdict(f"item-{n}", "towel", True) for n in (0, 5, 10)])
    after = {one.label: one.probability for one in host.suggest(ask)[0][1]}
    assert after["towel"] > {one.label: one.probability for one in before}["towel"]
    host.undo(numbers)
    assert host.suggest(ask)[0][1] == before


def test_items_that_nobody_knows_need_features(model, world):
    host = ModelHost(model)
    with pytest.raises(UnknownItemError, match="There is no item 'x', and no features"):
        host.learn([Verdict("x", "sand", True)])
    host.learn([Verdict("x", "sand", True)], {"x": row(world)})
    assert host.now.reviewed == {"x"}
    with pytest.raises(UnknownItemError, match="There is no item 'y'"):
        host.learn([Verdict("y", "sand", True)], {"x": row(world)})


def test_what_others_write_to_the_folder_is_taken_up(host, model, world):
    assert not host.refresh()
    other = load(model)
    other.learn([("x", "towel", True)], _named(world))
    assert host.refresh() and len(host.now.tagger.verdicts_.standing()) == 1
    load(model).block(["sand"]).save(model)
    assert host.refresh() and "sand" in host.now.tagger.vocabulary_.blocked
    # A change of ours is made to what is there now, not to what was.
    load(model).block(["sea"]).save(model)
    host.change("block", "sun", None, lambda tagger: tagger.block(["sun"]))
    assert set(load(model).vocabulary_.blocked) == {"sand", "sea", "sun"}


def _named(world):
    from polyseme.io import Table

    return Table(features=world.X_test[:1], ids=["x"])


def test_a_model_that_cannot_be_used_is_not_taken_and_the_old_one_goes_on(host, model, world):
    before = host.now
    file = model / MODEL
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(InputError, match="former model goes on"):
        host.reload()
    assert host.now is before and "refused" in host.told.trouble
    assert not host.refresh()  # which does not try it again
    file.write_bytes(content)
    host.reload()
    assert host.told.trouble is None


def test_a_model_of_other_features_is_not_taken(host, model, world, tiny_space, tmp_path):
    from polyseme import ZeroShotTagger

    wide = np.hstack([world.X, world.X])
    other = ZeroShotTagger(space=tiny_space(n_steps=20), n_validations=0, random_state=0)
    other.fit(wide, world.documents).save(tmp_path / "wide")
    shutil.copy(tmp_path / "wide" / MODEL, model)
    with pytest.raises(InputError, match="takes 10 features, and callers send 5"):
        host.reload()


def test_a_model_that_is_copied_slowly_is_taken_up_when_all_of_it_is_there(host, model, tmp_path):
    load(model).block(["sand"]).save(tmp_path / "new")
    content = (tmp_path / "new" / MODEL).read_bytes()
    (model / MODEL).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="former model goes on"):
        host.refresh()
    (model / MODEL).write_bytes(content)
    assert host.refresh() and host.told.trouble is None
    assert "sand" in host.now.tagger.vocabulary_.blocked


def test_a_change_of_its_own_is_not_loaded_again(host, monkeypatch):
    host.change("block", "sun", None, lambda tagger: tagger.block(["sun"]))
    monkeypatch.setattr(host, "reload", lambda: pytest.fail("loaded again"))
    assert not host.refresh()


def test_trouble_is_over_when_the_former_model_is_back(host, model):
    content = (model / MODEL).read_bytes()
    for broken in (b"{}", None):
        (model / MODEL).unlink()
        if broken is not None:
            (model / MODEL).write_bytes(broken)
        with pytest.raises(InputError, match="former model goes on"):
            host.refresh()
        assert "refused" in host.told.trouble and host.changed
        assert not host.refresh(), "which does not try it again"
        (model / MODEL).write_bytes(content)
        host.refresh()
        assert host.told.trouble is None


def test_readers_see_whole_states_while_the_model_is_changed(host, world):
    wrong, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            now, found = host.suggest([Ask(row(world), (), 30)])[0]
            if {one.label for one in found} - set(now.kinds):
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for name in ("grit", "sand", "grit", "sand"):
        old = "sand" if name == "grit" else "grit"
        host.change("rename", name, None, lambda tagger, o=old, n=name: tagger.rename(o, n))
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_an_unknown_label_is_named_with_likely_ones_only(host):
    with pytest.raises(UnknownLabelError) as told:
        host.now.label("Sandd")
    sentence, _, hint = str(told.value).partition("; did you mean ")
    assert sentence == "There is no label 'Sandd'" and hint.startswith("'sand'")
    assert 1 <= len(hint.split(" or ")) <= 3
    with pytest.raises(UnknownLabelError, match=r"^There is no label 'qqqqqq'\.$"):
        host.now.label("qqqqqq")
    assert host.now.label("  SAND ") == "sand"


def test_a_model_of_the_published_method_is_refused(published_tagger, tmp_path):
    published_tagger.save(tmp_path / "paper")
    with pytest.raises(InputError, match="published method"):
        ModelHost(tmp_path / "paper")


def test_a_folder_that_cannot_be_written_still_answers(model, world, monkeypatch):
    monkeypatch.setattr("polyseme.serve.host._can_write", lambda _: False)
    host = ModelHost(model)
    assert host.suggest([Ask(row(world))])[0][1]
    assert not (model / "versions").exists()


@pytest.mark.parametrize("first", ["service", "command line"])
def test_of_two_changes_at_once_the_second_is_refused_and_none_is_lost(host, model, first):
    from polyseme.cli.commands import _change

    def block():
        host.change("block", "sand", None, lambda tagger: tagger.block(["sand"]))

    def rename():
        _change(model, None, "rename", lambda tagger: tagger.rename("sea", "ocean"))

    def block_during(tagger):
        block()
        tagger.rename("sea", "ocean")

    def rename_during(tagger):
        rename()
        tagger.block(["sand"])

    with pytest.raises(ModelFileError, match="was changed since it was loaded"):
        if first == "service":
            _change(model, None, "rename", block_during)
        else:
            host.change("block", "sand", None, rename_during)
    rename() if first == "service" else block()
    tagger = load(model)
    assert "ocean" in tagger.classes_ and "sand" in tagger.vocabulary_.blocked
