"""The concept space: its members, their training, and calibration."""
