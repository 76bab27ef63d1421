"""The rules: one file per subject, one short function per signal, `(context) -> findings`."""
