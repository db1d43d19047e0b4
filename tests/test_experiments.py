from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from polyseme import ConceptEmbedding, ContextDescriptor, LabelCorpus, TrainingPlan
from polyseme._validation import InputError
from polyseme.datasets.folder import load_folder
from polyseme.experiments import hsun, run_experiment
from polyseme.experiments.splits import carries, draw_unseen


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A small stand-in for the folder `hsun`, of our own making: five scenes of six objects."""
    generator = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("data")
    folder = root / "hsun"
    folder.mkdir()
    scenes = [[f"object {scene}{i}" for i in range(6)] for scene in "abcde"]
    names = sorted(label for scene in scenes for label in scene)
    lines, X = [], []
    for i in range(240):
        scene = scenes[i % 5]
        # The later an object stands in its scene, the rarer it is.
        chances = [0.9, 0.8, 0.7, 0.3, 0.15, 0.1]
        labels = [t for t, p in zip(scene, chances, strict=True) if generator.random() < p]
        split = "train" if i < 160 else "test"
        lines.append(json.dumps({"id": f"{split}-{i}", "split": split, "labels": labels}))
        noise = generator.random(len(names)) * 0.3
        X.append([0.6 * (name in labels) for name in names] + noise)
    with gzip.open(folder / "documents.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    np.save(folder / "features.npy", np.array(X, dtype=np.float32))
    (folder / "feature_names.txt").write_text("\n".join(names))
    return root


@pytest.fixture(scope="module")
def small():
    return ConceptEmbedding(
        n_components=16,
        hidden_sizes=(24,),
        context_descriptor=ContextDescriptor(n_topics=8, n_iter=50),
        training=TrainingPlan(max_epochs=6, min_epochs=0, min_steps=10, batch_size=128),
    )


# ------------------------------------------------------------------ label splits


@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_split_keeps_its_promises(sample, seed):
    raw = load_folder("hsun", sample).documents
    corpus = LabelCorpus.from_documents(raw.label_sets, ids=raw.ids)
    unseen = draw_unseen(corpus, random_state=seed)
    assert len(unseen) == round(0.25 * len(corpus.labels))
    assert 0.25 <= carries(corpus, unseen).mean() <= 0.30
    assert unseen == draw_unseen(corpus, random_state=seed)


def test_an_impossible_share_is_an_error():
    corpus = LabelCorpus.from_documents([("a", "b"), ("a", "b")])
    with pytest.raises(InputError, match="widen `document_share`"):
        draw_unseen(corpus, label_share=0.5, random_state=0, n_tries=5)


# ------------------------------------------------------------------ the experiments


@pytest.mark.parametrize("name", ["fig7", "fig9"])
def test_experiments_give_a_record_per_measure_and_set_of_labels(name, sample, small):
    said = []
    records = hsun.run(name, sample, trials=2, seed=0, say=said.append, embedding=small)
    methods = {record["method"] for record in records}
    assert methods == (
        {"polyseme"} if name == "fig7" else {"polyseme", "tuned COSTA", "popularity"}
    )
    assert len(records) == 6 * len(methods)
    ours = {(r["measure"], r["labels"]): r for r in records if r["method"] == "polyseme"}
    assert ours["E-MAP", "seen"]["published"] == {"fig7": 70.53, "fig9": 58.20}[name]
    assert all(0 <= record["mean"] <= 100 and record["trials"] == 2 for record in records)
    assert len(said) == 4
    if name == "fig9":
        floor = next(r for r in records if r["method"] == "popularity" and r["labels"] == "seen")
        assert ours["E-MAP", "seen"]["mean"] > floor["mean"]


def test_detectors_and_instances_of_unseen_labels_are_left_out(sample, small, monkeypatch):
    met = []
    whole = hsun._whole_system

    def watch(embedding, corpus, X, *, train, taught, tested, seed):
        met.append((corpus, X.shape[1], taught, tested))
        return whole(embedding, corpus, X, train=train, taught=taught, tested=tested, seed=seed)

    monkeypatch.setattr(hsun, "_whole_system", watch)
    hsun.run("fig9", sample, trials=1, seed=3, say=lambda line: None, embedding=small)
    corpus, n_features, taught, tested = met[0]
    unseen = draw_unseen(corpus.select(np.array(corpus.splits) == "train"), random_state=3)
    assert n_features == len(corpus.labels) - len(unseen)
    assert not (carries(corpus, unseen) & taught).any()
    assert carries(corpus, unseen)[tested].all()
    assert not (taught & tested).any()


def test_what_is_hidden_cannot_change_a_bit(sample, small, monkeypatch):
    """Poison every feature that the split hides: scores must stay the same."""
    found = []
    whole, load = hsun._whole_system, hsun._load
    monkeypatch.setattr(
        hsun, "_whole_system", lambda *a, **k: found.append(whole(*a, **k)) or found[-1]
    )

    def poisoned(data):
        corpus, X, columns = load(data)
        train = (np.array(corpus.splits) == "train") & (np.diff(corpus.matrix.indptr) > 0)
        unseen = draw_unseen(corpus.select(train), random_state=5)
        X = X.copy()
        X[train & carries(corpus, unseen)] = 1e6
        X[:, np.isin(columns, unseen)] = -1e6
        return corpus, X, columns

    for loader in (load, poisoned):
        monkeypatch.setattr(hsun, "_load", loader)
        hsun.run("fig9", sample, trials=1, seed=5, say=lambda line: None, embedding=small)
    clean, dirty = found
    for method in clean:
        assert np.array_equal(clean[method], dirty[method]), method


def test_unknown_names_and_missing_data_get_one_sentence(sample, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="Unknown experiment 'fig8'; known: fig7, fig9"):
        run_experiment("fig8", sample)
    with pytest.raises(InputError, match="No corpus 'hsun' at"):
        run_experiment("fig7", tmp_path)
    with pytest.raises(InputError, match="found there: hsun"):
        load_folder("corel5k", sample)
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    with pytest.raises(InputError, match="set POLYSEME_DATA to the folder"):
        run_experiment("fig7")


def test_the_real_corpus_has_the_papers_size(data):
    if not (data / "hsun").is_dir():
        pytest.skip("the corpus hsun is not here")
    corpus, X, columns = hsun._load(data)
    assert len(corpus) == len(X) == 8684
    assert len(corpus.labels) == len(columns) == 111
    assert [corpus.splits.count(split) for split in ("train", "test")] == [4367, 4317]
