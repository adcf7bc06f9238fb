"""Changes bytes of a weight inside of a bundle and states the new digests in the manifest, as docs/bundle_format.md has them.

So the bundle is intact and wrong: what finds it is not a digest.
"""
import hashlib
import json
import re

import xxhash

BLOCK = 1 << 20


def tensors(bundle):
    """The weights that the manifest lists: name, file, offset, bytes, dtype, shape, sources."""
    return json.loads((bundle / "manifest.json").read_text())["tensors"]


def read(bundle, tensor):
    with open(bundle / tensor["file"], "rb") as file:
        file.seek(tensor["offset"])
        return file.read(tensor["bytes"])


def write(bundle, tensor, content):
    """Replaces the bytes of a weight and makes every digest right again."""
    manifest = bundle / "manifest.json"
    text = manifest.read_text()
    parts = json.loads(text)
    path = bundle / tensor["file"]
    entry = next(f for f in parts["files"] if f["path"] == tensor["file"])
    with open(path, "r+b") as file:
        file.seek(tensor["offset"])
        file.write(content)
    data = path.read_bytes()
    places = sorted({(t["offset"], t["bytes"]) for t in parts["tensors"] if t["file"] == tensor["file"] and t["bytes"]})
    known = {(t["offset"], t["bytes"]): t["sha256"] for t in parts["tensors"] if t["file"] == tensor["file"]}
    here = (tensor["offset"], tensor["bytes"])
    known[here] = hashlib.sha256(content).hexdigest()
    text = text.replace(tensor["sha256"], known[here])
    text = text.replace(entry["digest"], segments_digest(data, places, known))
    if entry["xxh3"]:
        text = text.replace(entry["xxh3"], fast_digest(data, places))
    own = re.search(r'"manifest_sha256": "([0-9a-f]{64})"', text).group(1)
    digest = hashlib.sha256(text.replace(own, "0" * 64).encode()).hexdigest()
    manifest.write_text(text.replace(own, digest))


def segments_digest(data, places, known):
    """`sha256-segments`: each segment is replaced by its own digest."""
    whole = hashlib.sha256(b"ferry-segments-v1\n" + len(data).to_bytes(8, "little"))
    at = 0
    for place in places:
        whole.update(data[at:place[0]] + bytes.fromhex(known[place]))
        at = place[0] + place[1]
    whole.update(data[at:])
    return whole.hexdigest()


def fast_digest(data, places):
    """`xxh3` of a data file: of its runs, which the borders of segments cut."""
    borders = sorted({0, len(data), *(edge for at, size in places for edge in (at, at + size))})
    runs = b""
    for begin, end in zip(borders, borders[1:]):
        blocks = b"".join(xxhash.xxh3_128_digest(data[i:min(i + BLOCK, end)]) for i in range(begin, end, BLOCK))
        runs += xxhash.xxh3_128_digest(blocks)
    return xxhash.xxh3_128_hexdigest(runs)
