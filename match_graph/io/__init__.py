"""Files and folders: written beside and renamed, checked, and read within limits."""

from match_graph.io.beside import (
    beside,
    find_errno,
    finish,
    remove_dead,
    remove_leftovers,
    write_text_beside,
)
from match_graph.io.escape import SafeConsole, escape_controls, escape_formulas
from match_graph.io.manifest import (
    Digest,
    changing,
    check_regular,
    compute_digest,
    find_damage,
    list_digests,
    parse_json,
    read_bytes,
    read_manifest,
    write_manifest,
)
from match_graph.io.names import check_file_name, check_inner_path
from match_graph.io.progress import Reporter
from match_graph.io.yaml import dump_yaml, parse_yaml, read_yaml

__all__ = [
    "Digest",
    "Reporter",
    "SafeConsole",
    "beside",
    "changing",
    "check_file_name",
    "check_inner_path",
    "check_regular",
    "compute_digest",
    "dump_yaml",
    "escape_controls",
    "escape_formulas",
    "find_damage",
    "find_errno",
    "finish",
    "list_digests",
    "parse_json",
    "parse_yaml",
    "read_bytes",
    "read_manifest",
    "read_yaml",
    "remove_dead",
    "remove_leftovers",
    "write_manifest",
    "write_text_beside",
]
