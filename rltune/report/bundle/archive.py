"""The zip of a bundle: its files in order with their digests, and no secret in any of them."""

import errno
import re
import shutil
import zipfile
import zlib
from pathlib import Path

from rltune.errors import InputError, Problem, StoreError
from rltune.report.finding.verify import Check
from rltune.report.render import plural
from rltune.store.files import read_json, replacing, sha256_file, write_json_atomic
from rltune.store.secret import masked, secrets_in

LIST = "bundle.json"
"""Its file that lists the others."""

MOST = 20
"""Differences of one check that are named."""

_MOST_BYTES = 20_000_000_000  # that a bundle may unpack to: a zip can claim any
# RuntimeError: encrypted, or compressed in a way that Python does not read
_NO_ZIP = (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)
_KEYS = re.compile(
    r"\b(?:hf_\w{30,}|sk-[\w-]{20,}|gh[pousr]_\w{36,}|AKIA[0-9A-Z]{16}"
    r"|tml-[\w-]{20,}|wandb_v1_\w{20,})\b"
)
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can name


def seal(root: Path, name: str, *, kind: str) -> None:
    """Write the list of a laid-out bundle; nothing is added to it afterwards.

    Raises:
        InputError: A file holds a secret.

    """
    _require_no_secrets(root)
    outputs = {shown(path, root): sha256_file(path) for path in files_of(root)}
    write_json_atomic(root / LIST, {"format": kind, "name": name, "outputs": outputs})


def files_of(root: Path) -> list[Path]:
    """Return every file of a laid-out bundle, by name."""
    return sorted(path for path in root.rglob("*") if path.is_file())


def shown(path: Path, root: Path) -> str:
    """Return a file's name in the bundle."""
    return path.relative_to(root).as_posix()


def _require_no_secrets(root: Path) -> None:
    """Refuse a bundle in which a text file holds a secret.

    Raises:
        InputError: One does.

    """
    known = secrets_in()
    problems = []
    for path in files_of(root):
        if path.suffix == ".safetensors":
            continue
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
            has_value = any(value in line for value in known) or _KEYS.search(line)
            if has_value or (path.suffix in (".yaml", ".tsv") and masked(line) != line):
                where = f"{shown(path, root)}:{number}"
                action = "Remove it from the run folder, and make the secret invalid."
                problems.append(Problem(where, "holds a secret.", action=action))
    if problems:
        raise InputError(problems)


def write_zip(root: Path, out: Path) -> None:
    """Write a laid-out bundle as a zip: names in order, one date, one mode.

    Raises:
        InputError: It cannot be written.

    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            replacing(out) as part,
            zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file,
        ):
            for path in files_of(root):
                info = zipfile.ZipInfo(shown(path, root), _DATE)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                with path.open("rb") as source, file.open(info, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}."
        raise InputError(Problem(f"--out {out}", what, action="Give another file.")) from error


def unpack(bundle: Path, root: Path) -> Path:
    """Unpack a bundle into an empty folder, and return it.

    Raises:
        StoreError: It is no bundle, or one that would unpack to elsewhere or to too much.

    """
    try:
        with zipfile.ZipFile(bundle) as file:
            names = [info.filename for info in file.infolist()]
            if LIST not in names:
                raise StoreError(Problem(str(bundle), f"is not a bundle; it has no {LIST}."))
            if any(name.startswith("/") or ".." in Path(name).parts for name in names):
                raise StoreError(Problem(str(bundle), "names files outside of itself."))
            if len(names) != len(set(names)):
                raise StoreError(Problem(str(bundle), "holds a file twice."))
            if sum(info.file_size for info in file.infolist()) > _MOST_BYTES:
                raise StoreError(Problem(str(bundle), "unpacks to more than 20 GB."))
            file.extractall(root)
    except _NO_ZIP as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = f"there is no room to unpack it in {root.parent}."
            action = "Free some, or let TMPDIR name a folder on another disk."
        else:
            what, action = f"cannot be unpacked: {error}.", "Ask for it again."
        raise StoreError(Problem(str(bundle), what, action=action)) from error
    return root


def kind_of(root: Path) -> str:
    """Return the format of an unpacked bundle, as its list names it; empty where it names none."""
    content = read_json(root / LIST)
    return str(content.get("format", "")) if isinstance(content, dict) else ""


def listed_check(root: Path, *, kind: str) -> Check:
    """Return whether the files of an unpacked bundle are those of its list."""
    outputs: dict[str, str] = {}
    content = read_json(root / LIST)
    if isinstance(content, dict) and content.get("format") == kind:
        listed = content.get("outputs")
        outputs = listed if isinstance(listed, dict) else {}
    there = {shown(path, root): path for path in files_of(root)}
    there.pop(LIST, None)
    problems = [f"{name} is missing" for name in outputs if name not in there]
    problems += [f"{name} is not listed in {LIST}" for name in there if name not in outputs]
    problems += [
        f"{name} was changed"
        for name, path in there.items()
        if name in outputs and sha256_file(path) != outputs[name]
    ]
    return Check(f"{plural(len(outputs), 'file')} as listed in {LIST}", tuple(problems[:MOST]))
