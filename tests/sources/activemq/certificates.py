"""A self-signed certificate for 127.0.0.1, created for each test run."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from tests.sources.activemq.broker import Tls


def make(folder: Path) -> tuple[Tls, Path]:
    """Return the broker's keystore, and the certificate (PEM) that a client has to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "queuewatch test broker")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(addresses, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    password = "for one test run"
    keystore, trusted = folder / "broker.p12", folder / "broker.pem"
    protection = serialization.BestAvailableEncryption(password.encode())
    keystore.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, certificate, None, protection))
    trusted.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Tls(keystore, password), trusted
