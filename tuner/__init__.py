"""Everything compiler-like: graphs, rewrites, partitions, kernels, measurements."""
