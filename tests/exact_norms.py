"""RMS norms without a rounding to float32 inside, for models in float64."""

import torch


class ExactNorm(torch.nn.Module):
    """An RMS norm in the precision of its input; transformers' own rounds to float32."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


def double(model):
    """Return a model in float64 throughout."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child).__name__.endswith("RMSNorm"):
                setattr(parent, name, ExactNorm(child))
    return model.double()
