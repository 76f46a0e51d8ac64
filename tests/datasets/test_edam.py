"""EDAM in forms of RDF/XML that its releases do not have."""

from pathlib import Path

import pytest

from match_graph.datasets.edam import EdamClass, read_edam
from match_graph.errors import CorpusError
from match_graph.io.source import open_sources

EDAM = "http://edamontology.org/"


def read(path: Path, content: str, base: str = "") -> dict[str, EdamClass]:
    """Classes of an ontology with a base."""
    path.write_text(
        f'<rdf:RDF {base} xmlns:owl="http://www.w3.org/2002/07/owl#"\n'
        'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"\n'
        f'xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#">\n{content}</rdf:RDF>\n'
    )
    with open_sources([path], "biotools", None) as sources:
        return read_edam(path, sources)


@pytest.mark.parametrize("base", [EDAM, "http://edamontology.org", f"{EDAM}EDAM.owl#"])
def test_read_edam_relative_to_the_base(tmp_path: Path, base: str) -> None:
    """Relative identifiers are resolved against the base, absolute ones stay."""
    content = (
        '<owl:Class rdf:about="topic_1"/>\n'
        f'<owl:Class rdf:about="{EDAM}topic_2"><rdfs:subClassOf rdf:resource="topic_1"/>'
        "</owl:Class>\n"
        '<owl:Class rdf:about="/topic_3"><rdfs:subClassOf><owl:Class rdf:about="topic_2"/>'
        "</rdfs:subClassOf></owl:Class>\n"
        '<owl:Class rdf:about="http://[/x"/>\n'
    )
    assert read(tmp_path / "EDAM.owl", content, f'xml:base="{base}"') == {
        "topic_1": EdamClass("", []),
        "topic_2": EdamClass("", ["topic_1"]),
        "topic_3": EdamClass("", ["topic_2"]),
    }


def test_read_edam_bases_within_the_file(tmp_path: Path) -> None:
    """The nearest base is used, resolved against its parent's; rdf:ID is a fragment of it."""
    content = (
        '<owl:Class xml:base="/" rdf:about="topic_1">'
        '<rdfs:subClassOf xml:base="x" rdf:resource="#a"/></owl:Class>\n'
        f'<owl:Class xml:base="{EDAM}x" rdf:ID="a"/>\n'
        '<owl:Class rdf:ID="of_another_ontology"/>\n'
    )
    base = 'xml:base="http://edamontology.org/releases/"'
    assert read(tmp_path / "EDAM.owl", content, base) == {
        "topic_1": EdamClass("", ["x#a"]),
        "x#a": EdamClass("", []),
        "releases/#of_another_ontology": EdamClass("", []),
    }


def test_read_edam_relative_without_a_base(tmp_path: Path) -> None:
    """Without a base relative identifiers are no classes of EDAM."""
    with pytest.raises(CorpusError) as caught:
        read(tmp_path / "EDAM.owl", '<owl:Class rdf:about="topic_1"/><owl:Class rdf:ID="a"/>')
    assert str(caught.value) == (
        "EDAM.owl: the ontology must hold classes of EDAM, found none; check it."
    )
