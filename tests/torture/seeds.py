"""The small files that fuzzing begins with: one of each form that is read, made by nothing but us.

`PYTHONPATH=src:tests python -m torture.seeds` writes them to `corpus/` anew, beside the files that
once led to a fault, which it leaves alone.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

CORPUS = Path(__file__).with_name("corpus")
_ROWS = [
    {"id": "a", "labels": ["sea", "ship"], "split": "train", "x": 1, "y": -0.5},
    {"id": "b", "labels": ["sea", "größe"], "split": "test", "x": 2.5, "y": 1e-3},
    {"id": "c", "labels": [], "split": "train", "x": 0, "y": 7},
]
_NUMBERS = np.array([[1, 0, 0.5], [0, 2, 0], [3, 0, -1], [0, 0, 4]], dtype=np.float32)
_DENSE = """% a comment
@relation 'tiny: -C 2'
@attribute x numeric
@attribute 'y z' real
@attribute sea {0,1}
@attribute "a ship" {0,1}
@data
1.5,?,1,0
-2,'3',0,1
0,1e-3,1,1
"""
_SPARSE = _DENSE.split("1.5,?")[0] + "{0 1.5,2 1}\n{1 -3,3 1}\n{}\n"
_LABELS = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="sea"><label name="a ship"></label></label>
</labels>
"""
_SIDECAR = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF
 xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about=""
 xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:lr="http://ns.adobe.com/lightroom/1.0/"
 xmlns:polyseme="urn:polyseme:xmp:1.0/" lr:hierarchicalSubject="place|sea">
<dc:subject><rdf:Bag><rdf:li>sea</rdf:li><rdf:li>größe</rdf:li></rdf:Bag></dc:subject>
<polyseme:suggested><rdf:Bag><rdf:li>ship</rdf:li><rdf:li>sea</rdf:li></rdf:Bag>
</polyseme:suggested></rdf:Description></rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>"""
_WORDS = "sea 0.1 -2 3e-1\nship 1 0 0\ngröße 0 0 1\n"
_VOCABULARY = """blocked = ["junk", "größe"]
[aliases]
ships = "ship"
[implies]
ship = ["sea"]
"""
_VERDICTS = """item,label,answer,score,rank,model,who,time
a,sea,yes,0.5,1,0123,me,2020-01-01T00:00:00+00:00
b,ship,no,,,,,
c,sea,,0.25,2,,,
"""


def _tables() -> dict[str, bytes]:
    """Tables of every form, and folders of them."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _ROWS).encode()
    vectors = ({"id": n, "tags": "sea; ship", "embedding": [n, 0.5]} for n in range(3))
    table = b'id,tags,x,y\na,"[""sea"", ""ship""]",1,2\nb,[],-3,4e5\nc,"[\'sea\']",,6\n'
    tabs = b"\tsplit\tlabels\nrow\ttrain\tsea|ship\nother\ttest\t'=sea\n"
    return {
        "documents.jsonl": lines,
        "lists.jsonl": b'["sea", "ship"]\n["sea"]\n',
        "vectors.jsonl": "".join(json.dumps(row) + "\n" for row in vectors).encode(),
        "packed.jsonl.gz": gzip.compress(lines, mtime=0),
        "table.csv": table,
        "packed.csv.gz": gzip.compress(table, mtime=0),
        "table.tsv": tabs,
        "dense/table.arff": _DENSE.encode(),
        "dense/table.xml": _LABELS.encode(),
        "sparse/table-train.arff.gz": gzip.compress(_SPARSE.encode(), mtime=0),
        "sparse/table.xml": _LABELS.encode(),
        **_array_tables(),
        **_arrow_tables(),
    }


def _array_tables() -> dict[str, bytes]:
    """Tables of numpy and safetensors."""
    from safetensors.numpy import save

    indicator = (_NUMBERS > 0).astype(np.int8)
    names = np.array(["sea", "ship", "größe"])
    sparse = io.BytesIO()
    sp.save_npz(sparse, sp.csr_matrix(_NUMBERS))
    sparse_matrix = sp.csr_matrix(indicator)
    labels = {
        "data": sparse_matrix.data,
        "indices": sparse_matrix.indices,
        "indptr": sparse_matrix.indptr,
    }
    return {
        "features.npy": _saved(_NUMBERS),
        "columns.npy": _saved(np.asfortranarray(_NUMBERS, dtype=">f8")),
        "features.npz": _archive(features=_NUMBERS, ids=np.arange(4), columns=names),
        "sparse.npz": sparse.getvalue(),
        "indicator.npz": _archive(indicator=indicator, labels=names, features=_NUMBERS),
        "labels.npz": _archive(**labels, shape=np.array(sparse_matrix.shape), labels=names),
        "features.safetensors": save({"features": _NUMBERS}),
        "shards/part-00000.npy": _saved(_NUMBERS),
        "shards/part-00001.npy": _saved(_NUMBERS[:1].astype(np.float16)),
    }


def _arrow_tables() -> dict[str, bytes]:
    """Tables of Arrow and Parquet, and what `save_to_disk` of Hugging Face datasets writes."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(_ROWS)
    feature = {"feature": {"names": ["sea", "ship"], "_type": "ClassLabel"}, "_type": "Sequence"}
    metadata = json.dumps({"info": {"features": {"labels": feature}}})
    numbered = pa.table(
        {"labels": [[0, 1], [1], []], "embedding": [[0.5, 1.0], [1.0, 2.0], [0.0, 0.0]]}
    ).replace_schema_metadata({"huggingface": metadata})
    parquet, packed, feather, stream = (io.BytesIO() for _ in range(4))
    pq.write_table(table, parquet, compression="none")
    pq.write_table(numbered, packed, compression="zstd")
    pyarrow.feather.write_feather(table, feather, compression="lz4")
    with pa.ipc.new_stream(stream, numbered.schema) as writer:
        writer.write_table(numbered)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "train"}
    return {
        "table.parquet": parquet.getvalue(),
        "packed.parquet": packed.getvalue(),
        "table.feather": feather.getvalue(),
        "hugging/dataset_dict.json": json.dumps({"splits": ["train"]}).encode(),
        "hugging/train/state.json": json.dumps(state).encode(),
        "hugging/train/data-00000-of-00001.arrow": stream.getvalue(),
    }


def _saved(array: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def _archive(**arrays: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.savez_compressed(written, **arrays)
    return written.getvalue()


def _iptc(*words: str) -> bytes:
    """A JPEG's block of IPTC keywords, as Photoshop keeps it."""
    fields = b"\x1c\x01\x5a\x00\x03\x1b%G"
    for word in words:
        fields += b"\x1c\x02\x19" + struct.pack(">H", len(word.encode())) + word.encode()
    padded = fields + b"\0" * (len(fields) % 2)
    block = b"8BIM" + struct.pack(">HHI", 0x0404, 0, len(fields)) + padded
    body = b"Photoshop 3.0\0" + block
    return b"\xff\xed" + struct.pack(">H", len(body) + 2) + body


def _pictures() -> dict[str, bytes]:
    """Pictures of every form, with keywords where the form has a place for them."""
    import pillow_heif
    from PIL import Image

    from media_files import DRAWING, png, png16, quadrants, tiff

    pillow_heif.register_heif_opener()
    photo = Image.fromarray(quadrants(12, 8))
    packet = _SIDECAR.encode()
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x9C9E] = "sea;ship".encode("utf-16-le") + b"\0\0"

    def saved(form: str, picture: Any = photo, **options: Any) -> bytes:
        written = io.BytesIO()
        picture.save(written, form, **options)
        return written.getvalue()

    jpeg = saved("JPEG", quality=50, exif=exif.tobytes(), xmp=packet)
    late = (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + packet)
    profile = b"\niptc\n      14\n" + b"1c025a00031b25471c0219000373656100".upper() + b"\n"
    early = (b"zTXt", b"Raw profile type iptc\0\0" + zlib.compress(profile))
    gray = bytes(b for row in range(4) for b in (0, *range(row, row + 4)))
    return {
        "photo.jpg": jpeg[:2] + _iptc("sea", "größe") + jpeg[2:],
        "progressive.jpg": saved("JPEG", quality=30, progressive=True),
        "cmyk.jpg": saved("JPEG", photo.convert("CMYK"), quality=30),
        "gray.png": png(gray, (4, 4), early, depth=8, colour=0),
        "late.png": png(gray, (4, 4), late, depth=8, colour=0),
        "deep.png": png16(quadrants(4, 4).astype(np.uint16) * 257),
        "palette.png": saved("PNG", photo.quantize(4), transparency=0),
        "moving.gif": saved("GIF", save_all=True, append_images=[photo.rotate(180)], duration=9),
        "lossy.webp": saved("WEBP", exif=exif.tobytes(), xmp=packet),
        "clear.webp": saved("WEBP", photo.convert("RGBA"), lossless=True),
        "plain.tif": saved("TIFF", exif=exif.tobytes()),
        "lzw.tif": saved("TIFF", compression="tiff_lzw"),
        "jpeg.tif": saved("TIFF", compression="jpeg"),
        "fax.tif": saved("TIFF", photo.convert("1"), compression="group4"),
        "deep.tif": tiff(quadrants(6, 4).astype(np.uint16) * 257, photometric=2, big_endian=True),
        "float.tif": tiff(np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6), packed=True),
        "plain.bmp": saved("BMP", photo.quantize(4)),
        "plain.ppm": saved("PPM"),
        "photo.heic": saved("HEIF", quality=10, xmp=packet),
        "photo.avif": saved("AVIF", quality=10),
        "drawing.svg": DRAWING.encode(),
        "packed.svgz": gzip.compress(DRAWING.encode(), mtime=0),
    }


def _sounds() -> dict[str, bytes]:
    """Sounds of every form, with tags where it has them, and a file of a song's timbre."""
    import av
    import h5py
    import soundfile

    from sound_files import encoded, id3, tone, wav

    def soft(rate: int = 8000, seconds: float = 0.1) -> Any:
        return tone(seconds, rate)

    def aac(form: str) -> bytes:
        written = io.BytesIO()
        with av.open(written, "w", format=form) as container:
            stream: Any = container.add_stream("aac", rate=16000, layout="mono")
            samples = soft(16000, 0.2)[:, 0].astype(np.float32)
            for start in range(0, len(samples) - 1024, 1024):
                chunk = samples[None, start : start + 1024].copy()
                frame = av.AudioFrame.from_ndarray(chunk, "fltp", "mono")
                frame.rate, frame.pts = 16000, start
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return written.getvalue()

    flac = io.BytesIO()
    with soundfile.SoundFile(flac, "w", 8000, 1, format="FLAC") as file:
        file.genre = "sea; ship"
        file.write(soft())
    genre = b"TCON" + struct.pack(">I", 9) + b"\0\0" + b"\0sea;ship"
    song = io.BytesIO()
    timbre = np.linspace(-1, 1, 36).reshape(3, 12)
    with h5py.File(song, "w") as store:
        options: Any = {"compression": "gzip", "shuffle": True}
        store.create_group("analysis").create_dataset("segments_timbre", data=timbre, **options)
    return {
        "plain.wav": wav(soft(), 8000),
        "float.wav": wav(soft(), 8000, "FLOAT"),
        "adpcm.wav": wav(soft(), 8000, "IMA_ADPCM"),
        "stereo.aiff": encoded(tone(0.05, 8000, 2), 8000, format="AIFF"),
        "plain.flac": flac.getvalue(),
        "vorbis.ogg": encoded(soft(), 8000, format="OGG"),
        "opus.opus": encoded(soft(), 8000, format="OGG", subtype="OPUS"),
        "tagged.mp3": id3(genre) + encoded(soft(), 8000, format="MP3"),
        "plain.m4a": aac("ipod"),
        "plain.aac": aac("adts"),
        "song.h5": song.getvalue(),
    }


def _words() -> dict[str, bytes]:
    """Word vectors."""
    arrays = {"words": np.array(["sea", "größe"]), "vectors": _NUMBERS[:2]}
    return {
        "glove.txt": _WORDS.encode(),
        "glove.txt.gz": gzip.compress(_WORDS.encode(), mtime=0),
        "words.npz": _archive(**arrays),
    }


def _said() -> dict[str, bytes]:
    """Verdicts as tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"item": "a", "label": "sea", "answer": True, "score": 0.5, "rank": 1}]
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), parquet)
    return {
        "verdicts.csv": _VERDICTS.encode(),
        "verdicts.jsonl": (json.dumps(rows[0]) + "\n").encode(),
        "verdicts.parquet": parquet.getvalue(),
    }


def seeds() -> dict[str, bytes]:
    """Return all files by their paths within the corpus."""
    wide = _SIDECAR.replace("\ufeff", "").encode("utf-16")
    tokens = {"tokens": [{"name": "me", "scope": "read", "sha256": "0" * 64}]}
    kinds = {
        "table": _tables(),
        "picture": _pictures(),
        "sound": _sounds(),
        "sidecar": {"plain.xmp": _SIDECAR.encode(), "wide.xmp": wide},
        "words": _words(),
        "verdicts": _said(),
        "vocabulary": {"vocabulary.toml": _VOCABULARY.encode()},
        "tokens": {"tokens.json": json.dumps(tokens).encode()},
    }
    return {f"{kind}/{name}": data for kind, files in kinds.items() for name, data in files.items()}


if __name__ == "__main__":
    for name, data in seeds().items():
        (CORPUS / name).parent.mkdir(parents=True, exist_ok=True)
        (CORPUS / name).write_bytes(data)
