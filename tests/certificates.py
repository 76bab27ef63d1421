"""A PEM file with a certificate and its private key, as a client of a broker has it."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, pkcs12

from tests.sources.activemq import certificates


def client_file(folder: Path, password: str = "") -> Path:
    """Write the file; with a `password`, its key is encrypted."""
    tls, trusted = certificates.make(folder)
    key, _, _ = pkcs12.load_key_and_certificates(tls.keystore.read_bytes(), tls.password.encode())
    assert key is not None
    protection = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    file = folder / "client.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection) + trusted.read_bytes())
    return file
