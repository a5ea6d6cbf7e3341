"""Models in: ONNX or graph JSON becomes a `Graph` of primitive operators."""
