"""Pages over the public JSON API: every figure is one that the API gives."""
