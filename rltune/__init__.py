"""Single-axis sweeps of RL-trained LLM agents, with the proof that only one knob moved."""
