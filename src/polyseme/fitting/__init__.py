"""What surrounds a fit: training set, warm start, forecast of cost, validation."""
