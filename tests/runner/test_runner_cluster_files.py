"""The cluster files that ship, against Ray's own schema."""

import json
from pathlib import Path

import jsonschema
import pytest
import ray
import yaml

FOLDER = Path(__file__).parents[2] / "configs" / "cluster"
SCHEMA = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
FILES = sorted(FOLDER.glob("*.yaml"))


def test_there_are_two():
    assert [path.stem for path in FILES] == ["cloud", "local"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ray_accepts_it(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    jsonschema.validate(content, json.loads(SCHEMA.read_text(encoding="utf-8")))
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        (start,) = (command for command in content[key] if "ray start" in command)
        assert "RAY_AUTH_MODE=token" in start  # a port that anybody may reach runs code


def test_a_word_that_ray_does_not_know_is_refused():
    content = yaml.safe_load(FILES[0].read_text(encoding="utf-8")) | {"max_wrokers": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, json.loads(SCHEMA.read_text(encoding="utf-8")))
