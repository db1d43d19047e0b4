"""Read one PDF in a process of its own, so that a hostile one can be killed.

In: a PDF on standard input; as arguments "text" and how many letters are wanted, or "keywords".
Out: the text of its pages, or its keywords as they are written, on standard output in UTF-8; or
exit code 1 with the reason on the error stream. Only the standard library and `pypdf` are imported.
"""

from __future__ import annotations

import io
import logging
import sys

import pypdf

MOST_MEMORY = 2 << 30  # bytes
MOST_SECONDS = 60  # of the processor, in case the parent process has gone


def main(wanted: str, most_letters: int = 0) -> None:
    """Write what is wanted of the PDF of standard input."""
    _confine()
    logging.disable()  # remarks on strangers' files
    content = sys.stdin.buffer.read()
    reader = pypdf.PdfReader(io.BytesIO(content))
    text = _text(reader, most_letters) if wanted == "text" else _keywords(reader)
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def _text(reader: pypdf.PdfReader, most_letters: int) -> str:
    """Return the text of the first pages, up to so many letters."""
    text = ""
    for page in reader.pages:
        if len(text) >= most_letters:
            break
        text += page.extract_text() + "\n"
    return text[:most_letters]


def _keywords(reader: pypdf.PdfReader) -> str:
    """Return the keywords in the information of a PDF, as they are written."""
    information = reader.metadata
    return "" if information is None else str(information.get("/Keywords") or "")


def _confine() -> None:
    """Bound memory and time, where the system can."""
    try:
        import resource
    except ImportError:
        return
    for name, limit in {"CORE": 0, "AS": MOST_MEMORY, "CPU": MOST_SECONDS}.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        except (AttributeError, OSError, ValueError):  # not every system knows every limit
            continue


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:]))
    except Exception as error:  # whatever the file did
        sys.exit(f"{error or type(error).__name__}")
