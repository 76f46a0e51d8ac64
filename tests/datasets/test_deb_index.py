"""The package index: stanzas, and fetching with an apt of shell scripts."""

from pathlib import Path

import pytest

from match_graph.datasets import DebTags, deb_index
from match_graph.datasets.deb_index import fetch_index, read_stanzas
from match_graph.errors import CorpusError

PACKAGES = "Package: moss\nDescription-md5: m1\nTag: use::growing\nSection: garden\n"
DESCRIPTIONS = "Package: moss\nDescription-md5: m1\nDescription-en: grows on stones\n"
END = "mend that, or take the data set 'synthetic' or a folder in the MATCH format."
COMMANDS = {
    "apt-config": "echo amd64",
    "apt-get": 'case "$*" in *update) {update};; *) {targets};; esac',
}
#: Index targets of a release, of its updates and of another archive, as the project asks for them.
TARGETS = """printf '%s\\t%s\\t%s\\n' \\
Packages "kali-rolling kali-rolling kali-rolling" "$HERE/found" \\
Translations "bookworm oldstable bookworm" "$HERE/found-en" \\
Packages "bookworm-security oldstable-security bookworm-security" /no/such/file \\
Packages "buster/updates oldstable buster" /no/such/file \\
Packages "jammy-updates jammy-updates jammy" /no/such/file \\
Packages "sid-backports-sloppy" /no/such/file \\
Translations "x stable-proposed-updates" /no/such/file"""


def list_files(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def fake_apt(
    folder: Path,
    monkeypatch,
    update: str = ":",
    targets: str = TARGETS,
    packages: str = PACKAGES,
    **commands: str,
) -> None:
    """Puts an apt of shell scripts alone on PATH."""
    folder.mkdir()
    (folder / "found").write_text(packages, encoding="utf-8")
    (folder / "found-en").write_text(DESCRIPTIONS, encoding="utf-8")
    for name, script in {**COMMANDS, **commands}.items():
        path = folder / name
        line = script.replace("{update}", update).replace("{targets}", targets)
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HERE", str(folder))


def test_read_stanzas_folds_lines_and_names_lines():
    content = b"\n\nA: 1\nB:\n x\n\ty\n \t\nC : 3\nno field\n\n continued\nD: \xe9\nE: 5\n\nF: 6"
    faults: list[str] = []
    assert list(read_stanzas(content.split(b"\n"), "Packages", faults.append)) == [
        ("Packages:3", {"a": "1", "b": "\nx\ny"}),
        ("Packages:15", {"f": "6"}),  # those between have faults
    ]
    rule = "a line must be 'Name: value', or go on with the one above after a space"
    assert faults == [
        f"Packages:9: {rule}, found 'no field'; fetch the file again.",
        f"Packages:11: {rule}, found ' continued'; fetch the file again.",
        "Packages:12: the file must be UTF-8, but byte 3 of the line is 0xe9; convert the file.",
    ]


def test_fetch_index_keeps_releases_without_their_updates(tmp_path, monkeypatch):
    """Indices of updates are left out."""
    fake_apt(tmp_path / "bin", monkeypatch)
    fetch_index(tmp_path)
    assert (tmp_path / "Packages").read_text() == PACKAGES + "\n"
    assert (tmp_path / "Translation-en").read_text() == DESCRIPTIONS + "\n"


def test_fetch_index_apt_works_on_private_state_without_hooks(tmp_path, monkeypatch):
    write = '/bin/cat "${1#--config-file=}" >"$HERE/conf"; echo "$*" >"$HERE/options"'
    fake_apt(tmp_path / "bin", monkeypatch, update=write)
    folder = tmp_path / "raw"
    folder.mkdir()
    fetch_index(folder)
    options = (tmp_path / "bin" / "options").read_text().split(" -o ")
    state = [option.partition("=") for option in options if option.startswith("Dir::")]
    assert [key for key, _, _ in state] == ["Dir::State", "Dir::State::status", "Dir::Cache"]
    assert all(value.startswith(f"{folder}/.apt.") for _, _, value in state)
    assert options[-1].split() == ["APT::Architectures::=amd64", "-q", "update"]
    configuration = (tmp_path / "bin" / "conf").read_text()
    for line in ("#clear APT::Update;", 'Acquire::http::Timeout "30";', 'Languages "en";'):
        assert line in configuration
    assert list_files(folder) == ["Packages", "Translation-en"]


def test_DebTags_no_apt(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError) as caught:
        DebTags(root=tmp_path)
    assert str(caught.value) == (
        f"The package index is read by apt, but there is no apt-get and no apt-config on "
        f"PATH (this may be no Debian system); {END}"
    )


@pytest.mark.parametrize(
    ("commands", "found"),
    [
        (
            {"update": "echo W: old >&2; echo E: no route to host >&2; exit 100"},
            "apt-get ended with code 100 (no route to host)",
        ),
        ({"update": "exit 3"}, "apt-get ended with code 3 (no message)"),
        ({"targets": "echo broken >&2; exit 1"}, "apt-get ended with code 1 (broken)"),
        ({"update": "exec /bin/sleep 9"}, "apt-get did not end within 1 s"),
    ],
)
def test_deb_index_failed_apt(tmp_path, monkeypatch, commands, found):
    fake_apt(tmp_path / "bin", monkeypatch, **commands)
    if "within" in found:
        monkeypatch.setattr(deb_index, "_TIMEOUT", 1)
    with pytest.raises(CorpusError) as caught:
        DebTags(root=tmp_path / "root")
    assert str(caught.value) == (
        f"The package index must be fetched by apt, but {found}; this needs a network and sources "
        f"that can be reached: {END}"
    )
    assert list_files(tmp_path / "root" / "raw" / "debtags") == []


def test_apt_that_cannot_be_run(tmp_path, monkeypatch):
    fake_apt(tmp_path / "bin", monkeypatch)
    (tmp_path / "bin" / "apt-config").write_text("#!/no/such/shell\n")
    with pytest.raises(CorpusError, match=r"but apt-config cannot be run \(.*No such file"):
        fetch_index(tmp_path)


def test_DebTags_sources_without_tags_leave_nothing_behind(tmp_path, monkeypatch):
    fake_apt(tmp_path / "bin", monkeypatch, packages="Package: fern\nSection: garden\n")
    with pytest.raises(CorpusError, match=r"but the sources of this machine's apt gave none; mend"):
        DebTags(root=tmp_path / "root")
    assert list_files(tmp_path / "root" / "raw" / "debtags") == []
