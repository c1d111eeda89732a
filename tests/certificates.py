"""Certificates made in the test: an authority, and what it vouches for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

INTERNAL = "outrider.internal"
"""The name that actors have if nothing else is said."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates. Its own is at `ca`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = self._builder(self._subject, self._key, valid_days=1.0).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca = folder / f"{name}.ca.pem"
        self.ca.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))
        self._folder = folder

    def issue(
        self, name: str, *hosts: str, valid_days: float = 1.0, over: Pair | None = None
    ) -> Pair:
        """A certificate for hosts (loopback and the internal name if none), of a subject.

        Args:
            name: The subject, and the beginning of the names of its files.
            hosts: DNS names or addresses.
            valid_days: Until when; negative for one that has expired.
            over: Files to exchange, in place of new ones.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        wanted = hosts or ("localhost", "127.0.0.1", INTERNAL)
        built = self._builder(subject, key, valid_days=valid_days).add_extension(
            x509.SubjectAlternativeName([_host(host) for host in wanted]), critical=False
        )
        pair = over or Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        _exchange(pair.cert, _pem(built.sign(self._key, hashes.SHA256())))
        _exchange(
            pair.key,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, valid_days: float
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=valid_days))
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _exchange(file: Path, content: bytes) -> None:
    """Whole or not at all, as a mounted secret changes."""
    new = file.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, file)
