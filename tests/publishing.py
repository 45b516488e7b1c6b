"""What the tests of findings and bundles share: who makes them, and how one is doctored."""

import shutil
from functools import cache

import pytest

from rltune.report.bundle import chart_check
from rltune.report.bundle.archive import LIST, files_of
from rltune.report.bundle.run import verify_bundle
from rltune.report.finding import figures
from rltune.report.manifest import Code
from rltune.store.files import read_json, sha256_file, write_json_atomic

CODE = Code(["rltune"], {"python": "3"}, "c0ffee", "s")


def sources_at(commit):
    """Stand for a checkout that knows the commit of the trials alone."""
    return "s" if commit == "c0ffee" else None


def problems_in(verified):
    """Return what the checks of a finding or bundle found, of what its verify returns."""
    _, checks = verified
    return [text for check in checks for text in check.problems]


def problems_of(root):
    """Return what is found against a laid-out bundle of a run."""
    return problems_in(verify_bundle(root, sources_at=sources_at))


@pytest.fixture(name="root")
def copied(built, tmp_path):
    """Return a copy of the bundle that a module has built, which may be doctored."""
    return shutil.copytree(built, tmp_path / "bundle")


@pytest.fixture(scope="module", autouse=True)
def drawn_once():
    """Draw the same data once only: most of the time of these tests would go there."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (figures, chart_check):
            patch.setattr(module, "draw", cache(module.draw))
        yield


def replace_in(name, old, new):
    def doctor(folder):
        text = (folder / name).read_text()
        assert old in text, (name, old)
        (folder / name).write_text(text.replace(old, new))

    return doctor


def seal_bundle(root):
    """Let a laid-out bundle list the files that it holds, as they are now."""
    names = [path.relative_to(root).as_posix() for path in files_of(root)]
    listed = read_json(root / LIST)
    listed["outputs"] = {name: sha256_file(root / name) for name in names if name != LIST}
    write_json_atomic(root / LIST, listed)


def seal_again(manifest):
    """Make the digests that a list of files names agree with the files beside it."""
    content = read_json(manifest)
    folder = manifest.parent
    content["outputs"] = {
        name: sha256_file(folder / name) for name in content["outputs"] if (folder / name).exists()
    }
    write_json_atomic(manifest, content)
