"""What may be said of a queue, and how sure it is: which telemetry arrives, and what the broker's counts prove on their own.

`evidence` compares each count of the broker with what is tracked; `basis` names the kind of knowledge that follows; `bounds`
says how old the oldest message must be at least, whatever order messages are served in.
"""
