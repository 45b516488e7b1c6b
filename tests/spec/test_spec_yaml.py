from pathlib import Path

import pytest
from cases import each

from rltune.errors import Problem
from rltune.spec.yamlfile import YamlFile, parse_value, read_yaml


@each(
    ("text", "value"),
    [
        ("1e-3", 0.001),  # text in YAML 1.1
        ("1E5", 100000.0),
        ("-1.5e+2", -150.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("7", 7),
        ("true", True),
        ("false", False),
        ("null", None),
        ("", None),
        ("yes", "yes"),  # true in YAML 1.1
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("010", "010"),  # 8 in YAML 1.1
        ("1:30", "1:30"),  # 90 in YAML 1.1
        ("1_000", "1_000"),  # 1000 in YAML 1.1
        ("0x1f", "0x1f"),
        ("2024-01-01", "2024-01-01"),  # a date in YAML 1.1
        ("[1, 2e0]", [1, 2.0]),
    ],
)
def test_scalars(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f.yaml: The sweep file is empty. See `rltune init` for one to edit."),
        (b"# only this\n", "f.yaml: The sweep file is empty. See `rltune init` for one to edit."),
        (
            b"# x\n- a\n",
            "f.yaml:2: The sweep file holds a list at the top. It must be a mapping of keys.",
        ),
        (
            b"text\n",
            "f.yaml:1: The sweep file holds one value at the top. It must be a mapping of keys.",
        ),
        (b"a:\n\tb: 1\n", "f.yaml:2: A tab indents this line. YAML allows spaces only."),
        (b"a: 1\nb: \xff\n", "f.yaml:2: Byte 0xff is not UTF-8. Save as UTF-8."),
        (
            b"a:\n  b: 1\n  c: 2\n  b: 3\n",
            "f.yaml:4: a.b: 'b' is given twice, first in line 2. Keep one of them.",
        ),
        (
            b"a: &x 1\nb: *x\n",
            "f.yaml:1: is not YAML: anchors and aliases are not used here; "
            "write ${section.key} instead.",
        ),
        (
            b"a: !!python/object/apply:os.getcwd []\n",
            "f.yaml:1: is not YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.getcwd'.",
        ),
        (b"a: 1\n---\nb: 2\n", "f.yaml:2: is not YAML: but found another document."),
        (b"? [a]\n: 1\n", "f.yaml:1: A key must be one value, not a list or mapping."),
        (b"a: " + b"[\n" * 1200, "f.yaml: The sweep file is nested too deeply."),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_bytes(content)
    problem = read_yaml(Path("f.yaml"), kind="sweep file")
    assert isinstance(problem, Problem)
    assert str(problem) == message


def test_missing_file_and_folder(tmp_path):
    absent = read_yaml(tmp_path / "no.yaml", kind="profile file")
    assert str(absent) == f"{tmp_path / 'no.yaml'}: There is no such profile file."
    folder = read_yaml(tmp_path, kind="profile file")
    assert str(folder) == f"{tmp_path}: The profile file is a folder. Give a YAML file."


def test_lines_of_keys_and_items(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa:\r\n  b: 1\r\n  c:\r\n    - 5\r\n    - 6\r\n")  # BOM, CRLF
    file = read_yaml(path, kind="sweep file")
    assert isinstance(file, YamlFile)
    assert file.data == {"a": {"b": 1, "c": [5, 6]}}
    assert file.lines == {
        ("a",): 1, ("a", "b"): 2, ("a", "c"): 3, ("a", "c", "0"): 4, ("a", "c", "1"): 5,
    }  # fmt: skip
    assert file.where(("a", "c", "1", "deeper")) == f"{path}:5"
    assert file.where(("z",)) == str(path)
