"""The admin file: what is written can be read, and nothing else can."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.tls import TlsFiles
from outrider.cluster.supervise.admin_file import Admin, BadAdminFile, read, written


@pytest.mark.parametrize("tls", [None, TlsFiles(cert="/c", key="/k", ca="/a", name="n")])
def test_what_is_written_is_read(tmp_path: Path, tls: TlsFiles | None) -> None:
    """With certificates and without; only by its owner, and only while the service runs."""
    file = tmp_path / "admin"
    admin = Admin(address="127.0.0.1:1", credentials=Credentials.fresh(tls))
    with written(file, admin):
        assert read(file) == admin
        assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(BadAdminFile):
        read(file)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"address": "a"}', '{"address": "a", "secret": "s", "tls": {"x": 1}}']
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    """Whatever they hold."""
    file = tmp_path / "admin"
    file.write_text(text)
    with pytest.raises(BadAdminFile):
        read(file)


def test_what_never_ends_is_refused() -> None:
    """A device at the path of the file."""
    with pytest.raises(BadAdminFile, match="cannot read /dev/zero: it is no ordinary file"):
        read(Path("/dev/zero"))
