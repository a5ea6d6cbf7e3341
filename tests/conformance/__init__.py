"""The standard's own node tests, from the model's bytes to a device's answer."""
