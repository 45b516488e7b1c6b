"""Pure tensor arithmetic that the advantages and the losses share: masks and groups."""
