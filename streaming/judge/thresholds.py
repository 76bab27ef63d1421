"""The thresholds live with the core, which needs some of them per message; rules and catalogue read them here."""

from streaming.core.thresholds import Thresholds as Thresholds
