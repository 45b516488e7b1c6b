"""What a trial writes: metrics, episodes, replays, media, its model card."""
