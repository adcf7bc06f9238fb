"""Functions about files: what is in them, where bytes go, whether they are intact and signed."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable

from ferry import _native
from ferry._common import Path, Progress, path_of, paths_of
from ferry._results import Audit, Check, Inspection, Signature, SignatureCheck, build


def inspect(path: Path, *, threads: int = 0) -> Inspection:
    """Lists what is in a checkpoint, a program, a data file or a bundle. Reads headers only.

    >>> found = inspect("testdata/trained")
    >>> found.kind, len(found.tensors)
    ('checkpoint', 55)
    """
    return build(Inspection, _native.inspect(path_of(path), threads))


def audit(
    path: Path, *, digests: bool = False, progress: Progress | None = None, threads: int = 0
) -> Audit:
    """Accounts for every byte of an artifact. ``digests`` reads all bytes, to find equal tensors
    and values that fit fewer bits.

    >>> found = audit("testdata/trained")
    >>> found.totals.bytes == sum(file.bytes for file in found.files)
    True
    """
    document = json.loads(_native.audit_json(path_of(path), digests, progress, threads))
    return build(Audit, document, document=document)


def sign(
    path: Path,
    private_key: Path,
    *,
    passphrase_file: Path | None = None,
    certificate: Path | None = None,
    chain: Path | Iterable[Path] = (),
    signature: Path | None = None,
    ignore_paths: Path | Iterable[Path] = (),
    shard_bytes: int = 0,
    progress: Progress | None = None,
    threads: int = 0,
) -> Signature:
    """Signs a bundle, any other folder or a file, by OpenSSF Model Signing (docs/signing.md).

    ``private_key`` is a PEM file for P-256, P-384 or P-521, which its owner alone may read.
    """
    options = {
        "path": path_of(path),
        "private_key": path_of(private_key),
        "passphrase_file": path_of(passphrase_file),
        "certificate": path_of(certificate),
        "chain": paths_of(chain),
        "signature": path_of(signature),
        "ignore_paths": paths_of(ignore_paths),
        "shard_bytes": shard_bytes,
    }
    return build(Signature, _native.sign(options, progress, threads), path=path_of(path))


def check(
    path: Path,
    *,
    public_key: Path | None = None,
    root_certificates: Path | Iterable[Path] = (),
    at: int | None = None,
    signature: Path | None = None,
    ignore_unsigned_files: bool = False,
    progress: Progress | None = None,
    threads: int = 0,
) -> Check:
    """Hashes every byte of a bundle and validates all of its files, or reads every value of a
    checkpoint, a program or a data file. Damage is no error: it is in ``problems``.

    With ``public_key`` or ``root_certificates``, PEM files that the caller trusts, it checks the
    signature of any folder or file, and the bundle if it is one. ``at`` is the time at which
    certificates must be valid, in seconds since 1970.

    >>> check("sample.bundle").ok
    True
    """
    roots = paths_of(root_certificates)
    wants_signature = any((public_key, roots, signature, ignore_unsigned_files, at is not None))
    signed = None
    if wants_signature:
        options = {
            "path": path_of(path),
            "signature": path_of(signature),
            "public_key": path_of(public_key),
            "root_certificates": roots,
            "at": at,
            "ignore_unsigned_files": ignore_unsigned_files,
        }
        signed = build(SignatureCheck, _native.check_signature(options, progress, threads))
    if signed is not None and not _is_bundle(path):
        return Check(path_of(path), "", signed.files, signed.bytes, 0, (), signed)
    found = _native.check(path_of(path), progress, threads)
    return build(Check, found, path=path_of(path), signature=signed)


def _is_bundle(path: Path) -> bool:
    folder = pathlib.Path(path)
    return (folder / "manifest.json").is_file() and any(folder.glob("*.pte"))
