"""Find the best schedules with few runs, and the best partition with measured costs."""
