"""Where the metrics of a running trial go: a file always, Weights & Biases when asked."""
