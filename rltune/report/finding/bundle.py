"""A bundle: the records of a run with its finding, as one zip that another machine can verify.

The same run and the same command give the same bytes. What names a machine or its folders in
provenance.json stays out, and a file that holds a secret is refused.
"""

import json
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import yaml

from rltune.errors import InputError, Problem, StoreError
from rltune.report.finding.collect import collect, public
from rltune.report.finding.figures import figures_of
from rltune.report.finding.files import (
    LINEAGE,
    MANIFEST,
    PAGE,
    SWEEP,
    TABLES,
    TRIALS,
    noted,
    write_finding,
)
from rltune.report.finding.records import Finding
from rltune.report.finding.verify import UNREADABLE, Check, SourcesAt, row_differences, verify
from rltune.report.manifest import Code
from rltune.report.render import plural
from rltune.spec.identity import config_hash
from rltune.store.files import read_json, sha256_file, write_json_atomic
from rltune.store.run_folder import SweepFolder, read_folder, run_folders
from rltune.store.rundir import RunDir, TrialDir
from rltune.store.secret import masked, secrets_in

FORMAT, LIST = "rltune-bundle-1", "bundle.json"
RUN, FINDING = "run", "finding"  # its two folders
MOST_BYTES = 20_000_000_000  # that a bundle may unpack to: a zip can claim any
MOST = 20  # differences that are named

# RuntimeError: encrypted, or compressed in a way that Python does not read
_NO_ZIP = (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)
_OF_RUN = ("sweep.yaml", "plan.json", "comparability.json", "results.tsv", "inputs.json")
_OF_TRIAL = ("spec.json", "config.yaml", "provenance.json", "metrics.jsonl", "heldout.jsonl")
_ENDS = ("DONE", "FAILED", "card.json", "origin.json", "prompt.txt")
_KEYS = re.compile(
    r"\b(?:hf_\w{30,}|sk-[\w-]{20,}|gh[pousr]_\w{36,}|AKIA[0-9A-Z]{16}"
    r"|tml-[\w-]{20,}|wandb_v1_\w{20,})\b"
)
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can name
_KEY_COLUMNS = ("trial_id", "condition", "seed", "step")
_TABLES = ("trials", "gates", "pairs", "measures", "summary")


def build(
    folder: SweepFolder,
    root: Path,
    code: Code,
    *,
    place: str,
    metrics: Sequence[str] = (),
    note: str = "",
    has_checkpoints: bool = False,
) -> Finding:
    """Lay out a bundle in an empty folder, and return its finding.

    Args:
        folder: The run folder.
        root: Where the bundle is laid out.
        code: What makes it.
        place: How commands name the bundle: `paper.zip`.
        metrics: Measures to show beside the sweep's metric.
        note: The author's own words.
        has_checkpoints: Whether the checkpoint that each trial's gate chose is in it.

    Raises:
        InputError: A file of the run holds a secret.

    """
    run = RunDir(root / RUN / folder.run.path.resolve().name)
    for source, target in _copied(folder, run, has_checkpoints=has_checkpoints):
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name == "provenance.json":
            write_json_atomic(target, public(read_json(source)))
        else:
            shutil.copyfile(source, target)
    found = collect(read_folder(run), code, name=Path(place).stem, metrics=metrics, place=place)
    finding = noted(found, note)
    write_finding(finding, root / FINDING)
    _require_no_secrets(root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    outputs = {path.relative_to(root).as_posix(): sha256_file(path) for path in files}
    write_json_atomic(root / LIST, {"format": FORMAT, "name": finding.name, "outputs": outputs})
    return finding


def _copied(
    folder: SweepFolder, run: RunDir, *, has_checkpoints: bool
) -> Iterator[tuple[Path, Path]]:
    """Yield the files of the run that a bundle holds, and where."""
    own = folder.run.path
    names = [*_OF_RUN, *sorted(path.name for path in own.glob("tasks*.json")), "looks.jsonl"]
    yield from ((own / name, run.path / name) for name in names if (own / name).is_file())
    for spec in folder.specs:
        trial, target = folder.run.trial(spec.trial_id), run.trial(spec.trial_id)
        there = [name for name in (*_OF_TRIAL, *_ENDS) if (trial.path / name).is_file()]
        yield from ((trial.path / name, target.path / name) for name in there)
        if has_checkpoints:
            yield from _chosen(trial, target)


def _chosen(trial: TrialDir, target: TrialDir) -> Iterator[tuple[Path, Path]]:
    """Yield the files of the checkpoint that the gate chose."""
    result = trial.read_done()
    if result is None:
        return
    source = trial.checkpoint(result.best_step)
    for path in sorted(source.rglob("*")):
        if path.is_file():
            yield path, target.checkpoint(result.best_step) / path.relative_to(source)


def _require_no_secrets(root: Path) -> None:
    """Refuse a bundle in which a text file holds a secret.

    Raises:
        InputError: One does.

    """
    known = secrets_in()
    problems = []
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.suffix == ".safetensors":
            continue
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
            has_value = any(value in line for value in known) or _KEYS.search(line)
            if has_value or (path.suffix in (".yaml", ".tsv") and masked(line) != line):
                where = f"{path.relative_to(root).as_posix()}:{number}"
                action = "Remove it from the run folder, and make the secret invalid."
                problems.append(Problem(where, "holds a secret.", action=action))
    if problems:
        raise InputError(problems)


def write_zip(root: Path, out: Path) -> None:
    """Write a laid-out bundle as a zip: names in order, one date, one mode.

    Raises:
        InputError: It cannot be written.

    """
    part = out.with_name(f".{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as file:
            for path in sorted(one for one in root.rglob("*") if one.is_file()):
                info = zipfile.ZipInfo(path.relative_to(root).as_posix(), _DATE)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                with path.open("rb") as source, file.open(info, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
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
            if sum(info.file_size for info in file.infolist()) > MOST_BYTES:
                raise StoreError(Problem(str(bundle), "unpacks to more than 20 GB."))
            file.extractall(root)
    except _NO_ZIP as error:
        what = f"cannot be unpacked: {error}."
        raise StoreError(Problem(str(bundle), what, action="Ask for it again.")) from error
    return root


def verify_bundle(root: Path, *, sources_at: SourcesAt) -> tuple[Finding | None, list[Check]]:
    """Return the finding of an unpacked bundle, and what was verified.

    The tables of the finding are made again from the records of the run, whose audit is made again,
    too; the rest is verified as of any finding.
    """
    files = _listed(root)
    if not (root / FINDING / MANIFEST).is_file():
        return None, [files, Check("finding", (f"{FINDING}/{MANIFEST} is missing",))]
    finding, checks = verify(root / FINDING, sources_at=sources_at)
    if finding is None:
        return None, [files, *checks]
    try:
        again = tuple(_made_again(root, finding))
    except (*UNREADABLE, yaml.YAMLError) as error:
        again = (f"{RUN}: the records cannot be read: {error}",)
    made = Check("tables and audit, made again from the records", again[:MOST])
    return finding, [files, made, *checks]


def _listed(root: Path) -> Check:
    outputs: dict[str, str] = {}
    content = read_json(root / LIST)
    if isinstance(content, dict) and content.get("format") == FORMAT:
        listed = content.get("outputs")
        outputs = listed if isinstance(listed, dict) else {}
    there = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    there.pop(LIST, None)
    problems = [f"{name} is missing" for name in outputs if name not in there]
    problems += [f"{name} is not listed in {LIST}" for name in there if name not in outputs]
    problems += [
        f"{name} was changed"
        for name, path in there.items()
        if name in outputs and sha256_file(path) != outputs[name]
    ]
    return Check(f"{plural(len(outputs), 'file')} as listed in {LIST}", tuple(problems[:MOST]))


def _made_again(root: Path, finding: Finding) -> Iterator[str]:
    """Yield where the finding is not what the records of the run give."""
    folders = run_folders(root / RUN)
    if len(folders) != 1:
        yield f"{RUN} holds {plural(len(folders), 'run folder')}, not one"
        return
    known = finding.manifest
    folder = read_folder(RunDir(folders[0]))
    code = Code([], {}, known["rltune"]["commit"], known["rltune"]["source_sha256"])
    again = collect(folder, code, name=finding.name, metrics=finding.metrics, place=known["place"])
    for key, value in again.manifest.items():
        is_compared = key in known and key not in ("note", "versions")
        if is_compared and not _agrees(known[key], json.loads(json.dumps(value))):
            yield f"{FINDING}/{MANIFEST}: {key} is not what the records give"
    if again.sweep != finding.sweep:
        yield f"{FINDING}/{SWEEP} is not the sweep file of the run"
    if again.lineage_text != finding.lineage_text:
        yield f"{FINDING}/{LINEAGE} is not the lineage of the run"
    for name in _TABLES:
        keys = [one for one in _KEY_COLUMNS if _has(finding, name, one)]
        yield from row_differences(
            f"{FINDING}/{name}.csv",
            getattr(finding, name),
            getattr(again, name),
            keys,
            finding.columns.get(name),
        )
    if again.recorded != finding.recorded:
        yield f"{FINDING}/trials.json is not what the records give"
    for spec in folder.specs:
        trial = folder.run.trial(spec.trial_id)
        yield from _checkpoint(trial)
        config = yaml.safe_load(trial.config.read_bytes()) if trial.config.is_file() else None
        if config is not None and config_hash(config) != spec.config_hash:
            yield f"{RUN}: {spec.trial_id}: config.yaml is not the config of the trial"
    yield from _strangers(root, folder, finding)


def _strangers(root: Path, folder: SweepFolder, finding: Finding) -> Iterator[str]:
    """Yield the files that no bundle of the run holds: nothing here vouches for them."""
    own = {source for source, _ in _copied(folder, folder.run, has_checkpoints=True)}
    tables = (f"{name}.csv" for name in TABLES)
    names = (MANIFEST, PAGE, SWEEP, LINEAGE, TRIALS, *tables, *figures_of(finding))
    own |= {root / LIST, *(root / FINDING / name for name in names)}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path not in own:
            yield f"{path.relative_to(root).as_posix()} is no file of a bundle"


def _agrees(known: object, again: object) -> bool:
    """Tell whether a JSON value says what comes out again, keys that came later apart."""
    if isinstance(known, dict) and isinstance(again, dict):
        return all(key in again and _agrees(known[key], again[key]) for key in known)
    if isinstance(known, list) and isinstance(again, list):
        return len(known) == len(again) and all(map(_agrees, known, again))
    return bool(known == again)


def _has(finding: Finding, table: str, column: str) -> bool:
    rows = getattr(finding, table)
    return bool(rows) and column in {one.name for one in fields(rows[0])}


def _checkpoint(trial: TrialDir) -> Iterator[str]:
    """Yield where a checkpoint is not the one that the gate chose, or not as its card says."""
    result = trial.read_done()
    folders = sorted(trial.checkpoints.glob("step-*"))
    if not folders or result is None:
        return
    where = f"{RUN}: {trial.trial_id}"
    if [path.name for path in folders] != [trial.checkpoint(result.best_step).name]:
        names = ", ".join(path.name for path in folders)
        yield f"{where}: {names}, but the gate chose step {result.best_step}"
        return
    card = read_json(trial.model_card) if trial.model_card.is_file() else {}
    if card.get("trial_id") != trial.trial_id:
        yield f"{where}: card.json, which names its weights, is missing or another trial's"
        return
    known = (card["checkpoint"] or {}).get("file_sha256")
    weights = folders[0] / "policy.safetensors"
    if weights.is_file() and not known:
        yield f"{where}: {folders[0].name}/policy.safetensors is no file of its card"
    elif known and (not weights.is_file() or sha256_file(weights) != known):
        yield f"{where}: {folders[0].name}/policy.safetensors is not the file of its card"
