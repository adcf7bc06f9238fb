"""Odd files of pictures, drawn byte by byte: animations, notes of how a picture is turned, rare modes and depths.

pictures.py compares what ferry makes of them with what Pillow makes. Run alone it writes the fixtures of a folder:

    python3 tests/conformance/odd_pictures.py testdata/media
"""
import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import zlib

import common
import make_vision_golden as golden  # it imports torch and transformers
import PIL.Image
import PIL.ImageOps
import safetensors.torch
import torch
from common import Wrong
from transformers.image_transforms import convert_to_rgb

ORIENTATION, SHORT = 0x0112, 3
VALUES = {1: "B", 3: "H", 4: "I", 6: "b", 7: "B", 8: "h", 9: "i", 11: "f", 12: "d", 13: "I", 16: "Q"}  # types of TIFF
# The first pixel of a pass of an interlaced PNG, and the steps to the next.
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def some(r, share):
    return r.random() < share


def size_of(r):
    return r.choice([1, 2, 3, 7, 8, 9, 17, 33]), r.choice([1, 2, 3, 4, 5, 8, 9, 16, 31])


def picture(r, size, mode):
    small = (max(1, size[0] // 3 + 1), max(1, size[1] // 3 + 1))
    made = PIL.Image.frombytes("RGB", small, r.randbytes(3 * small[0] * small[1])).resize(size, PIL.Image.Resampling.BICUBIC)
    if mode == "RGBA":
        made.putalpha(PIL.Image.frombytes("L", size, bytes(r.choices([0, 0, 128, 255], k=size[0] * size[1]))))
    return made.convert(mode)


def exif(r):
    """An EXIF block: other entries around an orientation of any type of TIFF, in either byte order."""
    order = r.choice("<>")
    kind, value, count = r.choice([SHORT] * 4 + [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16]), r.randint(0, 9), r.choice([1, 1, 1, 2, 3])
    if kind in (5, 10):
        data = struct.pack(order + "II", 2 * value, 2) * count
    elif kind == 2:
        data = bytes([48 + value]) * count
    else:
        data = struct.pack(order + VALUES.get(kind, "I"), value) * count
    entries = [(0x010F, 2, 4, b"abc\0"), (0x0128, SHORT, 1, struct.pack(order + "H", 2)), (ORIENTATION, kind, count, data)]
    entries = [entry for entry in entries if some(r, 0.8)] + [(ORIENTATION, SHORT, 1, struct.pack(order + "H", 3))] * some(r, 0.1)
    r.shuffle(entries)
    rows = behind = b""
    for tag, kind, count, data in entries:
        offset = struct.pack(order + "I", 8 + 2 + 12 * len(entries) + 4 + len(behind))
        rows += struct.pack(order + "HHI", tag, kind, count) + (data.ljust(4, b"\0") if len(data) <= 4 else offset)
        behind += data if len(data) > 4 else b""
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + struct.pack(order + "H", len(entries))
    return head + rows + bytes(4) + behind


def xmp(r):
    value = r.choice("0123456789x")
    note = r.choice([f'tiff:Orientation="{value}"', f"><tiff:Orientation>{value}</tiff:Orientation><a ", f"tiff:Orientation='{value}'", ""])
    return f'<x:xmpmeta xmlns:tiff="t"><rdf:Description {note}/></x:xmpmeta>'.encode()


def chunk(tag, data):
    return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))


def png_rows(r, size, bits, interlaced):
    """The packed rows of random pixels, of many colours or few, under random filters."""
    many = some(r, 0.6)

    def row(length):
        return bytes([r.randrange(5)]) + r.randbytes(length) if many else b"\0" + bytes(r.choices([0, 0, 1, 255], k=length))

    def rows(width, height):
        return b"".join(row((width * bits + 7) // 8) for _ in range(height))
    if not interlaced:
        return zlib.compress(rows(*size))
    sizes = [(len(range(x, size[0], across)), len(range(y, size[1], down))) for x, y, across, down in PASSES]
    return zlib.compress(b"".join(rows(*part) for part in sizes if all(part)))


def png_notes(r):
    block = b"Exif\0\0" + exif(r)
    profile = b"\nexif\n%8d\n" % len(block) + block.hex().encode() + b"\n"
    made = [chunk(b"eXIf", exif(r)), chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(r)),
            chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(xmp(r))), chunk(b"tEXt", b"Comment\0none"),
            chunk(b"tEXt", b"Raw profile type exif\0" + profile), chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(profile))]
    return [note for note in made if some(r, 0.15)]


def transparency(r, kind, depth):
    if kind == 3:
        alphas = [255] * r.randint(1, 1 << depth)
        alphas[r.randrange(len(alphas))] = r.choice([0, 0, 0, 128])
        return bytes(alphas) if some(r, 0.8) else bytes(r.choices([0, 128, 255], k=len(alphas)))
    number = r.choice([0, 0, 1, 255, 256, 300, r.randrange(1 << depth), 257 * r.randrange(256)])
    return struct.pack(">H", number) * (1 if kind == 0 else 3)


def png(r):
    """Any colour type and depth, transparent colours, notes at both ends, animations with and without a first picture of their own."""
    size, (kind, depth) = size_of(r), r.choice([(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8),
                                               (4, 8), (4, 16), (6, 8), (6, 16)])
    bits, interlaced = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind], some(r, 0.3)
    frames = r.choice([0, 1, 2, 3]) if some(r, 0.4) else None
    made = [chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, kind, 0, 0, interlaced))]
    made += [chunk(b"acTL", struct.pack(">II", frames, 0))] if frames is not None else []
    made += [chunk(b"gAMA", struct.pack(">I", 100000))] if some(r, 0.2) else []
    made += [chunk(b"PLTE", r.randbytes(3 << depth))] if kind == 3 else []
    if kind in (0, 2, 3) and some(r, 0.4):
        made.append(chunk(b"tRNS", transparency(r, kind, depth)))
    late, number = png_notes(r), 0
    made += png_notes(r)
    if frames is not None and some(r, 0.6):
        made.append(chunk(b"fcTL", struct.pack(">5I2H2B", 0, *size, 0, 0, 1, 10, r.randrange(3), r.randrange(2))))
        number = 1
    data = png_rows(r, size, bits, interlaced)
    cut = r.randrange(len(data))
    made += [chunk(b"IDAT", data[:cut]), chunk(b"IDAT", data[cut:])]
    if some(r, 0.5):
        made, late = made + late, []
    for _ in range((frames or 0) - number):
        part = r.randint(1, size[0]), r.randint(1, size[1])
        place = r.randint(0, size[0] - part[0]), r.randint(0, size[1] - part[1])
        made.append(chunk(b"fcTL", struct.pack(">5I2H2B", number, *part, *place, 1, 10, r.randrange(3), r.randrange(2))))
        made.append(chunk(b"fdAT", struct.pack(">I", number + 1) + png_rows(r, part, bits, interlaced)))
        number += 2
    return b"\x89PNG\r\n\x1a\n" + b"".join(made + late + [chunk(b"IEND", b"")])


def jpg(r):
    """Gray, RGB, YCbCr, CMYK and YCCK, whose Adobe marker is there, is not there, or states another transform; several notes."""
    mode = r.choice(["L", "RGB", "RGB", "CMYK", "CMYK"])
    out = io.BytesIO()
    options = dict(subsampling=r.choice([0, 1, 2]), keep_rgb=some(r, 0.2)) if mode == "RGB" else {}
    picture(r, size_of(r), mode).save(out, "JPEG", quality=r.choice([30, 75, 95]), progressive=some(r, 0.4), **options)
    rest = out.getvalue()[2:]
    for mark, length in ((b"\xff\xee\0\x0eAdobe", 16), (b"\xff\xe0\0\x10JFIF", 18)):
        at = rest.find(mark)
        rest = rest[:at] + rest[at + length:] if at >= 0 and some(r, 0.5) else rest
    if some(r, 0.3):
        rest = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([r.randrange(3)]) + rest
    notes = [b"Exif\0\0" + exif(r), b"Exif\0\0" + exif(r), b"http://ns.adobe.com/xap/1.0/\0" + xmp(r)]
    kept = [note for note, share in zip(notes, (0.5, 0.1, 0.4)) if some(r, share)]
    return b"\xff\xd8" + b"".join(b"\xff\xe1" + struct.pack(">H", len(note) + 2) + note for note in kept) + rest


def lzw(r, indices, bits):
    """The blocks of a GIF's pixels: codes of growing width, with a new table where it is full, or with the full one."""
    packed, filled, clear = 0, 0, 1 << bits

    def put(code, width):
        nonlocal packed, filled
        packed |= code << filled
        filled += width

    def fresh():
        return {bytes([index]): index for index in range(clear)}, clear + 2, bits + 1
    table, free, width = fresh()
    put(clear, width)
    string = b""
    for index in indices:
        longer = string + bytes([index])
        if longer in table:
            string = longer
            continue
        put(table[string], width)
        if free < 4096:
            table[longer] = free
            width += free == 1 << width and width < 12
            free += 1
        elif some(r, 0.5):
            put(clear, width)
            table, free, width = fresh()
        string = bytes([index])
    put(table[string], width)
    put(clear + 1, width + (free == 1 << width and width < 12))
    data, most = packed.to_bytes((filled + 7) // 8, "little"), r.choice([255, 255, 7, 1])
    return b"".join(bytes([len(data[at:at + most])]) + data[at:at + most] for at in range(0, len(data), most)) + b"\0"


def gif_colours(r):
    bits = r.randrange(8)
    return bits, bytes(i // 3 for i in range(6 << bits)) if some(r, 0.25) else r.randbytes(6 << bits)


def gif(r):
    """Frames within and beyond the canvas, tables of either kind, of gray, too short or absent, extensions, transparent indices."""
    canvas, shared = size_of(r), gif_colours(r) if some(r, 0.8) else None
    made = r.choice([b"GIF87a", b"GIF89a"]) + struct.pack("<HH3B", *canvas, 128 | shared[0] if shared else 0, r.randrange(256), 0)
    made += shared[1] if shared else b""
    for _ in range(r.choice([1, 1, 2])):
        more = [b"!\xfe\5hello\0", b"!\xfe\0", b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0", b"!\x01\2ab\3cde\0", b"\0"]
        made += b"".join(note for note in more if some(r, 0.15))
        for _ in range(r.choice([0, 1, 1, 2])):
            made += b"!\xf9\4" + bytes([r.randrange(32), 1, 0, r.choice([0, 1, r.randrange(256)])]) + b"\0"
        size = canvas if some(r, 0.5) else size_of(r)
        own = gif_colours(r) if some(r, 0.5) else None
        flags = (128 | own[0] if own else 0) | 64 * some(r, 0.4)
        made += b"," + struct.pack("<4HB", r.choice([0, 0, 1, 3]), r.choice([0, 0, 1, 3]), *size, flags) + (own[1] if own else b"")
        bits = max(2, (own or shared or (7,))[0] + 1) if some(r, 0.8) else r.randint(1, 8)
        least = r.randrange(1 << bits)
        indices = bytes(r.choices([least, least, *range(1 << bits)], k=size[0] * size[1]))
        made += bytes([bits]) + lzw(r, indices, bits)
    return made + b";"


def webp_chunk(tag, data):
    return tag + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def webp_frame(r, canvas):
    """A frame anywhere on the canvas, at an even place, with or without alpha."""
    size = r.randint(1, canvas[0]), r.randint(1, canvas[1])
    place = [r.randint(0, canvas[i] - size[i]) // 2 for i in range(2)]
    out, bitstream, at = io.BytesIO(), b"", 12
    picture(r, size, r.choice(["RGB", "RGBA"])).save(out, "WEBP", lossless=some(r, 0.5), exact=some(r, 0.5))
    data = out.getvalue()
    while at < len(data):
        end = at + 8 + struct.unpack("<I", data[at + 4:at + 8])[0] + data[at + 4] % 2
        bitstream += data[at:end] if data[at:at + 4] in (b"ALPH", b"VP8 ", b"VP8L") else b""
        at = end
    header = b"".join(struct.pack("<I", n)[:3] for n in (*place, size[0] - 1, size[1] - 1, 10)) + bytes([r.randrange(4)])
    return webp_chunk(b"ANMF", header + bitstream)


def webp(r):
    size, notes = size_of(r), [webp_chunk(tag, note) for tag, note in ((b"EXIF", exif(r)), (b"XMP ", xmp(r))) if some(r, 0.4)]
    if some(r, 0.4):
        out = io.BytesIO()
        options = dict(save_all=True, append_images=[picture(r, size, "RGBA"), picture(r, size, "RGB")]) if some(r, 0.5) else {}
        picture(r, size, r.choice(["RGB", "RGBA"])).save(out, "WEBP", lossless=some(r, 0.5), exif=exif(r), xmp=xmp(r), **options)
        return out.getvalue()
    flags = 2 | 16 | 8 * any(note[:4] == b"EXIF" for note in notes) | 4 * any(note[:4] == b"XMP " for note in notes)
    body = b"WEBP" + webp_chunk(b"VP8X", bytes([flags, 0, 0, 0]) + b"".join(struct.pack("<I", side - 1)[:3] for side in size))
    body += webp_chunk(b"ANIM", r.randbytes(4) + b"\0\0") + b"".join(webp_frame(r, size) for _ in range(r.choice([1, 2, 3]))) + b"".join(notes)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def runs(r, size, halves, at):
    """Runs of a BMP behind byte `at` of its file: colours, pixels as they are, ends of lines, skipped pixels, and the end of the picture or none."""
    made, filled = b"", 0
    while filled < size[0] * size[1] or some(r, 0.1):
        kind = r.random()
        if kind < 0.5:
            count = r.randint(1, r.choice([3, size[0], 255]))
            made += bytes([count, r.randrange(256)])
            filled += min(count, size[0])
        elif kind < 0.7:
            count = r.randint(3, max(3, min(size[0], 20)))
            made += bytes([0, count]) + r.randbytes((count + 1) // 2 if halves else count)
            made += b"\0" * ((at + len(made)) % 2)
            filled += count
        elif kind < 0.9:
            made += b"\0\0"
            filled += 1
        else:
            made += bytes([0, 2, r.randrange(size[0] + 1), r.randrange(2)])
            filled += 1
    return made + r.choice([b"", b"\0\1", b"\0\1"])


MASKS = {16: [(0xF800, 0x7E0, 0x1F, 0), (0x7C00, 0x3E0, 0x1F, 0)], 24: [(0xFF0000, 0xFF00, 0xFF, 0)], 32: [
    (0xFF0000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0), (0xFF000000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
    (0xFF, 0xFF00, 0xFF0000, 0xFF000000), (0xFF0000, 0xFF00, 0xFF, 0xFF000000), (0xFF000000, 0xFF00, 0xFF, 0xFF0000), (0, 0, 0, 0)]}


def bmp(r):
    """All depths, headers, tables of colours, of gray and too short, masks, runs, rows from the top and from the bottom."""
    size, bits, header = size_of(r), r.choice([1, 4, 8, 8, 16, 24, 32]), r.choice([12, 40, 40, 52, 56, 64, 108, 124])
    squeezed = bits in (4, 8) and header != 12 and some(r, 0.4)
    masks = r.choice(MASKS[bits]) if bits > 8 and header != 12 and some(r, 0.6) else None
    compression = (r.choice([1, 2]) if some(r, 0.1) else 1 + (bits == 4)) if squeezed else 3 if masks else 0
    entry = 3 if header == 12 else 4
    colours = r.choice([0, 0, 2, 1 << bits, r.randint(1, 1 << bits)]) if bits <= 8 and header != 12 else 0
    count = (colours or 1 << bits) if bits <= 8 else 0
    table = b"".join(bytes([255 * i if count == 2 else i] * 3 + [0] * (entry - 3)) for i in range(count)) if some(r, 0.3) else r.randbytes(entry * count)
    top = header != 12 and some(r, 0.3)
    if header == 12:
        head = struct.pack("<IHHHH", header, *size, 1, bits)
    else:
        head = struct.pack("<IiiHHIIiiII", header, size[0], -size[1] if top else size[1], 1, bits, compression, 0, 2835, 2835, colours, 0)
        words = struct.pack("<4I", *masks) if masks else r.randbytes(16)
        head = (head + words).ljust(header, b"\0")[:header] if header > 40 else head + (words[:12] if masks else b"")
    gap = r.randbytes(r.choice([0, 0, 0, 6]))
    offset = 14 + len(head) + len(table) + len(gap)
    stated = 0 if not gap and some(r, 0.1) else offset
    stride = (size[0] * bits + 31) // 32 * 4
    body = runs(r, size, compression == 2, offset) if squeezed else r.randbytes(stride * size[1])
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, stated) + head + table + gap + body


def pnm(r):
    """Plain and binary bits, grays and colours of any greatest value, with comments."""
    kind, size, most = r.randint(1, 6), size_of(r), r.choice([1, 3, 15, 100, 255, 255, 256, 1000, 4095, 65535, r.randint(1, 65535)])
    note = lambda: r.choice([b" ", b"\n", b"\t", b" \r\n", b"\n# a note\n", b" #x\r"])  # noqa: E731
    head = b"P%d" % kind + r.choice([b" ", b"\n"]) + (b"# by hand\n" if some(r, 0.3) else b"") + b"%d" % size[0] + note() + b"%d" % size[1]
    head += note() + b"%d" % most if kind not in (1, 4) else b""
    count = size[0] * size[1] * (3 if kind in (3, 6) else 1)
    if kind == 4:
        return head + b"\n" + r.randbytes((size[0] + 7) // 8 * size[1])
    if kind == 1:
        return head + b"\n" + b"".join(r.choice([b"0", b"1", b"1\n", b"0 "]) for _ in range(count))
    values = [r.choice([0, most, r.randint(0, most)]) for _ in range(count)]
    if kind < 4:
        return head + b"\n" + b"".join(b"%d" % value + note() for value in values)
    return head + b"\n" + b"".join(value.to_bytes(1 if most < 256 else 2, "big") for value in values)


KINDS = dict(png=png, jpg=jpg, gif=gif, webp=webp, bmp=bmp, pnm=pnm)


def draw(r, path, kinds=tuple(KINDS)):
    """Writes a random file that Pillow reads. `path` has no suffix."""
    while True:
        kind = r.choice(kinds)
        made = path.with_name(f"{path.name}.{kind}")
        try:
            made.write_bytes(KINDS[kind](r))
            seen(made)
            return made
        except Exception:  # what Pillow does not write, or an EXIF block that it does not read
            made.unlink(missing_ok=True)


def seen(path):
    """Returns the picture that load_image of transformers makes of a file."""
    return PIL.ImageOps.exif_transpose(PIL.Image.open(path)).convert("RGB")


def case(promise, number):
    """Odd files have the pixels that Pillow shows, through a processor that changes nothing."""
    r = random.Random(f"{promise.seed} odd {number}")
    folder = promise.folder / f"odd-{number}"
    folder.mkdir()
    processor = golden.pixtral_processor(1, 1)
    processor.save_pretrained(folder)
    kinds = []
    for file in range(40):
        path = draw(r, folder / str(file))
        common.Ferry("preprocess", path, "--checkpoint", folder, "-o", f"{path}.safetensors").ends_with(0)
        made = safetensors.torch.load_file(f"{path}.safetensors")["pixel_values"]
        wanted = processor.image_processor([seen(path)], return_tensors="pt").pixel_values
        if made.shape != wanted.shape or not torch.equal(made, wanted):
            raise Wrong(f"{path.name}: {list(made.shape)} differs from {list(wanted.shape)}")
        kinds.append(path.suffix[1:])
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))


def main():
    folder, r, digests = pathlib.Path(sys.argv[1]), random.Random(9), {}
    (folder / "images_odd").mkdir()
    for number in range(48):
        path = draw(r, folder / "images_odd" / f"{number:02}", list(KINDS)[number % len(KINDS):][:1])
        pixels = seen(path)
        white = convert_to_rgb(pixels, return_numpy=True)
        digests[f"images_odd/{path.name}"] = dict(shape_hw=[pixels.height, pixels.width], sha256=hashlib.sha256(pixels.tobytes()).hexdigest(),
                                                  on_white=hashlib.sha256(white.tobytes()).hexdigest())
    (folder / "odd.json").write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in digests.items()) + "\n}\n")


if __name__ == "__main__":
    main()
