"""How ONNX operators without a body in the standard become primitives."""
