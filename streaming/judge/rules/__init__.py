"""The rules, a file per subject, a short function per signal: `(context) -> findings`."""
