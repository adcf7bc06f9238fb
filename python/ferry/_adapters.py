"""Functions that add, remove and list the adapters of a bundle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict, Unpack

from ferry import _native
from ferry._common import Path, Progress, path_of, paths_of
from ferry._results import Adapter, AdapterList, build


class EditOptions(TypedDict, total=False):
    """Keywords of :func:`add_adapter` and :func:`remove_adapter`: the key that signs the bundle
    again, as for :func:`ferry.sign`, which a signed bundle needs."""

    private_key: Path
    passphrase_file: Path
    certificate: Path
    chain: Path | Iterable[Path]
    progress: Progress
    threads: int


def add_adapter(
    bundle: Path,
    adapter: Path,
    name: str,
    *,
    overwrite: bool = False,
    **options: Unpack[EditOptions],
) -> Adapter:
    """Adds an adapter, as peft writes it, to a bundle that was converted with ``adapters``. No byte
    of the base changes, and a new folder takes the place of the bundle in one step. ``overwrite``
    replaces an adapter of this name."""
    given = _edit(bundle, name, options) | {"adapter": path_of(adapter), "overwrite": overwrite}
    return build(
        Adapter, _native.add_adapter(given, options.get("progress"), options.get("threads", 0))
    )


def remove_adapter(bundle: Path, name: str, **options: Unpack[EditOptions]) -> None:
    """Removes an adapter from a bundle, in the same way."""
    given = _edit(bundle, name, options)
    _native.remove_adapter(given, options.get("progress"), options.get("threads", 0))


def list_adapters(bundle: Path, *, threads: int = 0) -> AdapterList:
    """Lists the adapters of a bundle, and for which weights it can hold others."""
    return build(AdapterList, _native.list_adapters(path_of(bundle), threads), path=path_of(bundle))


def _edit(bundle: Path, name: str, options: EditOptions) -> dict[str, object]:
    unknown = sorted(set(options) - set(EditOptions.__annotations__))
    if unknown:
        raise TypeError(f"unexpected option: {unknown[0]}")
    return {
        "bundle": path_of(bundle),
        "name": name,
        "private_key": path_of(options.get("private_key")),
        "passphrase_file": path_of(options.get("passphrase_file")),
        "certificate": path_of(options.get("certificate")),
        "chain": paths_of(options.get("chain", ())),
    }
