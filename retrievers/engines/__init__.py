"""Search engines that propose candidates; scores and order are ours."""
