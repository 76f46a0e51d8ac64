"""EDAM, the ontology of bioinformatics, as OWL in RDF/XML: names and parents of its classes.

Source: https://github.com/edamontology/edamontology, folder ``releases``.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring

from match_graph.errors import CorpusError
from match_graph.io.source import Sources
from match_graph.io.xml import reading_xml

PREFIX = "http://edamontology.org/"

_OWL = "{http://www.w3.org/2002/07/owl#}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_RDFS = "{http://www.w3.org/2000/01/rdf-schema#}"
_XML = "{http://www.w3.org/XML/1998/namespace}"


class EdamClass(NamedTuple):
    """Class of the ontology.

    Args:
        name: Label; empty without one.
        parents: Ids of its direct superclasses.
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
            declares entities, holds no class of EDAM, or a class has an undefined superclass.
    """
    name, content = path.name, sources.read_whole(path, "an ontology")
    with reading_xml(name):
        root: Element = fromstring(content)
    base, classes = _find_base(root, ""), dict[str, EdamClass]()
    for element in root:
        if _is_class(element) and (found := _read_id(element, base)):
            known = classes.get(found, EdamClass("", []))
            more = _read_class(element, _find_base(element, base))
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


def _read_class(element: Element, base: str) -> EdamClass:
    """Name and parents, without those that are no class of EDAM, such as restrictions."""
    above = []
    for parent in element.iterfind(f"{_RDFS}subClassOf"):
        own = _find_base(parent, base)
        above.append(_resolve(parent.get(f"{_RDF}resource"), own))
        above += [_read_id(one, own) for one in parent.iterfind(f"{_OWL}Class")]
    names = sorted(element.iterfind(f"{_RDFS}label"), key=_is_foreign)
    name = " ".join((names[0].text or "").split()) if names else ""
    return EdamClass(name, list(dict.fromkeys(parent for parent in above if parent)))


def _is_class(element: Element) -> bool:
    """True for an ``owl:Class`` element, or another with ``rdf:type`` ``owl:Class``."""
    types = (one.get(f"{_RDF}resource") for one in element.iterfind(f"{_RDF}type"))
    return element.tag == f"{_OWL}Class" or f"{_OWL[1:-1]}Class" in types


def _is_foreign(label: Element) -> bool:
    language = label.get(f"{_XML}lang", "en")
    return language.partition("-")[0].lower() not in ("en", "")


def _find_base(element: Element, above: str) -> str:
    """Base URI of an element: its ``xml:base``, resolved against that of its parent."""
    return _join(above, element.get(f"{_XML}base", ""))


def _read_id(element: Element, base: str) -> str:
    """EDAM id of the class that an element defines; empty if it is not of EDAM."""
    uri, fragment = element.get(f"{_RDF}about"), element.get(f"{_RDF}ID")
    uri = f"#{fragment}" if uri is None and fragment is not None else uri
    return _resolve(uri, _find_base(element, base))


def _resolve(uri: str | None, base: str) -> str:
    """EDAM id that a URI reference resolves to; empty if it is not of EDAM."""
    full = "" if uri is None else _join(base, uri)
    return full.removeprefix(PREFIX) if full.startswith(PREFIX) else ""


def _join(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError:  # such as "http://[", which is none of EDAM's
        return uri
