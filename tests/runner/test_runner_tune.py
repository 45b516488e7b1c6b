import pytest

from rltune.errors import ResourceError


def test_a_ray_that_somebody_else_started_is_refused(tmp_path, monkeypatch, small, make_payload):
    # A second Ctrl-C ends the launch's own Ray, and with it the trials. It may not end another's.
    import ray

    from rltune.runner.tune import TuneLaunch

    launch = TuneLaunch("l", tmp_path, [make_payload(small)], max_concurrent=1, address=None)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with pytest.raises(
        ResourceError, match=r"^ray\.init: it already runs in this process\. Call ray\.shutdown\(\)"
    ):
        launch.start()
