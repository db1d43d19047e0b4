"""Compare networks for pictures and sound over five label splits, as the page on files has it.

In: settings, and extractors that look at or listen to their items. Out: a line for each network and
method with E-MAP and C-MAP of seen, of all and of unseen labels, in percent:
mean ± standard error, and of other networks the difference to the first, split by split. The last
two columns are those of unseen labels that no network was trained on. Run it as
`python experiments/scripts/compare_networks.py CACHE [clips] [emoji]`; CACHE is a folder for what
is extracted. On two cores it takes about 20 minutes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from polyseme.media import extractor_class
from polyseme_experiments.methods import get_method
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.settings import Setting, get_setting
from polyseme_experiments.splits import measure
from polyseme_experiments.trials import Trial

# By setting: the kind of its files, and what `ImageFeatures` or `AudioFeatures` is made with; None
# for the features that a setting has (the emoji's are EfficientNet-Lite0's at 192 pixels).
COMPARED: dict[str, tuple[str, list[dict[str, Any] | None]]] = {
    "clips": ("audio", [None, {"network": "musicnn"}, {"network": "musicnn-msd"}]),
    "emoji": (
        "image",
        [
            None,
            {"network": "efficientnet-lite2", "size": 192},
            {"network": "efficientnet-lite2"},
        ],
    ),
}
METHODS = ("default", "tuned-costa")
MEASURES = ("E-MAP", "C-MAP")
N_TRIALS = 5
# Labels of the clips that are other words for tags which musicnn was trained on.
NEARLY = {"acoustic guitar", "electric guitar", "string orchestra", "synthesizer"}


def scores(setting: Setting, cache: str, trained_labels: set[str]) -> dict[str, np.ndarray]:
    """Measure each method in each trial, (n_trials, n_columns * n_measures)."""
    rows: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    for number in range(N_TRIALS):
        trial = Trial(setting, number, RunConfig(cache=cache))
        labels = trial.split.labels
        new = tuple(label for label in labels.unseen if label not in trained_labels)
        columns = {
            "seen": labels.seen,
            "all": (*labels.seen, *labels.unseen),
            "unseen": labels.unseen,
            "new": new,
        }
        tested = trial.split.target.select(trial.split.test)
        for method in METHODS:
            system: Any = get_method(method)
            fitted, scored = system.scores(trial, trial.features(trial.split.test))
            trial.audit(fitted, trial.fit_inputs())
            metrics = measure(tested, scored, fitted.classes_, columns)
            rows[method].append(
                [metrics[column][measure_name] for column in columns for measure_name in MEASURES]
            )
    return {method: np.array(table) for method, table in rows.items()}


def written(values: np.ndarray, sign: str = "") -> str:
    """Write columns as mean ± standard error."""
    errors = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    pairs = zip(values.mean(axis=0), errors, strict=True)
    return "  ".join(f"{mean:{sign}.1f} ± {error:.1f}" for mean, error in pairs)


def main() -> None:
    """Measure, and print as it comes."""
    cache, *names = sys.argv[1:]
    for name in names or COMPARED:
        kind, every = COMPARED[name]
        trained = (
            extractor_class(kind)(**parameters).trained_tags() for parameters in every if parameters
        )
        trained_labels = NEARLY.union(*trained)
        first: dict[str, np.ndarray] = {}
        for parameters in every:
            setting = get_setting(name)
            if parameters is not None:
                setting = replace(setting, extractor=kind, extractor_parameters=parameters)
            measured = scores(setting, cache, trained_labels)
            first = first or measured
            for method, values in measured.items():
                print(f"{name}, {parameters}, {method}: {written(values)}", flush=True)
                if first is not measured:
                    print(f"    difference: {written(values - first[method], '+')}", flush=True)


if __name__ == "__main__":
    main()
