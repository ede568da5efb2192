"""Statistics on plain arrays: intervals, paired tests, power, agreement, importance."""
