"""The catalogue's entries, one file per subject."""
