"""Settings shared by presets, from published code where papers are silent."""

from collections.abc import Mapping
from typing import Any

#: MAG-CS. The releases average their loss over labels, which are summed here: what stands beside
#: the loss, or bounds its gradient, is as many times as large.
_NUM_LABELS = 15_809

#: MATCH (https://arxiv.org/abs/2102.07349, section 4.1) and, where it is silent, its release
#: (https://github.com/yuzhimanhua/MATCH), which trains as CorNet does. Every setting that moves a
#: result is named, defaults too, so that none of ours can slip in: no wide term, no calibration,
#: no type vectors, no start of biases at log-odds, every token of the training texts.
RELEASE: Mapping[str, Any] = {
    "data.min_count": 1,
    "data.min_word_count": 1,
    "data.max_metadata": 500,
    "data.max_words": 500,
    "data.transductive": False,
    "pretrain.channels": 100,
    "pretrain.negatives": 5,
    "pretrain.shared_negatives": False,
    "pretrain.chunk_size": 1024,
    "pretrain.window": 5,
    "pretrain.margin": 0.3,
    "pretrain.learning_rate": 0.04,
    "pretrain.filter_positives": False,
    "pretrain.label_parent": False,
    "pretrain.cited_documents": False,
    "model.coherent": False,
    "model.channels": 100,
    "model.init": "spherical",
    "model.wide": False,
    "model.head_from_labels": False,
    "model.label_prior": False,
    "model.scale_embedding": False,
    "model.embedding_dropout": 0.1,
    "model.token_dropout": 0.0,
    "train.epochs": 15,
    "train.batch_size": 256,
    "train.optimizer": "adam",
    "train.learning_rate": 0.001,
    "train.weight_decay": 0.0,
    "train.warmup": 0.0,
    "train.schedule": "constant",
    "train.clip_norm": 5.0 * _NUM_LABELS,
    "train.average": 0.5,
    "train.average_after": 4,
    "train.calibrate": False,
    "train.patience": 15,
    "train.lambda_parameter": 1e-8 * _NUM_LABELS,
    "train.lambda_output": 1e-8 * _NUM_LABELS * 256,
    "train.edge_weight": "none",
    "train.precision": "32-true",
}

#: How MATCH compared networks of words: delta = 100, Adam, batches of 256, neither metadata nor
#: hierarchy, everything else as in CorNet (https://github.com/XunGuangxu/CorNet, AmazonCat-13K).
#: It started words from GloVe; without that file they start from vectors pre-trained on the
#: training texts and their labels, never on metadata. ``--word-vectors FILE`` takes GloVe.
COMPARED: Mapping[str, Any] = {
    **RELEASE,
    "model.init": "spherical_text",
    "model.embedding_dropout": 0.0,
    "train.epochs": 10,
    "train.average_after": 2,
    "train.patience": 10,
    "train.lambda_parameter": 0.0,
    "train.lambda_output": 0.0,
}

#: The networks that MATCH took from https://github.com/Tencent/NeuralNLP-NeuralClassifier.
NEURAL_CLASSIFIER: Mapping[str, Any] = {
    **COMPARED,
    "data.min_word_count": 2,
    "data.max_words": 256,
    "train.epochs": 5,
    "train.learning_rate": 0.008,
    "train.clip_norm": 100.0 * _NUM_LABELS,
    "train.average": 0.0,
    "train.average_after": 0,
    "train.patience": 5,
}
