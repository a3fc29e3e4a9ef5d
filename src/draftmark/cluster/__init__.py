"""Many hosts: a Ray cluster whose nodes run trials. Only `bridge` knows Ray, in a process of its own."""
