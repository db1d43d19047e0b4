"""What every other part stands on: input checks, text, threads, progress, plugins."""
