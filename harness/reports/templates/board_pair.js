// Tab *Two runs*: what differs between two runs, by how much, and the queries that decide it.
