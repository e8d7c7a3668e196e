"""Lp-convolution: convolutions with trainable receptive fields, for any network and any number of axes."""
