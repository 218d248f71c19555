"""The encoding store: each sample's encoding, made once, read, and erased."""
