"""Experiments on media: embedded files, one's own pictures, and what is learned from whom."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme import AudioFeatures, ImageFeatures
from polyseme.base.validation import InputError
from polyseme_experiments.datasets import load_dataset, load_emoji
from polyseme_experiments.media import load_pictures, raw_numbers
from polyseme_experiments.reproduce import reproduce
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.settings import get_setting
from polyseme_experiments.trials import Trial
from sidecar_files import write_sidecar


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A hundred emoji in a folder, one file broken."""
    folder = tmp_path_factory.mktemp("own") / "pictures"
    emoji = load_emoji(min_count=50)
    emoji.write(folder, emoji.picture_names()[:1000:10])
    (folder / "noto" / "torn.png").write_bytes(b"\x89PNG torn")
    return folder


def test_embedded_datasets_need_no_folder(monkeypatch):
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    emoji = load_dataset("emoji")
    assert not emoji.is_sample
    assert emoji.X.shape == (len(emoji.corpus), 1280)
    assert emoji.corpus.groups is not None
    sample = load_dataset("emoji", sample=True)
    assert sample.is_sample
    assert 0 < len(sample.corpus) < len(emoji.corpus)
    clips = load_dataset("clips")
    assert clips.X is None
    assert clips.corpus.groups is not None


def test_numbers_of_embedded_media_stand_in_the_order_of_the_documents(tmp_path):
    emoji = load_dataset("emoji", sample=True)

    def extract(cache):
        extracted = raw_numbers(emoji, ImageFeatures(size=192), cache, None)
        assert extracted.ids == emoji.corpus.ids
        return np.asarray(extracted.raw)

    features = extract(str(tmp_path))
    assert np.abs(features - emoji.X).max() < 0.003
    assert_array_equal(extract(str(tmp_path)), features)
    assert_array_equal(extract(None), features)


def test_the_codebook_of_a_trial_is_learned_from_its_training_clips(tmp_path):
    config = RunConfig(quick=True, cache=str(tmp_path))
    trial = Trial(get_setting("clips"), 0, config)
    features = trial.instance_features
    expected = len(trial.target.corpus)
    assert features.shape[0] == expected
    raw = raw_numbers(trial.target, AudioFeatures(), str(tmp_path), None)
    training_rows = trial.split.train.tolist()
    of_training = AudioFeatures(random_state=trial.seed).fit(raw[training_rows])
    features_of_training = of_training.transform(raw)
    assert_allclose(features, features_of_training, atol=1e-6)
    of_all = AudioFeatures(random_state=trial.seed).fit(raw)
    features_of_all = of_all.transform(raw)
    assert not np.allclose(features, features_of_all, atol=1e-3)


def test_ones_own_pictures_take_the_place_of_the_emoji(pictures, tmp_path):
    named = load_pictures(str(pictures), str(tmp_path / "cache"))
    assert len(named.corpus) == 100
    assert named.corpus.ids[0].startswith("noto/")
    config = RunConfig(quick=True, pictures=str(pictures))
    (section,) = reproduce(["figA1"], config, out=tmp_path / "out", workers=1)
    (table,) = section.tables
    first_cells = [row[0] for row in table.rows]
    assert first_cells == ["convolution", "pooled", "pre-logit", "logits"]
    assert not any("STAND-IN" in note for note in table.notes)
    assert "--pictures FOLDER" in table.command


def test_tags_may_come_from_sidecars(pictures, tmp_path):
    folder = tmp_path / "photos"
    emoji = load_emoji(min_count=50)
    emoji.write(folder, emoji.picture_names()[:40:4])
    (folder / "tags.jsonl").unlink()
    with pytest.raises(InputError, match=r"have no tags: add tags\.jsonl"):
        load_pictures(str(folder), None)

    pictures = sorted((folder / "noto").glob("*.png"))
    for number, path in enumerate(pictures):
        sidecar = path.with_name(path.name + ".xmp")
        write_sidecar(sidecar, ["face", f"kind {number % 2}"])
    named = load_pictures.__wrapped__(str(folder), None)
    assert named.corpus.labels == ("face", "kind 0", "kind 1")
