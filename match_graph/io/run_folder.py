"""Names of the files in a run folder, with a description of each."""

from match_graph.io.manifest import MANIFEST

CONFIG, METRICS, HISTORY, RECORD = "config.yaml", "metrics.json", "history.csv", "record.json"
MODEL, VECTORS = "model.safetensors", "vectors.safetensors"
#: The folder of the linear classifier that is blended with a network, and the share of each.
BLEND, SHARES = "blend", "blend/shares.json"
#: Scale and shift of each label's logits.
CALIBRATION = "calibration.safetensors"
THRESHOLDS, PER_DOCUMENT = "thresholds.parquet", "per_document.parquet"
#: The bins of reliability diagrams, and the page of `match-graph report`.
RELIABILITY, REPORT = "reliability.csv", "report.html"
#: The folder of a fitted baseline, instead of MODEL.
FITTED = "baseline"
#: The folder of what an encoder keeps besides its weights.
ENCODER_FILES = "encoder"
#: The folder of a label tree's upper levels, each with the files of a training.
LEVELS = "levels"
#: The folder of token and label names, its file on tokenization, and the names of documents.
TOKENS, TEXT, DOCUMENT_NAMES = "tokens", "text.json", "tokens/document.parquet"
#: The folder of node features, a file for each node type that has some.
FEATURES = "features"
#: The folder of the known graph, and its edges in it.
GRAPH, EDGES = "graph", "edges.safetensors"
#: The folder of checkpoints; those of training and of pre-training.
CHECKPOINT = "checkpoint"
STATE, PRETRAIN_STATE = f"{CHECKPOINT}/state.pt", f"{CHECKPOINT}/pretrain.pt"
#: Vectors as word2vec text, and how well held-out pairs are ranked.
TEXT_VECTORS, QUALITY = "vectors.txt", "pretrain.json"
#: The folders of loggers, and the run's id at their services.
EVENTS, METRICS_CSV, WANDB, MLFLOW, TRACKER = "events", "csv", "wandb", "mlflow", "tracker.json"
#: The folder of the profiler's trace and table.
PROFILE = "profile"
#: File lock of the process that changes the folder.
LOCK = ".lock"

#: Description of what lies at the top of a run folder, for listings; empty: it is not listed.
CONTENT = {
    METRICS: "measures on valid and test",
    HISTORY: "losses and validation measures per epoch",
    RECORD: "seed, seconds, memory, versions, checksum of the data",
    CONFIG: "every setting",
    MODEL: "weights",
    FITTED: "what the baseline learned",
    ENCODER_FILES: "what the encoder keeps besides its weights",
    VECTORS: "pre-trained vectors",
    BLEND: "the linear classifier beside the network, and the share of each",
    CALIBRATION: "scale and shift of each label's scores",
    THRESHOLDS: "the least probability of each label",
    RELIABILITY: "how often labels of a probability are gold",
    PER_DOCUMENT: "P@k and NDCG@k of every document",
    REPORT: "a page of all this, by match-graph report",
    EVENTS: "the same as history.csv for TensorBoard",
    METRICS_CSV: "the same and the final measures, as one table",
    WANDB: "the same for wandb sync",
    MLFLOW: "the same for mlflow ui --backend-store-uri",
    TRACKER: "",
    PROFILE: "time of some training steps by operation",
    LEVELS: "the upper levels of the label tree",
    TOKENS: "names of tokens and labels",
    FEATURES: "features of nodes",
    GRAPH: "documents that new ones can reach, with their edges",
    CHECKPOINT: "",
    TEXT_VECTORS: "",
    QUALITY: "",
}
#: What the manifest lists: files that stages read again. Reports and logs are not listed, so that
#: they may be written while another process trains.
LISTED = CONTENT.keys() - {
    *(REPORT, TEXT_VECTORS, QUALITY, PROFILE),
    *(EVENTS, METRICS_CSV, WANDB, MLFLOW, TRACKER),
}
#: Everything that match-graph writes at the top of a run folder.
RUN_FILES = {*CONTENT, MANIFEST, LOCK}
