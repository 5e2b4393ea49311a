"""Regularisation, one method a file; all are off by default.

    smart.py            outputs hardly change when the word embeddings change a little
    r_drop.py           two passes with different dropout give similar outputs
    moving_average.py   models are evaluated and kept with averaged weights
    layer_decay.py      lower layers learn more slowly

The first two change the losses of supervised batches: they are a `Regulariser`, and `RegularisationConfig` has their
options. The others act on weights and learning rates of any stage; `OptimizerConfig` has their options.
"""
