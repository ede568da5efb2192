"""Where work on shards is done: in this process, or on the nodes of a cluster."""
