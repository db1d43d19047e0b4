"""Attack for some minutes, or so many times; print what came of it and every fault.

PYTHONPATH=tests python -m torture [NAME ...] --minutes 10 --seed 3
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

from torture import ATTACKS, Tried, UnavailableError, attack


def run(name: str, seed: int, tries: int | None, minutes: float) -> list[Tried]:
    """Make tries until there are enough or the time is over; print each fault at once."""
    start = time.monotonic()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="torture-") as place:
        rng = random.Random(f"{name} {seed}")
        attempts = attack(name)(Path(place), rng)
        try:
            for attempt in islice(attempts, tries):
                outcomes.append(attempt)
                if not attempt.held:
                    print(
                        f"FAULT {name} {len(outcomes)}: {attempt.what}: {attempt.outcome}: {attempt.detail}",
                        flush=True,
                    )
                if tries is None and time.monotonic() - start > 60 * minutes:
                    break
        except UnavailableError as error:
            print(f"{name} cannot be tried here: {error}.")
        finally:
            attempts.close()
    counts = Counter(tried.outcome for tried in outcomes).most_common()
    summary = ", ".join(f"{n:,} {outcome}" for outcome, n in counts)
    n_faults = sum(not tried.held for tried in outcomes)
    print(
        f"| {ATTACKS[name][0]} | {len(outcomes):,} in {time.monotonic() - start:,.0f} s | {summary} "
        f"| {n_faults} | `{name}`, seed {seed} |",
        flush=True,
    )
    return outcomes


def main() -> int:
    """Run what is asked for; 1 where anything did not hold."""
    parser = argparse.ArgumentParser(description="Faults on purpose.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(ATTACKS)}")
    parser.add_argument("--minutes", type=float, default=2.0, help="of each attack (default: 2)")
    parser.add_argument("--tries", type=int, help="of each attack, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    unknown = set(options.names) - set(ATTACKS)
    if unknown:
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    print("| what is tried | tries | outcome | faults | again by |\n|---|---|---|---|---|")
    outcomes = [
        outcome
        for name in options.names or ATTACKS
        for outcome in run(name, options.seed, options.tries, options.minutes)
    ]
    return 0 if all(outcome.held for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
