"""Memory-bound kernels beside those of other libraries."""
