"""The folder of compiled modules: ONSTREAM_CACHE_DIR, else the user's cache folder.

examples:
  onstream cache info
  onstream cache prune --bytes 100M
  onstream cache export kernels.tar && onstream cache import kernels.tar
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import struct
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from onstream import _core
from onstream.command import UserError

NAME = "cache"
HELP = "look at the cache of compiled modules, empty it, carry it elsewhere"

# As jit/cache_entry.h has it.
_SCHEMA = 2
_DIGEST_BYTES = 32
_ENTRY = re.compile(r"[0-9a-f]{64}\.ons")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Entry(NamedTuple):
    path: Path
    size: int
    used: float  # seconds since the epoch


def folder() -> Path:
    path = _core._cache_path()
    if path is None:
        raise UserError("there is no cache: ONSTREAM_CACHE_DIR turns it off, or HOME is not set")
    return Path(path)


def entries(path: Path) -> Iterator[Entry]:
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return
    for name in names:
        if _ENTRY.fullmatch(name):
            try:
                status = (path / name).stat()
            except OSError:
                continue  # gone meanwhile
            yield Entry(path / name, status.st_size, status.st_mtime)


def state() -> dict[str, Any]:
    path = _core._cache_path()
    if path is None:
        return {"folder": None}
    found = list(entries(Path(path)))
    return {"folder": path, "entries": len(found), "bytes": sum(entry.size for entry in found)}


# ---- what an entry holds ---------------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("it is cut off")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        return self.take(self.number()).decode(errors="replace")


def read(data: bytes, name: str) -> dict[str, Any]:
    """What is in an entry. Raises ValueError, saying what is wrong with it."""
    body = data[:-_DIGEST_BYTES]
    if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != data[-_DIGEST_BYTES:]:
        raise ValueError("its digest is not that of its bytes")
    reader = _Reader(body)
    if reader.take(8) != b"ONSCACHE":
        raise ValueError("it is no entry")
    schema = reader.number()
    if schema != _SCHEMA:
        raise ValueError(f"it is of version {schema}, not {_SCHEMA}")
    if reader.take(_DIGEST_BYTES).hex() + ".ons" != name:
        raise ValueError("it belongs under another name")
    inputs = []
    for _ in range(reader.number()):
        reader.take(1)
        inputs.append(reader.text())
        reader.take(16 + _DIGEST_BYTES)
    kind = {1: "cubin", 2: "PTX", 3: "shared object"}.get(reader.number(), "unknown")
    kernels = []
    for _ in range(reader.number()):
        kernels.append(reader.text())
        reader.text(), reader.text()
    return {"kind": kind, "kernels": kernels, "inputs": inputs}


# ---- subcommands -----------------------------------------------------------------------------


def _info(arguments: argparse.Namespace) -> int:
    path = folder()
    found = list(entries(path))
    result = {
        "folder": str(path),
        "exists": path.is_dir(),
        "entries": len(found),
        "bytes": sum(entry.size for entry in found),
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        there = "" if result["exists"] else " (not there yet)"
        print(f"{path}{there}\n{result['entries']} entries, {result['bytes']} bytes")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    lines = []
    for entry in entries(folder()):
        try:
            content = read(entry.path.read_bytes(), entry.path.name)
        except (OSError, ValueError) as error:
            content = {"kind": "unreadable", "kernels": [str(error)]}
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        lines.append({"key": entry.path.stem, "bytes": entry.size, "used": used, **content})
    if arguments.json:
        print(json.dumps(lines, indent=2))
        return 0
    for line in lines:
        names = ", ".join(line["kernels"])
        print(f"{line['key'][:12]}  {line['bytes']:9}  {line['used']}  {line['kind']}: {names}")
    return 0


def _remove(found: list[Entry]) -> None:
    count = 0
    for entry in found:
        try:
            entry.path.unlink()
            count += 1
        except FileNotFoundError:
            pass
    print(f"{count} entries removed, {sum(entry.size for entry in found)} bytes")


def _clear(arguments: argparse.Namespace) -> int:
    del arguments
    _remove(list(entries(folder())))
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    """Those used longest ago go."""
    found = sorted(entries(folder()), key=lambda entry: entry.used)
    total = sum(entry.size for entry in found)
    doomed = []
    for entry in found:
        is_old = entry.used < time.time() - arguments.days * 86400 if arguments.days else False
        if not is_old and (arguments.bytes is None or total <= arguments.bytes):
            continue
        doomed.append(entry)
        total -= entry.size
    _remove(doomed)
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    bad = []
    count = 0
    for entry in entries(folder()):
        count += 1
        try:
            read(entry.path.read_bytes(), entry.path.name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            print(f"{entry.path}: {error}")
            bad.append(entry)
    print(f"{count} entries, {len(bad)} bad")
    if arguments.remove and bad:
        _remove(bad)
        return 0
    return 1 if bad else 0


def _export(arguments: argparse.Namespace) -> int:
    count = 0
    with tarfile.open(arguments.file, "w") as archive:
        for entry in entries(folder()):
            try:
                data = entry.path.read_bytes()
                read(data, entry.path.name)
            except (OSError, ValueError):
                continue
            item = tarfile.TarInfo(entry.path.name)
            item.size, item.mtime, item.mode = len(data), int(entry.used), 0o600
            archive.addfile(item, io.BytesIO(data))
            count += 1
    print(f"{count} entries in {arguments.file}")
    return 0


def _import(arguments: argparse.Namespace) -> int:
    path = folder()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    good = bad = 0
    try:
        with tarfile.open(arguments.file, "r") as archive:
            for item in archive:
                file = archive.extractfile(item) if item.isfile() else None
                data = file.read() if file else b""
                try:
                    if not _ENTRY.fullmatch(item.name):
                        raise ValueError("it is no entry")
                    read(data, item.name)
                except (ValueError, struct.error) as error:
                    print(f"{item.name}: {error}")
                    bad += 1
                    continue
                handle, name = tempfile.mkstemp(prefix="writing-", dir=path)
                with os.fdopen(handle, "wb") as target:
                    target.write(data)
                os.replace(name, path / item.name)
                good += 1
    except tarfile.TarError as error:
        raise UserError(f"{arguments.file}: {error}") from None
    print(f"{good} entries into {path}, {bad} refused")
    return 1 if bad else 0


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r}: write 100000, 100K, 20M or 1G")
    return int(match[1]) * _UNITS[match[2]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(name: str, action: Any, text: str) -> argparse.ArgumentParser:
        subparser = actions.add_parser(name, help=text)
        subparser.set_defaults(action=action)
        return subparser

    add("info", _info, "where it is, and how large").add_argument("--json", action="store_true")
    add("list", _list, "the entries").add_argument("--json", action="store_true")
    add("clear", _clear, "remove all entries; always safe")
    prune = add("prune", _prune, "remove the entries used longest ago")
    prune.add_argument("--bytes", type=_bytes, metavar="SIZE", help="until those left fit in")
    prune.add_argument("--days", type=float, metavar="DAYS", help="those not used for so long")
    verify = add("verify", _verify, "read every entry; 1 when one is damaged")
    verify.add_argument("--remove", action="store_true", help="the damaged ones")
    add("export", _export, "all good entries into one file").add_argument("file")
    add("import", _import, "the entries out of such a file; code is run from them").add_argument(
        "file"
    )


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.action(arguments)
    return code
