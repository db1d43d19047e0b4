"""What people answer: the verdict log, corrections, active learning."""
