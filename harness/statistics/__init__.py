"""Statistics that know arrays alone: intervals, paired tests, power, agreement, importance."""
