"""Parts of `benchmarks.attacks`: what is sent, how it is sent, and how far it moved a model."""
