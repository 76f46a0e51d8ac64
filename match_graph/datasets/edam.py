"""EDAM, the ontology of bioinformatics, as OWL in RDF/XML: names and parents of its classes.

Source: https://github.com/edamontology/edamontology, folder ``releases``.
"""

from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring

from match_graph.errors import CorpusError
from match_graph.io.source import Sources
from match_graph.io.xml import reading_xml

PREFIX = "http://edamontology.org/"

_OWL = "{http://www.w3.org/2002/07/owl#}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_RDFS = "{http://www.w3.org/2000/01/rdf-schema#}"


class EdamClass(NamedTuple):
    """Class of the ontology.

    Args:
        name: Label; empty without one.
        parents: Ids of the classes right above it.
    """

    name: str
    parents: list[str]


def read_edam(path: Path, sources: Sources) -> dict[str, EdamClass]:
    """Classes by id, such as ``topic_0091``.

    Args:
        path: Path of the OWL file, packed where it ends in ``.gz``.
        sources: Opener of files.

    Raises:
        CorpusError: It cannot be read or unpacked, is larger than `max_record_bytes`, is no XML,
            declares entities, holds no class of EDAM, or a class below one that is not there.
    """
    name, content = path.name, sources.read_whole(path, "an ontology")
    with reading_xml(name):
        root: Element = fromstring(content)
    classes: dict[str, EdamClass] = {}
    for element in root:
        if _is_class(element) and (found := _read_id(element.get(f"{_RDF}about"))):
            known = classes.get(found, EdamClass("", []))
            more = _read_class(element)
            classes[found] = EdamClass(
                known.name or more.name, [*dict.fromkeys(known.parents + more.parents)]
            )
    if not classes:
        raise CorpusError(f"{name}: the ontology must hold classes of EDAM, found none; check it.")
    for child, (_, parents) in classes.items():
        missing = [parent for parent in parents if parent not in classes]
        if missing:
            raise CorpusError(
                f"{name}: class '{child}' must lie below classes of the file, but '{missing[0]}' "
                f"is none; fetch the file again."
            )
    return classes


def _read_class(element: Element) -> EdamClass:
    """Name and parents; restrictions, which have no id, and obsolescence are no parents."""
    above = []
    for parent in element.iterfind(f"{_RDFS}subClassOf"):
        above.append(_read_id(parent.get(f"{_RDF}resource")))
        above += [_read_id(one.get(f"{_RDF}about")) for one in parent.iterfind(f"{_OWL}Class")]
    names = sorted(element.iterfind(f"{_RDFS}label"), key=_is_foreign)
    name = " ".join((names[0].text or "").split()) if names else ""
    return EdamClass(name, list(dict.fromkeys(parent for parent in above if parent)))


def _is_class(element: Element) -> bool:
    """True for an ``owl:Class`` element, or another with ``rdf:type`` ``owl:Class``."""
    types = (one.get(f"{_RDF}resource") for one in element.iterfind(f"{_RDF}type"))
    return element.tag == f"{_OWL}Class" or f"{_OWL[1:-1]}Class" in types


def _is_foreign(label: Element) -> bool:
    language = label.get("{http://www.w3.org/XML/1998/namespace}lang", "en")
    return language.partition("-")[0].lower() not in ("en", "")


def _read_id(uri: str | None) -> str:
    """Id of a class of EDAM; empty for any other."""
    return uri.removeprefix(PREFIX) if uri and uri.startswith(PREFIX) else ""
