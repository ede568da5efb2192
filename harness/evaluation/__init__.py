"""From ranked lists and labels to numbers: measures, scores, intervals, significance tests."""
