"""From values of trials to cells, tables, plots and the report; knows nothing of experiments."""
