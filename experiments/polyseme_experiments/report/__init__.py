"""From values of trials to tables, plots and the report; knows nothing of experiments."""
