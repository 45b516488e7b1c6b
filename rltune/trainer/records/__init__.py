"""The records of a trial: metrics, episodes, replays, media, model card."""
