"""An environment and a reward of one's own, each as small as it gets."""
