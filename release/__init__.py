"""What goes out with a release besides the code."""
