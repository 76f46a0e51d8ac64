"""Every registered encoder keeps the contract."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.corpus import Corpus
from match_graph.graph import (
    BuiltGraph,
    EgoBatch,
    EgoGraphs,
    EgoLoader,
    EgoSampler,
    TokenSpace,
    build_graph,
)
from match_graph.nn import ENCODERS, Encoder, EncoderOutput, TokenEmbedding
from match_graph.testing import assert_encoder
from match_graph.typing import TAGGED

LEAK = ("document", "reveals", "label")

#: Three hops along every edge type.
WIDE = {
    **{name: [3, 2, 2] for name in ("metadata", "words", "cites", "cited_by")},
    **{name: [0, 2, 2] for name in ("metadata_documents", "word_documents")},
}

#: Arguments of `assert_encoder` for each registered encoder, small to be fast.
CASES: dict[str, list[dict[str, Any]]] = {
    "attention_xml": [
        {"config": {"hidden_channels": 5}},
        {"config": {"hidden_channels": 3, "num_layers": 2, "metadata": True}, "channels": 7},
    ],
    "bert_xml": [
        {"config": {"num_cls": 2, "num_layers": 1, "hidden_channels": 8, "max_positions": 3}},
        {"config": {"num_cls": 1, "num_heads": 1, "metadata": True}, "channels": 7},
    ],
    "match": [
        {"config": {"num_cls": 2, "num_layers": 2, "position_channels": 4}},
        {"config": {"num_cls": 1, "num_layers": 1, "num_heads": 1}, "channels": 7},
    ],
    "mesh_probe_net": [
        {"config": {"rnn": "gru", "hidden_channels": 5, "num_probes": 2, "num_layers": 2}},
        {"config": {"hidden_channels": 4, "num_probes": 1, "metadata": True}, "channels": 7},
    ],
    "star_transformer": [
        {"config": {"num_cycles": 1, "num_heads": 3}},
        {"config": {"num_cycles": 3, "num_heads": 1, "metadata": True}, "channels": 7},
    ],
    "transformer": [
        {"config": {"num_layers": 1, "num_heads": 3, "hidden_channels": 5}},
        {"config": {"num_heads": 1, "metadata": True}, "channels": 7},
    ],
    "xml_cnn": [
        {"config": {"widths": [1, 3], "num_filters": 4, "num_chunks": 2, "bottleneck": 6}},
        {"config": {"widths": [5], "num_chunks": 3, "metadata": True}, "channels": 7},
    ],
    "hgt": [{"config": {"num_layers": 1, "channels": 6, "num_heads": 2}}],
    "hetero_sage": [{"config": {"num_layers": 3, "channels": 5, "neighborhood": WIDE}}],
    "rgcn": [{"config": {"num_layers": 1, "channels": 4, "num_bases": 2}, "channels": 7}],
    "pyg_conv": [
        {"config": {"num_layers": 1, "channels": 6, "conv_config": {"heads": 2}}, "channels": 7}
    ],
    "match_hetero": [
        {"config": {"num_cls": 2, "num_layers": 1, "position_channels": 4, "graph_channels": 6}},
        {
            "config": {
                "num_cls": 1,
                "num_layers": 1,
                "num_heads": 1,
                "graph_layers": 1,
                "neighborhood": {"words": [0], "word_documents": [0], "metadata": [-1]},
            }
        },
    ],
}
#: What has no default checkpoint, to be downloaded unasked; its own test runs `assert_encoder`.
ELSEWHERE = {"language_model": "test_language_model.py"}


def test_ENCODERS_every_registered_encoder_is_tested() -> None:
    """Fails when an encoder is registered and not named above."""
    assert set(CASES) | set(ELSEWHERE) == set(ENCODERS)
    assert all(CASES.values())
    for name in ELSEWHERE.values():
        assert "assert_encoder(" in (Path(__file__).parent / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_ENCODERS_registered_encoders_keep_the_contract(
    name: str, arguments: dict[str, Any]
) -> None:
    """Shapes, independence, gradients, reset, saving; see `assert_encoder`."""
    assert_encoder(ENCODERS[name], **arguments)


@pytest.mark.parametrize("name", sorted(CASES))
def test_ENCODERS_registered_encoders_have_defaults(name: str) -> None:
    """A name alone is enough: every setting has a default."""
    assert_encoder(ENCODERS[name])


def make_batch(built: BuiltGraph, space: TokenSpace, encoder: Encoder) -> EgoBatch:
    """The twelve documents as an encoder takes them."""
    neighborhood = encoder.neighborhood(encoder.config)
    loader = EgoLoader(
        built.data, EgoSampler(built.data), space, torch.arange(12), batch_size=12,
        with_graph="graph" in encoder.needs,
        graphs=None if neighborhood is None else EgoGraphs(built.data, neighborhood, space),
    )  # fmt: skip
    (batch,) = loader
    return batch


def get_states(output: EncoderOutput) -> Tensor:
    """States of documents, or of tokens where the encoder gives these."""
    states = output.document if output.document is not None else output.states
    assert states is not None
    return states


def plant_labels(built: BuiltGraph, seed: int) -> HeteroData:
    """A copy where labels, drawn anew by a seed, have edges from and to all other nodes."""
    data = built.data.clone()
    num_labels = int(data["label"].num_nodes)
    generator = torch.Generator().manual_seed(seed)
    data[TAGGED].edge_index = torch.empty(2, 0, dtype=torch.int64)
    for name in data.node_types:
        label = torch.randint(num_labels, (int(data[name].num_nodes),), generator=generator)
        edge_index = torch.stack([torch.arange(label.numel()), label])
        data[name, "reveals", "label"].edge_index = edge_index
        data["label", "marks", name].edge_index = edge_index.flip(0)
    return data


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(CASES))
def test_ENCODERS_drop_at_their_own_rate_in_training(name: str, toy_graph: BuiltGraph) -> None:
    """Two passes differ by it, at the rate 0 they do not; nothing is dropped in evaluation."""
    encoder_cls, space = ENCODERS[name], TokenSpace.from_data(toy_graph.data)
    for rate, differs in ((0.5, True), (0.0, False)):
        torch.manual_seed(0)
        config = encoder_cls.Config.model_validate({"dropout": rate})
        encoder = encoder_cls(TokenEmbedding(space, 12), config)
        batch = make_batch(toy_graph, space, encoder)
        first, second = (get_states(encoder.train()(batch)) for _ in range(2))
        assert torch.equal(first, second) != differs
        evaluated = get_states(encoder.eval()(batch))
        assert torch.equal(evaluated, get_states(encoder(batch)))
        assert torch.allclose(evaluated, first, atol=1e-6) != differs


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(CASES))
def test_TokenEmbedding_no_planted_label_reaches_an_encoder(
    name: str, toy: Corpus, toy_graph: BuiltGraph
) -> None:
    """States are the same to the bit whatever label edges lie in the graph, also where they are
    the only difference between two documents.
    """
    encoder_cls = ENCODERS[name]
    config = encoder_cls.Config()
    neighborhood = encoder_cls.neighborhood(config)
    space = TokenSpace.from_data(toy_graph.data)
    torch.manual_seed(0)
    encoder = encoder_cls(TokenEmbedding(space, 12), config).eval()
    states = []
    for seed in (1, 2):
        data = plant_labels(toy_graph, seed)
        assert not torch.equal(data[LEAK].edge_index, plant_labels(toy_graph, 3)[LEAK].edge_index)
        loader = EgoLoader(
            data, EgoSampler(data), space, torch.arange(12), batch_size=12,
            with_graph="graph" in encoder.needs,
            graphs=None if neighborhood is None else EgoGraphs(data, neighborhood, space),
            texts=toy.documents["text"].tolist() if "text" in encoder.needs else None,
        )  # fmt: skip
        (batch,) = loader
        output = encoder(batch)
        states.append(get_states(output))
    assert torch.equal(states[0], states[1])


#: Names of metadata fields that are attributes of torch's modules and dictionaries, or that are
#: torn apart where PyG joins names by underscores.
ODD_FIELDS = (
    "type", "keys", "values", "items", "update", "to", "forward", "training", "pop", "clear",
    "name_", "_name", "x_", "module",
)  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(CASES))
def test_TokenEmbedding_encoders_take_fields_of_any_name(name: str, toy: Corpus) -> None:
    """Every registered encoder, with fields that PyG or torch would take for something else."""
    instances = {"word": toy.instances["word"], "label": toy.instances["label"]}
    edges = {"word": toy.edges["word"], "label": toy.edges["label"]}
    instances = dict.fromkeys(ODD_FIELDS, toy.instances["author"]) | instances
    edges = dict.fromkeys(ODD_FIELDS, toy.edges["author"]) | edges
    built = build_graph(Corpus("odd", toy.documents, instances, edges, toy.hierarchy))
    space, encoder_cls = TokenSpace.from_data(built.data, 1, 1), ENCODERS[name]
    encoder = encoder_cls(TokenEmbedding(space, 12), encoder_cls.Config()).eval()
    assert get_states(encoder(make_batch(built, space, encoder))).isfinite().all()
    encoder.load_state_dict(encoder.state_dict())
