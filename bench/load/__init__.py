"""The load generator beside its peers: cost, accuracy and reach, against a server whose times are known."""
