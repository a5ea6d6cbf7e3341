"""Planning and tuning as jobs: submission, workflow, worker."""
