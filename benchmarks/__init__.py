"""Programs that measure; each writes one file and says how to run it again."""
