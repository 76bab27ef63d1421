"""Diagnose why a broker cannot be reached by connecting again, as stomp.py does not report the reason."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from queuewatch.tls import is_plain_text
from sources.activemq.config import ActiveMQCollectorConfig, Address
from sources.activemq.errors import BrokerUnavailable

_CONNECTOR: Final = "is the broker up, with a STOMP transportConnector on this port?"


def unreachable(config: ActiveMQCollectorConfig, address: Address) -> BrokerUnavailable:
    """Return why connecting to `address` fails, with the remedy."""
    reason, remedy = _try(config, address)
    return BrokerUnavailable(str(address), reason, remedy, is_closed=remedy == _CONNECTOR)


def _try(config: ActiveMQCollectorConfig, address: Address) -> tuple[str, str]:
    """Return the reason and the remedy."""
    try:
        with socket.create_connection((address.host, address.port), config.connect_timeout_s) as plain:
            if address.tls:
                context = _context(config)
                with context.wrap_socket(plain, server_hostname=address.host):
                    pass
    except _CertificateUnusable as error:
        return f"this client's certificate cannot be used: {error}", (
            "tls.key_file must be the private key of tls.certificate_file; if it is encrypted, tls.key_password_env must name "
            "the environment variable with its password"
        )
    except ssl.SSLCertVerificationError as error:
        return str(error), "set tls.ca_file to the authority that signed the broker's certificate"
    except ssl.SSLError as error:
        if is_plain_text(error):
            return "this port does not speak TLS", "write stomp:// instead of stomp+ssl://, or correct the port"
        return str(error), "does this connector speak TLS (stomp+ssl), with a certificate this client may use?"
    except FileNotFoundError as error:
        return f"{error.strerror}: {error.filename}", "check the files under tls"
    except TimeoutError:
        return f"no answer within {config.connect_timeout_s:g} s", _CONNECTOR
    except socket.gaierror as error:
        return error.strerror or str(error), "check the host's name, and whether it can be resolved here"
    except OSError as error:
        return error.strerror or str(error), _CONNECTOR
    return "cannot connect", _CONNECTOR


class _CertificateUnusable(Exception):
    """The files of this client's certificate and key do not go together, or the key's password is wrong."""


def _context(config: ActiveMQCollectorConfig) -> ssl.SSLContext:
    tls = config.tls
    context = ssl.create_default_context(cafile=tls.ca_file)
    if not tls.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if tls.certificate_file is not None:
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password())
        except ssl.SSLError as error:
            raise _CertificateUnusable(str(error)) from error
    return context
