"""The graph: types, nodes, operators, their meaning, and their identity."""
