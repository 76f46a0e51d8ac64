"""The package index of a Debian machine: fetched by its own apt, parsed stanza by stanza.

Source of the format: deb822(5) and https://wiki.debian.org/DebianRepository/Format.

python-debian, which parses the same in 4 s, is no dependency: it is under the GPL, gives no line
numbers, and skips malformed lines.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from match_graph.errors import CorpusError
from match_graph.io.beside import beside
from match_graph.io.json_lines import Fail, decode_line
from match_graph.io.source import max_record_bytes, too_long

PACKAGES, DESCRIPTIONS = "Packages", "Translation-en"

_ALTERNATIVE = "mend that, or take the data set 'synthetic' or a folder in the MATCH format"
_COMMANDS = ("apt-get", "apt-config")
#: Matches suites and code names of updates, such as bookworm-security and buster/updates.
_is_update = re.compile(
    r"\S(-(security|updates|proposed|proposed-updates|backports|backports-sloppy)|/updates)(\s|$)"
).search
_TIMEOUT = 600  # seconds for one command; a stalled connection is given up after 30

# Read after the machine's own configuration, whose sources, keys and proxies stay in force. Only
# packages and descriptions are fetched; no hook runs; a source that fails is an error. Downloads
# run as the caller, since apt's own user may have no access to the folder.
_CONFIGURATION = """
#clear Acquire::IndexTargets;
#clear Acquire::Languages;
#clear APT::Architectures;
#clear APT::Update;
Acquire::IndexTargets::deb::Packages {
  MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
  flatMetaKey "Packages";
  ShortDescription "Packages";
  Description "$(RELEASE)/$(COMPONENT) $(ARCHITECTURE) Packages";
  flatDescription "$(RELEASE) Packages";
  Optional "0";
};
Acquire::IndexTargets::deb::Translations {
  MetaKey "$(COMPONENT)/i18n/Translation-$(LANGUAGE)";
  flatMetaKey "$(LANGUAGE)";
  ShortDescription "Translation-$(LANGUAGE)";
  Description "$(RELEASE)/$(COMPONENT) Translation-$(LANGUAGE)";
  flatDescription "$(RELEASE) Translation-$(LANGUAGE)";
};
Acquire::Languages "en";
Acquire::GzipIndexes "false";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
APT::Default-Release "";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "lists/";
"""


def fetch_index(folder: Path) -> None:
    """Writes the stanzas and the English descriptions of releases into a folder.

    A release changes at point releases only. Updates, security updates and backports, which change
    from day to day, are left out.

    Needs no privileges and changes nothing outside the folder: apt's state lies below it and is
    removed at the end, or by the next call if the process is killed. Both files are written
    atomically.

    Raises:
        CorpusError: apt is missing or fails, or no package of its sources has a tag.
    """
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise CorpusError(
            f"The package index is read by apt, but there is no {' and no '.join(missing)} on "
            f"PATH (this may be no Debian system); {_ALTERNATIVE}."
        )
    with beside(folder.resolve() / "apt") as place:
        for name in ("state/lists/partial", "cache/archives/partial"):
            (place / name).mkdir(parents=True)
        (place / "status").touch()
        (place / "apt.conf").write_text(_CONFIGURATION, encoding="utf-8")
        _write_index(place)
        if not _has_tags(place / PACKAGES):
            raise no_tags("the sources of this machine's apt")
        (place / DESCRIPTIONS).replace(folder / DESCRIPTIONS)
        (place / PACKAGES).replace(folder / PACKAGES)


def _write_index(folder: Path) -> None:
    """Runs apt with a private state, and concatenates its indices into two files there."""
    native = _run(["apt-config", "dump", "--format", "%v%n", "APT::Architecture"]).strip()
    options = [f"--config-file={folder / 'apt.conf'}"]
    for key, value in (
        ("Dir::State", folder / "state"),
        ("Dir::State::status", folder / "status"),
        ("Dir::Cache", folder / "cache"),
        ("APT::Architectures::", native),
    ):
        options += ["-o", f"{key}={value}"]
    _run(["apt-get", *options, "-q", "update"])
    listing = ["--format", "$(CREATED_BY)\t$(RELEASE) $(SUITE) $(CODENAME)\t$(FILENAME)"]
    targets = _run(["apt-get", *options, "indextargets", *listing]).splitlines()
    for made_by, name in (("Packages", PACKAGES), ("Translations", DESCRIPTIONS)):
        with (folder / name).open("wb") as file:
            for target in targets:
                created_by, release, path = target.split("\t", 2)
                if created_by == made_by and not _is_update(release):
                    with Path(path).open("rb") as part:
                        shutil.copyfileobj(part, file)
                    file.write(b"\n")


def _run(command: list[str]) -> str:
    """Standard output of an apt command; an error has apt's own message."""
    name = command[0]
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands of apt, no shell
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _apt_error(f"{name} did not end within {_TIMEOUT} s") from error
    except OSError as error:
        raise _apt_error(f"{name} cannot be run ({error})") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line.startswith("E:")] or [*lines, "no message"]
        reason = lines[0].removeprefix("E:").strip()
        raise _apt_error(f"{name} ended with code {done.returncode} ({reason})")
    return done.stdout.decode("utf-8", "replace")


def _apt_error(found: str) -> CorpusError:
    return CorpusError(
        f"The package index must be fetched by apt, but {found}; this needs a network and sources "
        f"that can be reached: {_ALTERNATIVE}."
    )


def no_tags(where: str) -> CorpusError:
    """Error for an index without tags."""
    return CorpusError(
        f"The package index must hold tags (the field 'Tag', which Debian's main archive has), but "
        f"{where} gave none; {_ALTERNATIVE}."
    )


def _has_tags(path: Path) -> bool:
    with path.open("rb") as file:
        return any(line.startswith(b"Tag:") for line in file)


def read_stanzas(
    lines: Iterable[bytes], name: str, fail: Fail
) -> Iterator[tuple[str, dict[str, str]]]:
    """(file:line of its first line, fields) per stanza without a fault; field names in lower case.

    Continuation lines are joined by line breaks, without their leading space or tab.

    Args:
        lines: Lines of the index: stanzas of ``Name: value`` lines between blank lines.
        name: Name of the file, for places.
        fail: Callback that takes a fault of a line with its place.
    """
    start, size, most, is_faulty = 0, 0, max_record_bytes(), False
    fields, last = dict[str, list[str]](), ""
    for number, raw in enumerate(lines, start=1):
        line = decode_line(raw, f"{name}:{number}", fail)
        if line is None:
            is_faulty = True
            continue
        line = line.rstrip("\r\n")
        if not line.strip():
            if fields and not is_faulty:
                yield f"{name}:{start}", _join_lines(fields)
            fields, last, size, is_faulty = {}, "", 0, False
            continue
        start, size = start if fields else number, size + len(raw)
        if size > most:
            raise too_long(f"{name}:{start}", "a stanza")
        key, colon, value = line.partition(":")
        if line[0] in " \t" and last:
            fields[last].append(line[1:])
        elif line[0] not in " \t" and colon:
            last = key.lower()
            fields[last] = [value.strip()]
        else:
            is_faulty = True
            fail(
                f"{name}:{number}: a line must be 'Name: value', or go on with the one above after "
                f"a space, found '{line[:60]}'; fetch the file again."
            )
    if fields and not is_faulty:
        yield f"{name}:{start}", _join_lines(fields)


def _join_lines(fields: dict[str, list[str]]) -> dict[str, str]:
    return {key: "\n".join(lines) for key, lines in fields.items()}
