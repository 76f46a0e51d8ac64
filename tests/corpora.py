"""Tables of a corpus as lists, for tests that compare them."""

from match_graph.corpus import Corpus


def list_instances(corpus: Corpus, node_type: str) -> list[list[str]]:
    """Ids of the instances of a type by document, in the document's order."""
    ids = corpus.instances[node_type]["id"].tolist()
    lists: list[list[str]] = [[] for _ in range(corpus.num_documents)]
    for document, instance in corpus.edges[node_type].itertuples(index=False):
        lists[document].append(ids[instance])
    return lists


def map_instances(corpus: Corpus, node_type: str) -> dict[str, list[str]]:
    """`list_instances` by the ids of the documents."""
    return dict(zip(corpus.documents["id"], list_instances(corpus, node_type), strict=True))
