"""`TokenEmbedding`: pre-trained vectors, scale, hidden tokens, features of nodes."""

import math

import pytest
import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph import EgoBatch, NodeFeatures, TokenSpace
from match_graph.nn import TokenEmbedding
from match_graph.nn.embedding import FeatureInput

# ids: [PAD] 0, [UNK] 1 to 3, venues 4 to 6, authors none, words 7 to 10
SPACE = TokenSpace(("venue", "author", "word"), (3, 0, 4))
CHANNELS = 5


def unit_vectors(number: int, seed: int, channels: int = CHANNELS) -> Tensor:
    vectors = torch.randn(number, channels, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(vectors, dim=1)


def numbered() -> TokenEmbedding:
    """Every channel of a row holds its id, before the scale."""
    embedding = TokenEmbedding(SPACE, CHANNELS)
    with torch.no_grad():
        embedding.weight.copy_(torch.arange(11.0).unsqueeze(1).expand(11, CHANNELS))
    return embedding


def embed(embedding: TokenEmbedding, token_id: Tensor, field: Tensor) -> Tensor:
    """Vectors of the tokens of one document."""
    ptr = torch.tensor([0, len(token_id)])
    zeros = torch.zeros_like(token_id)
    return embedding(EgoBatch(torch.tensor([0]), token_id, field, zeros, ptr))


def shown_ids(embedding: TokenEmbedding, token_id: Tensor, field: Tensor) -> Tensor:
    embedded = embed(embedding, token_id, field)
    return (embedded[:, 0] / math.sqrt(CHANNELS)).round().long()


def test_TokenEmbedding_layer_starts_from_the_pretrained_vectors() -> None:
    """Kept rows are the vectors exactly, [UNK] is their mean; surplus vectors are left out."""
    embedding = TokenEmbedding(SPACE, CHANNELS)
    venue, word = unit_vectors(6, seed=1), unit_vectors(4, seed=2)
    loaded = embedding.load_vectors({"word": word, "venue": venue})
    assert loaded == {"venue": 3, "word": 4}
    assert torch.equal(embedding.weight[4:7], venue[:3])
    assert torch.equal(embedding.weight[7:11], word)
    assert torch.equal(embedding.weight[1], venue[:3].mean(dim=0))
    assert torch.equal(embedding.weight[3], word.mean(dim=0))
    embedded = embed(embedding, torch.tensor([4, 8]), torch.tensor([0, 2]))
    assert torch.equal(embedded, torch.stack([venue[0], word[1]]) * CHANNELS**0.5)


def test_TokenEmbedding_types_without_vectors_are_unchanged() -> None:
    """Only the given types move; [PAD] and types that are no tokens do not."""
    embedding = TokenEmbedding(SPACE, CHANNELS)
    before = embedding.weight.detach().clone()
    loaded = embedding.load_vectors({"word": unit_vectors(4, 2), "document": unit_vectors(9, 3)})
    assert loaded == {"word": 4}
    changed = (embedding.weight != before).any(dim=1).nonzero().view(-1).tolist()
    assert changed == [3, 7, 8, 9, 10]
    assert not embedding.weight[0].any()


def test_TokenEmbedding_type_without_kept_nodes_keeps_its_unk() -> None:
    """The mean of no vectors would not be a number."""
    embedding = TokenEmbedding(SPACE, CHANNELS)
    before = embedding.weight.detach().clone()
    assert embedding.load_vectors({"author": unit_vectors(7, 1)}) == {"author": 0}
    assert torch.equal(embedding.weight, before)


def test_TokenEmbedding_loaded_rows_are_trained() -> None:
    """Loading neither replaces the parameter nor stops its gradient; float64 vectors are taken."""
    embedding = TokenEmbedding(SPACE, CHANNELS)
    parameter = embedding.weight
    embedding.load_vectors({"word": unit_vectors(4, 1).double()})
    assert embedding.weight is parameter
    assert embedding.weight.dtype == torch.float32
    embed(embedding, torch.tensor([7]), torch.tensor([2])).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.any(dim=1).nonzero().view(-1).tolist() == [7]


@pytest.mark.parametrize(("number", "channels"), [(3, CHANNELS), (4, CHANNELS + 1)])
def test_TokenEmbedding_vectors_that_do_not_fit_are_an_error(number: int, channels: int) -> None:
    """Fewer than the kept nodes, and of another width."""
    embedding = TokenEmbedding(SPACE, CHANNELS)
    with pytest.raises(GraphError) as error:
        embedding.load_vectors({"word": unit_vectors(number, 1, channels)})
    assert str(error.value) == (
        f"Vectors of 'word' must be [4 or more, 5], found [{number}, {channels}]; "
        f"train them with the same settings as the model."
    )


@torch.no_grad()
def test_TokenEmbedding_rows_start_on_the_unit_sphere() -> None:
    """Uniform directions of length 1, [PAD] zero, by the seed."""
    space = TokenSpace(("word",), (2000,))
    torch.manual_seed(0)
    first = TokenEmbedding(space, 8)
    assert first.weight.shape == (space.num_tokens, 8)
    assert not first.weight[0].any()
    assert torch.allclose(first.weight[1:].norm(dim=1), torch.ones(2001))
    assert float(first.weight[1:].mean(dim=0).norm()) < 5 / math.sqrt(2001)
    second = TokenEmbedding(space, 8)
    assert not torch.equal(second.weight, first.weight)
    torch.manual_seed(0)
    second.reset_parameters()
    assert torch.equal(second.weight, first.weight)


@torch.no_grad()
def test_TokenEmbedding_scales_rows_by_the_root_of_the_width() -> None:
    """Against a loop over tokens and channels in float64."""
    embedding = TokenEmbedding(SPACE, CHANNELS).double()
    token_id, field = torch.tensor([4, 0, 10, 1, 4]), torch.tensor([0, 0, 2, 0, 0])
    embedded = embed(embedding, token_id, field)
    for row, token in enumerate(token_id.tolist()):
        for channel in range(CHANNELS):
            expected = float(embedding.weight[token, channel]) * math.sqrt(CHANNELS)
            assert float(embedded[row, channel]) == pytest.approx(expected, abs=1e-14)
    assert not embedded[1].any()


@torch.no_grad()
def test_TokenEmbedding_gives_the_rows_where_not_scaled() -> None:
    """Embedded tokens are the rows themselves unless scaled.

    What the paper puts into its Transformer: unit vectors, alone and as means.
    """
    embedding = TokenEmbedding(SPACE, CHANNELS, scaled=False)
    token_id, field = torch.tensor([4, 10, 1]), torch.tensor([0, 2, 0])
    assert torch.equal(embed(embedding, token_id, field), embedding.weight[token_id])
    mean = embedding.mean(token_id, field, torch.tensor([0, 3]))
    torch.testing.assert_close(mean[0], embedding.weight[token_id].mean(dim=0))


@torch.no_grad()
def test_TokenEmbedding_random_rows_unit_variance_per_channel() -> None:
    """What the factor is for."""
    torch.manual_seed(0)
    embedding = TokenEmbedding(TokenSpace(("word",), (3000,)), 20)
    embedded = embed(embedding, torch.arange(2, 3002), torch.zeros(3000, dtype=torch.int64))
    assert float(embedded.var()) == pytest.approx(1, abs=0.02)


def test_TokenEmbedding_token_dropout_shows_unk_of_the_same_type() -> None:
    """The right share of each type within five standard deviations, and nothing else changes."""
    torch.manual_seed(0)
    embedding = numbered()
    embedding.token_dropout = 0.3
    token_id = torch.tensor([4, 9]).repeat(20_000)
    field = torch.tensor([0, 2]).repeat(20_000)
    shown = shown_ids(embedding, token_id, field)
    hidden = shown != token_id
    assert torch.equal(shown[hidden], 1 + field[hidden])
    for number in (0, 2):
        share = float(hidden[field == number].double().mean())
        assert abs(share - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 20_000)


def test_TokenEmbedding_token_dropout_is_for_training_only() -> None:
    """Evaluation shows every token as it is."""
    embedding = numbered().eval()
    embedding.token_dropout = 0.9
    token_id = torch.arange(11).repeat(20)
    assert torch.equal(shown_ids(embedding, token_id, torch.zeros_like(token_id)), token_id)


def test_TokenEmbedding_token_dropout_trains_unk_rows() -> None:
    """Their gradient comes from hidden tokens; [PAD] gets none."""
    torch.manual_seed(0)
    embedding = TokenEmbedding(SPACE, CHANNELS, token_dropout=0.5)
    token_id, field = torch.tensor([4, 9]).repeat(50), torch.tensor([0, 2]).repeat(50)
    embed(embedding, token_id, field).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.any(dim=1).nonzero().view(-1).tolist() == [1, 3, 4, 9]


def test_TokenEmbedding_channel_dropout_acts_after_scale() -> None:
    """Channel dropout acts after the scale in training.

    Zeros at the rate in training; none in evaluation.
    """
    torch.manual_seed(0)
    embedding = TokenEmbedding(SPACE, 200, dropout=0.25)
    token_id, field = torch.full((100,), 7), torch.full((100,), 2)
    share = float((embed(embedding, token_id, field) == 0).double().mean())
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 20_000)
    assert bool((embed(embedding.eval(), token_id, field) != 0).all())


def test_TokenEmbedding_no_tokens_give_no_rows() -> None:
    """A batch may be empty."""
    empty = torch.empty(0, dtype=torch.int64)
    embedding = TokenEmbedding(SPACE, CHANNELS, dropout=0.5, token_dropout=0.5)
    assert embed(embedding, empty, empty).shape == (0, CHANNELS)


def test_TokenEmbedding_means_of_packed_lists_are_those_of_loop() -> None:
    """Embedded one by one and averaged, zero for an empty list; the same tokens are hidden."""
    embedding = TokenEmbedding(SPACE, CHANNELS, token_dropout=0.5)
    token_id = torch.tensor([4, 7, 8, 8, 1])
    field = torch.tensor([0, 2, 2, 2, 0])
    ptr = torch.tensor([0, 3, 3, 5])
    for training in (False, True):
        embedding.train(training)
        torch.manual_seed(3)
        parts = embed(embedding, token_id, field).split(ptr.diff().tolist())
        torch.manual_seed(3)
        means = embedding.mean(token_id, field, ptr)
        expected = [part.mean(dim=0) if len(part) else torch.zeros(CHANNELS) for part in parts]
        assert torch.allclose(means, torch.stack(expected), atol=1e-6)
    means.sum().backward()
    assert embedding.weight.grad is not None


@pytest.mark.parametrize("rows", [{}, {"venue": torch.randn(3, 2)}])
def test_TokenEmbedding_drops_channels_of_means_in_training(rows: dict[str, Tensor]) -> None:
    """The embedding's dropout acts on the means, also of nodes with features."""
    embedding = TokenEmbedding(SPACE, 200, dropout=0.5, features=NodeFeatures(0, rows))
    lists = torch.tensor([4, 7]), torch.tensor([0, 2]), torch.tensor([0, 2])
    assert 50 < int((embedding.mean(*lists) == 0).sum()) < 150
    assert not (embedding.eval().mean(*lists) == 0).any()


def featured(width: int = 3, dropout: float = 0.0) -> TokenEmbedding:
    """Documents and venues have features; venue 3 is not kept."""
    torch.manual_seed(0)
    rows = {"venue": torch.randn(4, 2).half(), "label": torch.randn(5, 2)}
    features = NodeFeatures(width, rows)
    return TokenEmbedding(SPACE, CHANNELS, features=features, feature_dropout=dropout)


def two_documents(x: Tensor | None) -> EgoBatch:
    """Two venues and a word; then one unknown venue."""
    token_id, field = torch.tensor([4, 6, 8, 1]), torch.tensor([0, 0, 2, 0])
    position = torch.zeros_like(field)
    return EgoBatch(torch.tensor([7, -1]), token_id, field, position, torch.tensor([0, 3, 4]), x=x)


@torch.no_grad()
def test_FeatureInput_is_a_map_of_standardized_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop in float64: one mean a feature, one deviation for all, summed by parts."""
    monkeypatch.setattr("match_graph.nn.embedding._ROWS", 16)
    x = torch.randn(70, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 4 + 9
    rows = torch.arange(0, 70, 2)
    module = FeatureInput(3, CHANNELS, scale=2.0, dropout=0.0).double()
    module.linear.bias.normal_()
    module.set_moments(x, rows)
    mean = [sum(float(x[row, k]) for row in rows) / 35 for k in range(3)]
    square = [(float(x[row, k]) - mean[k]) ** 2 for row in rows for k in range(3)]
    deviation = math.sqrt(sum(square) / len(square))
    found = module(x[:4])
    for row in range(4):
        for channel in range(CHANNELS):
            weight, bias = module.linear.weight[channel], float(module.linear.bias[channel])
            total = sum(
                float(weight[k]) * (float(x[row, k]) - mean[k]) / deviation for k in range(3)
            )
            assert float(found[row, channel]) == pytest.approx(2 * (total + bias), abs=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("width", [20, 384])
def test_TokenEmbedding_features_start_as_long_as_said(width: int) -> None:
    """In the mean feature_scale √(F C / (F + C)) times as long as a token."""
    torch.manual_seed(0)
    x = torch.randn(500, width)
    features = NodeFeatures(width, {"word": x})
    space = TokenSpace(("word",), (500,))
    embedding = TokenEmbedding(space, 100, features=features, feature_scale=0.3).eval()
    embedding.set_moments(x, torch.arange(500))
    token = float((embedding.weight[2:] * embedding.scale).norm(dim=1).mean())
    expected = 0.3 * token * (width * 100 / (width + 100)) ** 0.5
    for module in (embedding.document, *embedding.inputs):
        assert float(module(x).norm(dim=1).mean()) == pytest.approx(expected, rel=0.05)


def test_FeatureInput_equal_features_stay_finite() -> None:
    """A deviation of zero divides nothing; no rows leave the moments at zero and one."""
    module = FeatureInput(2, CHANNELS, scale=1.0, dropout=0.0)
    module.set_moments(torch.full((5, 2), 3.0))
    assert torch.equal(module(torch.full((1, 2), 3.0))[0], module.linear.bias)
    module.set_moments(torch.zeros(0, 2))
    assert module.mean.tolist() == [0, 0]


@torch.no_grad()
def test_TokenEmbedding_document_token_is_its_features() -> None:
    """A token before the others, whose vector comes from x alone, also for new documents."""
    embedding = featured()
    x = torch.randn(2, 3).half()
    batch = embedding.prepare(two_documents(x))
    assert batch.ptr.tolist() == [0, 4, 6]
    assert batch.field.tolist() == [SPACE.document_field, 0, 0, 2, SPACE.document_field, 0]
    assert embedding.num_fields == 4
    vectors = embedding(batch)
    assert torch.equal(vectors[[0, 4]], embedding.document(x))
    others = embedding._embed(batch.token_id)
    assert torch.equal(vectors[[1, 2, 3, 5]], others[[1, 2, 3, 5]])
    rest = batch.select_tokens(torch.arange(6) > 0)  # the first document without its token
    assert torch.equal(embedding(rest), vectors[1:])


@torch.no_grad()
def test_TokenEmbedding_features_of_nodes_are_added_by_token() -> None:
    """Learned vector plus mapped row of a kept node; [UNK], and types without rows, as before."""
    embedding = featured(width=0)
    batch = two_documents(None)
    assert embedding.prepare(batch) is batch
    (venue,) = embedding.inputs
    rows = venue(embedding._rows[0])
    expected = embedding.weight[batch.token_id] * embedding.scale
    expected[:2] += rows[[0, 2]]
    torch.testing.assert_close(embedding(batch), expected)
    mean = embedding.mean(batch.token_id, batch.field, batch.ptr)
    parts = embedding(batch).split([3, 1])
    torch.testing.assert_close(mean, torch.stack([part.mean(dim=0) for part in parts]))


def test_TokenEmbedding_features_pass_gradients_to_their_maps() -> None:
    """And are no weights themselves; their moments are saved."""
    embedding = featured()
    embedding(embedding.prepare(two_documents(torch.randn(2, 3)))).square().sum().backward()
    for module in (embedding.document, *embedding.inputs):
        assert bool(module.linear.weight.grad.any())
    saved = {name.rpartition(".")[2] for name in embedding.state_dict()}
    assert saved == {"weight", "mean", "deviation", "bias"}
    before = embedding.document.linear.weight.detach().clone()
    embedding.reset_parameters()
    assert not torch.equal(embedding.document.linear.weight, before)
    assert embedding.double()._rows[0].dtype == torch.float64  # moved with the weights


@pytest.mark.parametrize(("x", "found"), [(None, "none"), (torch.zeros(2, 4), "4")])
def test_TokenEmbedding_refuses_other_features(x: Tensor | None, found: str) -> None:
    """A batch without them, or of another width."""
    with pytest.raises(GraphError) as caught:
        featured().prepare(two_documents(x))
    assert str(caught.value) == (
        f"Documents must have the 3 features that the model was made for, found {found}; give x "
        f"with the batch."
    )


def test_TokenEmbedding_tokens_of_features_are_never_hidden() -> None:
    """They have no [UNK]."""
    embedding = featured()
    embedding.token_dropout = 0.99
    batch = embedding.prepare(two_documents(torch.randn(2, 3)))
    for _ in range(20):
        shown = embedding._drop_tokens(batch.token_id, batch.field)
        assert shown[[0, 4]].tolist() == [0, 0]
