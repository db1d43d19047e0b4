"""Mapping: d nu-support-vector regressions over one kernel, against scikit-learn's one by one.

`python benchmarks/bench_mapping.py` prints the tables; `--size quick` checks that it runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _reporting import Cell, Curve, Ratio, Report, Table, command_line, exponent
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multioutput import MultiOutputRegressor
from sklearn.svm import NuSVR

from polyseme.base.validation import PolysemeWarning
from polyseme.published.mapping import InstanceMapper

Array = NDArray[np.float64]
NU, C, GAMMA, PENALTY = 0.2, 1.0, 1.0, 1.0
SCALES = (0.25, 0.5, 1.0, 2.0)
N_PROCESSES = 2
N_QUERIES = 2000


@dataclass
class Plan:
    """What one size measures: rows, features, outputs; of these, those given to libsvm."""

    n: int
    n_features: int
    d: int
    timed: int
    exact: int
    repeats: int


@dataclass
class LibsvmFigures:
    """Seconds of libsvm for all outputs, and what it predicts (n_queries, n_outputs)."""

    each_output: float  # fitted one by one
    one_kernel: float  # fitted on one kernel
    predicting: float
    points: Array
    exact: Array  # of the first outputs, at a strict tolerance


PLANS = {
    "full": [Plan(3000, 512, 200, 200, 40, 3), Plan(10_000, 512, 200, 8, 4, 2)],
    "quick": [Plan(300, 32, 8, 8, 4, 1), Plan(600, 32, 8, 4, 4, 1)],
}
LANDMARKS = {
    "full": (10_000, (125, 250, 500, 1000, 2000, 4000)),
    "quick": (600, (20, 100)),
}
GROWTH = {"full": (20_000, 40_000, 80_000, 160_000), "quick": (1000, 2000)}


def world(n: int, n_features: int, d: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Rows of length 1 with 20 hidden causes; smooth functions of these plus noise, 4 scales."""
    rng = np.random.default_rng(seed)
    n_rows = n + N_QUERIES
    hidden = rng.normal(size=(n_rows, 20))
    loadings = rng.normal(size=(20, n_features))
    X = hidden @ loadings
    X += 2 * rng.normal(size=X.shape)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    directions = rng.normal(size=(20, d))
    smooth = np.sin(0.27 * hidden @ directions)
    noise = rng.normal(size=(n_rows, d))
    Y = smooth + 0.3 * noise
    Y *= np.resize(SCALES, d)
    return X[:n], Y[:n], X[n:], Y[n:]


def ours(kind: str = "nu-svr", **parameters: object) -> InstanceMapper:
    """Make the mapper that is measured; its other settings are its defaults."""
    settings: dict[str, object] = {"nu": NU, "C": C}
    if kind == "kernel-ridge":
        settings = {"penalty": PENALTY}
    settings |= parameters
    return InstanceMapper(kind, gamma=GAMMA, scaling="l2", **settings)


def each_output(plan: Plan, X: Array, Y: Array) -> tuple[MultiOutputRegressor, float]:
    """Fit `MultiOutputRegressor(NuSVR)` on two processes; give it and its seconds for all d."""
    # The kernel's rows are kept in memory as far as a machine can be expected to.
    regressor = NuSVR(nu=NU, C=C, gamma=GAMMA, cache_size=1000)
    model = MultiOutputRegressor(regressor, n_jobs=N_PROCESSES)
    sample = clone(model)
    sample.fit(X[:200], Y[:200, :2])  # wakes the processes
    outputs = Y[:, : plan.timed]
    start = time.perf_counter()
    model.fit(X, outputs)
    seconds = time.perf_counter() - start
    scale = plan.d / plan.timed
    return model, seconds * scale


def one_kernel(
    plan: Plan, X: Array, Y: Array, tolerance: float = 1e-3
) -> tuple[list[NuSVR], float]:
    """Fit NuSVR on a kernel computed once, two processes; give models and seconds for all d."""
    n_outputs = plan.timed if tolerance == 1e-3 else plan.exact
    start = time.perf_counter()
    kernel = rbf_kernel(X, gamma=GAMMA)
    shared = time.perf_counter() - start
    model = NuSVR(kernel="precomputed", nu=NU, C=C, tol=tolerance, cache_size=1000)
    pool = Parallel(n_jobs=N_PROCESSES)
    # Handing the kernel to the processes takes once what it takes, however many outputs follow.
    look = delayed(np.shape)
    start = time.perf_counter()
    pool(look(kernel) for _ in range(N_PROCESSES))
    shared += time.perf_counter() - start
    columns = Y[:, :n_outputs].T
    fit = delayed(_fit)
    start = time.perf_counter()
    models = pool(fit(model, kernel, column) for column in columns)
    seconds = time.perf_counter() - start
    return models, shared + seconds * plan.d / n_outputs


def _fit(model: NuSVR, kernel: Array, column: Array) -> NuSVR:
    """Fit a fresh copy of the model to one output."""
    return NuSVR(**model.get_params()).fit(kernel, column)


def best(plan: Plan, fit: Callable[[Array, Array], object], X: Array, Y: Array) -> float:
    """Return the least seconds of several fits."""
    times = []
    for _ in range(plan.repeats):
        start = time.perf_counter()
        fit(X, Y)
        seconds = time.perf_counter() - start
        times.append(seconds)
    return min(times)


def measure_libsvm(plan: Plan, X: Array, Y: Array, queries: Array) -> LibsvmFigures:
    """Time both ways with libsvm, and predict strictly with the first outputs."""
    rival, each_output_seconds = each_output(plan, X, Y)
    _, one_kernel_seconds = one_kernel(plan, X, Y)
    strict, _ = one_kernel(plan, X, Y, 1e-6)
    kernel = rbf_kernel(queries, X, gamma=GAMMA)
    exact = np.column_stack([model.predict(kernel) for model in strict])
    start = time.perf_counter()
    points = rival.predict(queries)
    seconds = time.perf_counter() - start
    predicting = seconds * plan.d / plan.timed
    return LibsvmFigures(each_output_seconds, one_kernel_seconds, predicting, points, exact)


def compare(plan: Plan) -> tuple[Table, list[Ratio]]:
    """Time every way at one size and see how far its predictions are from libsvm's."""
    X, Y, queries, truth = world(plan.n, plan.n_features, plan.d)
    libsvm = measure_libsvm(plan, X, Y, queries)
    mapper = ours()
    ridge = ours("kernel-ridge")
    plain = KernelRidge(alpha=PENALTY, kernel="rbf", gamma=GAMMA)
    mean = Y.mean(axis=0)
    fast = best(plan, mapper.fit, X, Y)
    closed = best(plan, ridge.fit, X, Y)
    plain_seconds = best(plan, plain.fit, X, Y - mean)
    quick = best(plan, lambda rows, _: mapper.predict(rows), queries, truth)
    spread = Y.std(axis=0)

    def difference(points: Array) -> tuple[float, float]:
        gaps = np.abs(points[:, : plan.exact] - libsvm.exact)
        in_spreads = gaps / spread[: plan.exact]
        return float(gaps.max()), float(in_spreads.max())

    def error(points: Array) -> float:
        n_outputs = points.shape[1]
        residuals = points - truth[:, :n_outputs]
        in_spreads = residuals / spread[:n_outputs]
        return float((in_spreads**2).mean())

    def row(name: str, seconds: float, *cells: float | None) -> list[Cell]:
        empty = [None] * (4 - len(cells))
        return [name, seconds, seconds / fast, *empty, *cells]

    points = mapper.predict(queries)
    regressed = ridge.predict(queries)
    plain_points = plain.predict(queries) + mean
    libsvm_difference = difference(libsvm.points)
    own_difference = difference(points)
    libsvm_cells = (libsvm.predicting, *libsvm_difference, error(libsvm.points))
    rows = [
        row("MultiOutputRegressor(NuSVR), 2 processes", libsvm.each_output, *libsvm_cells),
        row("NuSVR on one precomputed kernel, 2 processes", libsvm.one_kernel, None),
        row("InstanceMapper, nu-svr", fast, quick, *own_difference, error(points)),
        row("KernelRidge of scikit-learn", plain_seconds, error(plain_points)),
        row("InstanceMapper, kernel-ridge", closed, error(regressed)),
    ]
    seconds = (fast, quick)
    ratios = comparison_ratios(plan, libsvm, seconds, own_difference, libsvm_difference)
    return comparison_table(plan, rows), ratios


def comparison_table(plan: Plan, rows: list[list[Cell]]) -> Table:
    """Return the table of all ways at one size."""
    columns = [
        "way",
        "fit, s",
        "x ours",
        f"predict {N_QUERIES:,} rows, s",
        "largest difference",
        "in spreads",
        "mean squared error",
    ]
    title = f"{plan.n:,} rows, {plan.n_features} features, {plan.d} outputs"
    note = (
        f"Differences of predictions to libsvm at tolerance 1e-6 on the first {plan.exact} "
        f"outputs, absolute and in spreads of the target. NuSVR is fitted once, by processes that "
        f"are awake, with a cache of 1,000 MB; ours is the least of {plan.repeats} fits."
    )
    if plan.timed != plan.d:
        note += (
            f" scikit-learn's seconds are those of {plan.timed} outputs times "
            f"{plan.d / plan.timed:g}: outputs are alike and fitted one by one."
        )
    return Table(title, "what fits", columns, rows, note)


def comparison_ratios(
    plan: Plan,
    libsvm: LibsvmFigures,
    seconds: tuple[float, float],
    own_difference: tuple[float, float],
    libsvm_difference: tuple[float, float],
) -> list[Ratio]:
    """Return the ratios of one size; seconds are ours, of a fit and of a prediction."""
    fitting, predicting = seconds
    size = f"at N={plan.n:,}"
    goals = {3000: (45.0, 8.0), 10_000: (45.0, 6.0)}
    each_goal, kernel_goal = goals.get(plan.n, (1.0, 1.0))
    each_ratio = libsvm.each_output / fitting
    kernel_ratio = libsvm.one_kernel / fitting
    largest, in_spreads = own_difference
    of_libsvm = in_spreads / libsvm_difference[1]
    at_its_tolerance = f"the same in spreads, by that of libsvm at its own tolerance, {size}"
    ratios = [
        Ratio(
            f"fit against MultiOutputRegressor(NuSVR), 2 processes, {size}", each_ratio, each_goal
        ),
        Ratio(f"fit against precomputed NuSVR, 2 processes, {size}", kernel_ratio, kernel_goal),
        Ratio(f"largest difference to libsvm at 1e-6, {size}", largest, 1e-3, False, ""),
        Ratio(at_its_tolerance, of_libsvm, 1.0, at_least=False),
    ]
    if plan.n != 10_000:
        goal = 600 if plan.n == 3000 else 1
        ratio = libsvm.predicting / predicting
        ratios.append(Ratio(f"predicting {N_QUERIES:,} rows, {size}", ratio, goal))
    return ratios


def scaling_check(plan: Plan, whole: Table) -> Table:
    """See whether seconds of a few outputs times their share are those of all, in `whole`."""
    X, Y, *_ = world(plan.n, plan.n_features, plan.d)
    n_timed = max(plan.d // 12, 4) // 4 * 4
    few = Plan(plan.n, plan.n_features, plan.d, n_timed, 0, 1)
    _, each_seconds = each_output(few, X, Y)
    _, kernel_seconds = one_kernel(few, X, Y)
    whole_each = whole.rows[0][1]
    whole_kernel = whole.rows[1][1]
    rows: list[list[Cell]] = [
        ["one by one", each_seconds, whole_each],
        ["on one kernel", kernel_seconds, whole_kernel],
    ]
    title = f"scikit-learn at {plan.n:,} rows: {n_timed} outputs scaled up, and all {plan.d}"
    columns = ["way", f"{n_timed} outputs, scaled, s", f"all {plan.d}, s"]
    return Table(title, "how many outputs are timed", columns, rows)


def landmark_losses(n: int, counts: tuple[int, ...], n_features: int, d: int) -> Table:
    """Vary the number of landmarks: seconds and error beside the exact mapping."""
    X, Y, queries, truth = world(n, n_features, d)
    spread = Y.std(axis=0)
    fewer_than_rows = [count for count in counts if count < n]
    rows: list[list[Cell]] = []
    for kind in ("kernel-ridge", "nu-svr"):
        for count in (*fewer_than_rows, None):
            mapper = ours(kind, n_landmarks=count, random_state=0)
            start = time.perf_counter()
            mapper.fit(X, Y)
            fitted = time.perf_counter()
            points = mapper.predict(queries)
            asking = time.perf_counter() - fitted
            seconds = fitted - start
            residuals = (points - truth) / spread
            error = float((residuals**2).mean())
            name = "all" if count is None else f"{count:,}"
            rows.append([kind, name, seconds, asking, error, 1 - error])
    columns = [
        "kind",
        "landmarks",
        "fit, s",
        f"predict {N_QUERIES:,} rows, s",
        "mean squared error",
        "R2",
    ]
    note = "Errors in variances of the target, on rows not fitted; noise alone leaves about 0.2."
    title = f"Landmarks at {n:,} rows, {d} outputs"
    return Table(title, "landmarks", columns, rows, note)


GROWING = """
import sys, time, warnings, numpy as np
sys.path.insert(0, {folder!r})
from bench_mapping import ours
from _reporting import peak_mb
n, d = {n}, {d}
rng = np.random.default_rng(0)
X = rng.normal(size=(n, 64)).astype(np.float32)
Y = np.empty((n, d), dtype=np.float32)
maps = rng.normal(size=(64, d)).astype(np.float32) / 8
for start in range(0, n, 10_000):
    part = slice(start, start + 10_000)
    Y[part] = np.sin(X[part] @ maps)
mapper = ours({kind!r}, memory_mb={memory}, n_landmarks={landmarks}, random_state=0)
before, start = peak_mb(), time.perf_counter()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    mapper.fit(X, Y)
print(time.perf_counter() - start, peak_mb() - before, mapper.n_landmarks_)
"""


def grown(n: int, d: int, kind: str, landmarks: int | None, memory: float) -> list[float]:
    """Fit in a fresh process: seconds, megabytes beyond the inputs, landmarks."""
    folder = str(Path(__file__).parent)
    code = GROWING.format(
        folder=folder,
        n=n,
        d=d,
        kind=kind,
        landmarks=landmarks,
        memory=memory,
    )
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    words = process.stdout.split()
    return [float(word) for word in words]


def growth(size: str) -> tuple[Table, Curve]:
    """Vary the rows with the number of landmarks fixed: linear time, bounded memory."""
    d = 8
    n_landmarks = 50
    memory = 64.0
    if size == "full":
        d = 200
        n_landmarks = 500
        memory = 1024.0
    rows: list[list[Cell]] = []
    series: dict[str, list[list[float]]] = {}
    for kind in ("kernel-ridge", "nu-svr"):
        points = []
        for n in GROWTH[size]:
            seconds, extra, _ = grown(n, d, kind, n_landmarks, memory)
            rows.append([kind, n, seconds, extra])
            points.append([float(n), seconds])
        series[kind] = points
    powers = ", ".join(f"{kind}: N^{exponent(points):.2f}" for kind, points in series.items())
    title = f"Landmark mapping of more rows ({n_landmarks} landmarks, 64 features, {d} outputs)"
    columns = ["kind", "rows", "fit, s", "memory beyond inputs, MB"]
    note = f"`memory_mb` is {memory:g}; a fresh process each; seconds grow as {powers}."
    table = Table(title, "rows", columns, rows, note)
    return table, Curve("Landmark mapping", "rows", "seconds", series)


def measure(size: str) -> Report:
    """Measure the mapping from features to points beside scikit-learn's."""
    warnings.simplefilter("ignore", PolysemeWarning)
    report = Report(
        "mapping",
        "Mapping: many nu-support-vector regressions over one kernel",
        "All outputs solved together (`InstanceMapper`) against scikit-learn's NuSVR, one output "
        "at a time on two processes: with its own kernel (`MultiOutputRegressor`) and on a kernel "
        "computed once. Rows of length 1 with 20 hidden causes, targets that are smooth functions "
        f"of these plus noise at four scales; nu {NU}, C {C}, gamma {GAMMA}. Absolute differences "
        "to libsvm at 1e-6 must keep to 1e-3; those in spreads of a target, which are not held to "
        "that, are judged by libsvm's own at its default tolerance. The tables have both.",
    )
    for plan in PLANS[size]:
        table, ratios = compare(plan)
        report.tables.append(table)
        report.ratios += ratios
    if size == "full":
        report.tables.append(scaling_check(PLANS[size][0], report.tables[0]))
    n, counts = LANDMARKS[size]
    plan = PLANS[size][0]
    report.tables.append(landmark_losses(n, counts, plan.n_features, plan.d))
    table, curve = growth(size)
    report.tables.append(table)
    report.curves.append(curve)
    return report


if __name__ == "__main__":
    command_line(measure)
