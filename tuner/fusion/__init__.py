"""Which nodes share a kernel: legality, candidates, the exact partition, memory."""
