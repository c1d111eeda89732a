"""The section of certificates and tokens. Files are read where the actors run: on every node, at the same path."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from outrider.actors.rpc.tls import TlsFiles
from outrider.cluster.config.config_section import Section


def _absolute(path: str) -> str:
    if not PurePath(path).is_absolute():
        raise ValueError(f"must be an absolute path, the same on every node, but is {path!r}")
    return path


File = Annotated[str, AfterValidator(_absolute)]


class Public(Section):
    """The coordinators' port, which clients reach. Without `cert` its connections are plain."""

    cert: File | None = None
    """The certificate for the host that clients name, followed by those that lead to its authority (PEM). This file and the others
    may be exchanged at any time: new connections use what is there then."""

    key: File | None = None
    """Its key, not encrypted (PEM)."""

    client_ca: File | None = None
    """Authorities whose certificates clients must have (PEM). None: they need none."""

    tokens: File | None = None
    """A file of tokens, one a line, of which a client must send one as `authorization: Bearer TOKEN`. Blank lines, and lines that
    begin with #, are left out. None: clients need none."""

    @property
    def tls(self) -> TlsFiles | None:
        """Its certificate; None: plain connections."""
        if self.cert is None or self.key is None:
            return None
        return TlsFiles(cert=self.cert, key=self.key, ca=self.client_ca or "")

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together; give both or neither")
        if self.client_ca is not None and self.cert is None:
            raise ValueError("client_ca needs cert and key: only TLS asks clients for certificates")
        return self


class Internal(Section):
    """The ports of supervisor, targets, drafters and coordinators for each other: mutual TLS, beside the service's secret."""

    cert: File
    """The certificate of every actor, for `name`, good for servers and clients (PEM). May be exchanged at any time."""

    key: File
    """Its key, not encrypted (PEM)."""

    ca: File
    """The authority that actors trust (PEM); one that vouches for this service only, since any of its certificates will do."""

    name: str = Field(default="outrider.internal", min_length=1, max_length=253)
    """The DNS name in the certificate. All have the same, as addresses of actors are not known beforehand."""

    @property
    def tls(self) -> TlsFiles:
        """The files."""
        return TlsFiles(cert=self.cert, key=self.key, ca=self.ca, name=self.name)


class Security(Section):
    """Certificates and tokens of a service's gRPC ports."""

    public: Public | None = None
    """The port that clients reach. None: plain connections, and no tokens."""

    internal: Internal | None = None
    """The ports that actors reach. None: plain connections."""
