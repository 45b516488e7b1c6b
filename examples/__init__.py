"""A custom environment, reward and advantage estimator, each as small as it gets."""
