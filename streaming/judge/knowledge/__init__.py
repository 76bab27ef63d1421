"""What is known about a queue, and how reliably: which telemetry arrives, and what the broker's counts prove by themselves.

`evidence` compares each count of the broker with what is tracked; `basis` names the resulting kind of knowledge; `bounds`
computes how old the oldest message must be at least, whatever the order of service.
"""
