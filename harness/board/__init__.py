"""Many runs side by side: which is best and how sure that is, what made it so, and what to try next."""
