"""The service: database, HTTP, jobs, command line and dashboard."""
