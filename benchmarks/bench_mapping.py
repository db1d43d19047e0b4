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
from _reporting import Curve, Ratio, Report, Table, command_line, exponent
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
    hidden = rng.normal(size=(n + N_QUERIES, 20))
    X = hidden @ rng.normal(size=(20, n_features))
    X += 2 * rng.normal(size=X.shape)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = np.sin(0.27 * hidden @ rng.normal(size=(20, d))) + 0.3 * rng.normal(size=(len(hidden), d))
    Y *= np.resize(SCALES, d)
    return X[:n], Y[:n], X[n:], Y[n:]


def ours(kind: str = "nu-svr", **parameters: object) -> InstanceMapper:
    """Make the mapper that is measured; its other settings are its defaults."""
    own = {"penalty": PENALTY} if kind == "kernel-ridge" else {"nu": NU, "C": C}
    return InstanceMapper(kind, gamma=GAMMA, scaling="l2", **own, **parameters)


def each_output(plan: Plan, X: Array, Y: Array) -> tuple[MultiOutputRegressor, float]:
    """Fit `MultiOutputRegressor(NuSVR)` on two processes; give it and its seconds for all d."""
    # The kernel's rows are kept in memory as far as a machine can be expected to.
    one = NuSVR(nu=NU, C=C, gamma=GAMMA, cache_size=1000)
    model = MultiOutputRegressor(one, n_jobs=N_PROCESSES)
    clone(model).fit(X[:200], Y[:200, :2])  # wakes the processes
    start = time.perf_counter()
    model.fit(X, Y[:, : plan.timed])
    return model, (time.perf_counter() - start) * plan.d / plan.timed


def one_kernel(
    plan: Plan, X: Array, Y: Array, tolerance: float = 1e-3
) -> tuple[list[NuSVR], float]:
    """Fit NuSVR on a kernel computed once, two processes; give models and seconds for all d."""
    n_outputs = plan.timed if tolerance == 1e-3 else plan.exact
    start = time.perf_counter()
    kernel = rbf_kernel(X, gamma=GAMMA)
    shared = time.perf_counter() - start
    model = NuSVR(kernel="precomputed", nu=NU, C=C, tol=tolerance, cache_size=1000)
    # Handing the kernel to the processes takes once what it takes, however many outputs follow.
    start = time.perf_counter()
    Parallel(n_jobs=N_PROCESSES)(delayed(np.shape)(kernel) for _ in range(N_PROCESSES))
    shared += time.perf_counter() - start
    start = time.perf_counter()
    jobs = (delayed(_fit)(model, kernel, column) for column in Y[:, :n_outputs].T)
    found = Parallel(n_jobs=N_PROCESSES)(jobs)
    return found, shared + (time.perf_counter() - start) * plan.d / n_outputs


def _fit(model: NuSVR, kernel: Array, column: Array) -> NuSVR:
    """Fit a fresh copy of the model to one output."""
    return NuSVR(**model.get_params()).fit(kernel, column)


def best(plan: Plan, fit: Callable[[Array, Array], object], X: Array, Y: Array) -> float:
    """Return the least seconds of several fits."""
    found = []
    for _ in range(plan.repeats):
        start = time.perf_counter()
        fit(X, Y)
        found.append(time.perf_counter() - start)
    return min(found)


def compare(plan: Plan) -> tuple[Table, list[Ratio]]:
    """Time every way at one size and see how far its predictions are from libsvm's."""
    X, Y, queries, truth = world(plan.n, plan.n_features, plan.d)
    rival, slow = each_output(plan, X, Y)
    _, shared = one_kernel(plan, X, Y)
    strict, _ = one_kernel(plan, X, Y, 1e-6)
    kernel = rbf_kernel(queries, X, gamma=GAMMA)
    exact = np.column_stack([one.predict(kernel) for one in strict])
    mapper, ridge = ours(), ours("kernel-ridge")
    fast, closed = best(plan, mapper.fit, X, Y), best(plan, ridge.fit, X, Y)
    plain = KernelRidge(alpha=PENALTY, kernel="rbf", gamma=GAMMA)
    centred = Y - Y.mean(axis=0)
    others = best(plan, plain.fit, X, centred)
    start = time.perf_counter()
    theirs = rival.predict(queries)
    predicting = (time.perf_counter() - start) * plan.d / plan.timed
    quick = best(plan, lambda rows, _: mapper.predict(rows), queries, truth)
    spread = Y[:, : plan.exact].std(axis=0)

    def apart(points: Array) -> tuple[float, float]:
        off = np.abs(points[:, : plan.exact] - exact)
        return float(off.max()), float((off / spread).max())

    def error(points: Array) -> float:
        share = points.shape[1]
        return float((((points - truth[:, :share]) / Y[:, :share].std(axis=0)) ** 2).mean())

    own, regressed = mapper.predict(queries), ridge.predict(queries)
    centre = plain.predict(queries) + Y.mean(axis=0)
    rows = [
        ["MultiOutputRegressor(NuSVR), 2 processes", slow, slow / fast, predicting, *apart(theirs)],
        ["NuSVR on one precomputed kernel, 2 processes", shared, shared / fast, None, None, None],
        ["InstanceMapper, nu-svr", fast, 1.0, quick, *apart(own)],
        ["KernelRidge of scikit-learn", others, others / fast, None, None, None],
        ["InstanceMapper, kernel-ridge", closed, closed / fast, None, None, None],
    ]
    for row, points in zip(rows, (theirs, None, own, centre, regressed), strict=True):
        row.append(None if points is None else error(points))
    scaled = (
        ""
        if plan.timed == plan.d
        else (
            f" scikit-learn's seconds are those of {plan.timed} outputs times "
            f"{plan.d / plan.timed:g}: outputs are alike and fitted one by one."
        )
    )
    table = Table(
        f"{plan.n:,} rows, {plan.n_features} features, {plan.d} outputs",
        "what fits",
        [
            "way",
            "fit, s",
            "x ours",
            f"predict {N_QUERIES:,} rows, s",
            "largest difference",
            "in spreads",
            "mean squared error",
        ],
        rows,
        f"Differences of predictions to libsvm at tolerance 1e-6 on the first {plan.exact} "
        f"outputs, absolute and in spreads of the target. NuSVR is fitted once, by processes that "
        f"are awake, with a cache of 1,000 MB; ours is the least of {plan.repeats} fits.{scaled}",
    )
    at = f"at N={plan.n:,}"
    goals = {3000: (45.0, 8.0), 10_000: (45.0, 6.0)}.get(plan.n, (1.0, 1.0))
    ratios = [
        Ratio(f"fit against MultiOutputRegressor(NuSVR), 2 processes, {at}", slow / fast, goals[0]),
        Ratio(f"fit against precomputed NuSVR, 2 processes, {at}", shared / fast, goals[1]),
        Ratio(f"largest difference to libsvm at 1e-6, {at}", apart(own)[0], 1e-3, False, ""),
        Ratio(
            f"the same in spreads, by that of libsvm at its own tolerance, {at}",
            apart(own)[1] / apart(theirs)[1],
            1.0,
            at_least=False,
        ),
    ]
    if plan.n != 10_000:
        ratios.append(
            Ratio(
                f"predicting {N_QUERIES:,} rows, {at}",
                predicting / quick,
                600 if plan.n == 3000 else 1,
            )
        )
    return table, ratios


def scaling_check(plan: Plan, whole: Table) -> Table:
    """See whether seconds of a few outputs times their share are those of all, in `whole`."""
    X, Y, *_ = world(plan.n, plan.n_features, plan.d)
    few = Plan(plan.n, plan.n_features, plan.d, max(plan.d // 12, 4) // 4 * 4, 0, 1)
    rows = [
        ["one by one", each_output(few, X, Y)[1], whole.rows[0][1]],
        ["on one kernel", one_kernel(few, X, Y)[1], whole.rows[1][1]],
    ]
    return Table(
        f"scikit-learn at {plan.n:,} rows: {few.timed} outputs scaled up, and all {plan.d}",
        "how many outputs are timed",
        ["way", f"{few.timed} outputs, scaled, s", f"all {plan.d}, s"],
        [[*row] for row in rows],
    )


def landmark_losses(n: int, counts: tuple[int, ...], n_features: int, d: int) -> Table:
    """Vary the number of landmarks: seconds and error beside the exact mapping."""
    X, Y, queries, truth = world(n, n_features, d)
    spread = Y.std(axis=0)
    rows: list[list[str | float | int | None]] = []
    for kind in ("kernel-ridge", "nu-svr"):
        for count in (*[one for one in counts if one < n], None):
            start = time.perf_counter()
            mapper = ours(kind, n_landmarks=count, random_state=0).fit(X, Y)
            seconds = time.perf_counter() - start
            start = time.perf_counter()
            points = mapper.predict(queries)
            asking = time.perf_counter() - start
            error = float((((points - truth) / spread) ** 2).mean())
            name = "all" if count is None else f"{count:,}"
            rows.append([kind, name, seconds, asking, error, 1 - error])
    return Table(
        f"Landmarks at {n:,} rows, {d} outputs",
        "landmarks",
        [
            "kind",
            "landmarks",
            "fit, s",
            f"predict {N_QUERIES:,} rows, s",
            "mean squared error",
            "R2",
        ],
        rows,
        "Errors in variances of the target, on rows not fitted; noise alone leaves about 0.2.",
    )


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
    code = GROWING.format(
        folder=str(Path(__file__).parent), n=n, d=d, kind=kind, landmarks=landmarks, memory=memory
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def growth(size: str) -> tuple[Table, Curve]:
    """Vary the rows with the number of landmarks fixed: linear time, bounded memory."""
    d, landmarks, memory = (200, 500, 1024.0) if size == "full" else (8, 50, 64.0)
    rows: list[list[str | float | int | None]] = []
    series: dict[str, list[list[float]]] = {}
    for kind in ("kernel-ridge", "nu-svr"):
        for n in GROWTH[size]:
            seconds, extra, _ = grown(n, d, kind, landmarks, memory)
            rows.append([kind, n, seconds, extra])
            series.setdefault(kind, []).append([float(n), seconds])
    powers = ", ".join(f"{kind}: N^{exponent(points):.2f}" for kind, points in series.items())
    table = Table(
        f"Landmark mapping of more rows ({landmarks} landmarks, 64 features, {d} outputs)",
        "rows",
        ["kind", "rows", "fit, s", "memory beyond inputs, MB"],
        rows,
        f"`memory_mb` is {memory:g}; a fresh process each; seconds grow as {powers}.",
    )
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
