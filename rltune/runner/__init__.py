"""Run a sweep on Ray Tune: trials, folder, records, signals. Only this room imports Ray."""
