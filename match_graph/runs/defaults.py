"""Defaults that depend on the size of the corpus."""

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import ConfigError
from match_graph.nn.label_tree import level_sizes
from match_graph.runs.settings import complete_settings
from match_graph.training.device import choose_precision
from match_graph.training.fitting import is_baseline
from match_graph.typing import CONTAINS, DOCUMENT, MASKS

#: Weights of a wide term at most: 256 MiB, and as much again for their average.
MAX_WIDE = 2**26


def resolve_config(config: Config, dataset: CorpusDataset) -> Config:
    """Fills in the settings that depend on the corpus, so that the run's file is complete.

    Args:
        config: Configuration; ``pretrain.samples``, ``model.head``, ``model.wide``,
            ``train.epochs``, ``train.batch_size`` and ``train.valid_documents`` may be None,
            ``train.precision`` "auto".
        dataset: Built data set.

    With a label tree there is no wide term by default, and no hypernymy in the output space.

    Raises:
        ConfigError: An encoder, a head or one of their settings is unknown; hypernymy in the output
            space is asked for with a label tree.
    """
    data = dataset[0]
    num_train = int(data[DOCUMENT][MASKS["train"]].sum())
    num_words = data[CONTAINS].edge_index.size(1) * num_train // int(data[DOCUMENT].num_nodes)
    pretrain, model, train = config.pretrain, config.model, config.train
    model = complete_settings(model)
    is_tree = not is_baseline(model) and len(level_sizes(dataset.num_labels, model)) > 1
    if is_tree:
        if train.lambda_output and "lambda_output" in train.model_fields_set:
            raise ConfigError(
                f"A label tree learns probabilities given the parent, so that hypernymy in the "
                f"output space has no meaning there, but train.lambda_output is "
                f"{train.lambda_output:g}; leave it out, or raise flat_labels of model.head_config "
                f"above {dataset.num_labels}."
            )
        train = train.model_copy(update={"lambda_output": 0.0})
    train = train.model_copy(update={"precision": choose_precision(train)})
    if pretrain.samples is None:
        pretrain = pretrain.model_copy(update={"samples": derive_samples(num_words)})
    if model.wide is None:
        space = dataset.token_space(config.data.min_count, config.data.min_word_count)
        wide = not is_tree and space.num_tokens * dataset.num_labels <= MAX_WIDE
        model = model.model_copy(update={"wide": wide})
    if train.batch_size is None:
        train = train.model_copy(update={"batch_size": derive_batch_size(num_train)})
    if train.epochs is None:
        train = train.model_copy(update={"epochs": derive_epochs(num_train, bool(model.wide))})
    if train.valid_documents is None:
        num_valid = int(data[DOCUMENT][MASKS["valid"]].sum())
        train = train.model_copy(update={"valid_documents": derive_valid_documents(num_valid)})
    return config.model_copy(update={"pretrain": pretrain, "model": model, "train": train})


def derive_samples(num_words: int) -> int:
    """Pre-training positives: 25 per word of the training texts, within 1 to 400 million."""
    return min(max(25 * num_words, 1_000_000), 400_000_000)


def derive_batch_size(num_train: int) -> int:
    """Batch size: the paper's 256, halved to at least 16 until an epoch has 400 steps."""
    size = 16
    while size < 256 and num_train // (2 * size) >= 400:
        size *= 2
    return size


def derive_epochs(num_train: int, wide: bool) -> int:
    """Epochs: with a wide term 3 from 15,000 documents on, without it 6; more for fewer documents.

    The learning rate falls to 0 over them, so that too many cost quality as well as time: a
    corpus of thousands of documents is overfitted after a few, with a wide term sooner. For 1,000
    documents they are 9 and 18; without a wide term at least 5.

    Args:
        num_train: Number of training documents.
        wide: Whether the model has a wide term.
    """
    if wide:
        return round(min(20.0, max(3.0, 3.0 * (15_000 / num_train) ** 0.4)))
    return round(min(40.0, max(5.0, 6.0 * (15_000 / num_train) ** 0.4)))


def derive_valid_documents(num_valid: int) -> int:
    """Validation documents per epoch: all up to 10,000, which gives a mean to about .003.

    After the training the whole split is evaluated in any case.
    """
    return max(1, min(num_valid, 10_000))
