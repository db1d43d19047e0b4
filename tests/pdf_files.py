"""Small PDF files, written by hand: pages with a line of text each, and keywords."""

from __future__ import annotations

import zlib


def make_pdf(*pages: str, keywords: str = "") -> bytes:
    """Return a PDF with a page for each text, of Western letters without brackets."""
    contents = [f"BT /F1 12 Tf 72 700 Td ({page}) Tj ET".encode("cp1252") for page in pages]
    return pdf_of_contents(*contents, keywords=keywords)


def pdf_of_contents(*contents: bytes, keywords: str = "", repeats: int = 1) -> bytes:
    """Return a PDF whose pages draw what these streams say, each page so often."""
    n_pages = len(contents)
    page_numbers = range(5, 5 + n_pages)
    kids = " ".join(f"{number} 0 R" for number in [*page_numbers] * repeats)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {n_pages * repeats} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        f"<< /Keywords ({keywords}) /Title (No words of the text) >>".encode("cp1252"),
    ]
    for number in page_numbers:
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font "
            b"<< /F1 3 0 R >> >> /Contents %d 0 R >>" % (number + n_pages)
        )
    for content in contents:
        packed = zlib.compress(content, 9)
        head = b"<< /Length %d /Filter /FlateDecode >>" % len(packed)
        objects.append(head + b"\nstream\n" + packed + b"\nendstream")
    content = b"%PDF-1.7\n"
    starts: list[int] = []
    for number, text in enumerate(objects, start=1):
        starts.append(len(content))
        content += b"%d 0 obj\n" % number + text + b"\nendobj\n"
    table_start = len(content)
    size = len(objects) + 1
    content += b"xref\n0 %d\n0000000000 65535 f \n" % size
    content += b"".join(b"%010d 00000 n \n" % start for start in starts)
    trailer = b"<< /Size %d /Root 1 0 R /Info 4 0 R >>" % size
    return content + b"trailer\n%s\nstartxref\n%d\n%%%%EOF" % (trailer, table_start)
