"""From a small graph to a kernel: one loop nest, its counts, and its text."""
