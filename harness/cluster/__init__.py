"""Work on the shards of a corpus, in this process or on the nodes of a cluster."""
