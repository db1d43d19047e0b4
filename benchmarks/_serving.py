"""A service to be measured: its model, its process, and the load that wrk puts on it.

In: a size. Out: a saved model that is made within seconds, the service in a process of its own on
this machine, and what clients see of it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from _synthetic import as_label_corpus, make_themes, synthetic_features, synthetic_matrix
from numpy.typing import NDArray

from polyseme.space.concept_space import ConceptSpace
from polyseme.tagger import ZeroShotTagger

_READY_SECONDS, _END_SECONDS = 120.0, 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
# The script cuts its requests out of one file, and tells what it counted in a line of JSON.
_SCRIPT = """\
local bodies, headers, requests, turn = {bodies}, {headers}, {{}}, 0
function init(arguments)
  local file = io.open("{file}", "rb")
  for number, length in ipairs(bodies) do
    requests[number] = wrk.format("{method}", nil, headers, length > 0 and file:read(length) or nil)
  end
  file:close()
end
function request()
  turn = turn % #requests + 1
  return requests[turn]
end
function done(summary, latency, requests)
  local failed = summary.errors
  io.write(string.format(
    '\\n{{"requests": %d, "micros": %d, "p50": %d, "p99": %d, "refused": %d, "broken": %d}}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    failed.status, failed.connect + failed.read + failed.write + failed.timeout))
end
"""


class Made(NamedTuple):
    """A tagger, and rows of features that it may be asked about."""

    tagger: ZeroShotTagger
    features: NDArray[Any]


def make_tagger(n_documents: int, n_labels: int, n_features: int) -> Made:
    """Make a tagger of the usual size that has hardly been trained: answers cost the same.

    Parameters
    ----------
    n_documents, n_labels, n_features : int
    """
    themes = make_themes(n_labels, 0, n_features=n_features)
    matrix = synthetic_matrix(n_documents, themes, 0)
    features = synthetic_features(matrix, themes, 0)
    tagger = ZeroShotTagger(ConceptSpace(n_steps=8), n_validations=0, random_state=0)
    return Made(tagger.fit(features, as_label_corpus(matrix)), features)


@dataclass
class Server:
    """The service in a process of its own."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def cpu_seconds(self) -> float:
        """Processor time that it has taken so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2]
        return sum(map(int, fields.split()[11:13])) / _TICKS

    @property
    def memory_mb(self) -> float:
        """Memory that it holds now."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    @property
    def n_handles(self) -> int:
        """Files and connections that it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def ask(self, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """Ask once; give the answer's JSON."""
        request = urllib.request.Request(self.url + path, body, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=_READY_SECONDS) as answer:
            return json.load(answer)

    def kill(self) -> None:
        """End it as a power failure would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(*words: object) -> Iterator[Server]:
    """Start `polyseme serve` with these words, on a port that is free; end it at the end."""
    with socket.create_server(("127.0.0.1", 0)) as line:
        port = line.getsockname()[1]
    command = [sys.executable, "-m", "polyseme", "serve", *map(str, words), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    server = Server(process, f"http://127.0.0.1:{port}")
    try:
        _wait(server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            raise


def _wait(server: Server) -> None:
    """Wait until the models answer."""
    end = time.monotonic() + _READY_SECONDS
    while True:
        try:
            server.ask("/health/ready")
            return
        except (urllib.error.URLError, ConnectionError) as error:
            if server.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the service did not start: {error}") from error
            time.sleep(0.1)


class Load(NamedTuple):
    """What clients saw, and what it cost the service."""

    a_second: float
    p50_ms: float
    p99_ms: float
    cpu_micros: float  # of the service, a request
    n_failed: int


def load(
    server: Server,
    path: str,
    bodies: Sequence[bytes],
    kind: str,
    clients: int,
    seconds: float,
    folder: Path,
) -> Load:
    """Ask as fast as the service answers, with so many clients, each with one request at a time.

    Parameters
    ----------
    server : Server
    path : str
    bodies : sequence of bytes
        Sent in turn; none asks by GET.
    kind : str
        The bodies' content type.
    clients : int
    seconds : float
    folder : Path
        Where the script may lie.
    """
    (folder / "bodies").write_bytes(b"".join(bodies))
    lengths = ", ".join(str(len(body)) for body in bodies or [b""])
    script = folder / "load.lua"
    script.write_text(
        _SCRIPT.format(
            bodies=f"{{{lengths}}}",
            headers=f'{{["Content-Type"] = "{kind}"}}',
            file=folder / "bodies",
            method="POST" if bodies else "GET",
        ),
        "utf-8",
    )
    # Times of wrk are whole seconds.
    options = ["-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "30s"]
    before = server.cpu_seconds
    done = subprocess.run(
        ["wrk", *options, "-s", str(script), server.url + path],
        check=True,
        capture_output=True,
        text=True,
    )
    cpu = server.cpu_seconds - before
    told = json.loads(done.stdout.strip().splitlines()[-1])
    n = max(told["requests"], 1)
    return Load(
        told["requests"] / (told["micros"] / 1e6),
        told["p50"] / 1000,
        told["p99"] / 1000,
        1e6 * cpu / n,
        told["refused"] + told["broken"],
    )
