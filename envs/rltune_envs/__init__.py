"""Text environments for RL with language models. A leaf: no rltune, torch, Ray, transformers."""
