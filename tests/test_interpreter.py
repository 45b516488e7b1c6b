"""Another Python process that imports what this one does."""

import subprocess

from rltune.interpreter import module_command, module_environment


def test_no_file_of_the_working_folder_stands_in_for_a_module(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')", encoding="utf-8")
    (tmp_path / "goldens.py").write_text("raise SystemExit('shadowed')", encoding="utf-8")
    done = subprocess.run(
        module_command("goldens"),  # of tests/, which is on the path of this process
        cwd=tmp_path,
        env=module_environment(EXTRA="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
