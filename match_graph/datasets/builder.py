"""Documents one by one -> `Corpus`: what every reader of files calls."""

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from match_graph.datasets.corpus import Corpus, check_field_names, hierarchy_frame
from match_graph.errors import CorpusError, list_faults

#: Faults after which a reader may stop: a file of another kind has one in every line.
MAX_FAULTS = 100


class Interner:
    """Numbers strings by first appearance; packs them per document without an object per token."""

    def __init__(self) -> None:
        self.code: dict[str, int] = {}
        self._codes = array("i")
        self._lengths = array("i")

    def append(self, values: Sequence[str]) -> None:
        """Adds the list of the next document."""
        code = self.code
        for value in values:
            if value not in code:
                code[value] = len(code)
        self._codes.extend([code[value] for value in values])
        self._lengths.append(len(values))

    def instances(self) -> pd.DataFrame:
        """One row per distinct string, column ``id``."""
        return pd.DataFrame({"id": pd.Series(list(self.code), dtype=str)})

    def edges(self) -> pd.DataFrame:
        """Columns ``document`` and ``instance``, int32."""
        lengths = np.frombuffer(self._lengths, np.int32) if self._lengths else np.empty(0, int)
        codes = np.frombuffer(self._codes, np.int32) if self._codes else np.empty(0, np.int32)
        document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return pd.DataFrame({"document": document, "instance": codes})


class CorpusBuilder:
    """Collects documents one by one, and every fault with its place, then makes the `Corpus`.

    Args:
        name: Of the corpus.
        fields: The metadata fields to keep.
        summary: What the source must hold, for the message that lists the faults.
    """

    def __init__(self, name: str, fields: Sequence[str], summary: str) -> None:
        self.name, self.fields, self.summary = name, list(fields), summary
        self.faults: list[str] = check_field_names(fields)
        self._documents: dict[str, list[str]] = {"id": [], "split": [], "text": []}
        self._place: dict[str, str] = {}
        self._types = {name: Interner() for name in (*fields, "word", "label")}
        self._names: dict[str, dict[int, str]] = {}
        self._depths: dict[int, int] = {}
        self._num_repeated = 0

    def __contains__(self, document: str) -> bool:
        return document in self._place

    @property
    def is_hopeless(self) -> bool:
        """Whether there are so many faults that the rest need not be read."""
        return len(self.faults) >= MAX_FAULTS

    def add(
        self,
        document: str,
        split: str,
        text: str,
        words: Sequence[str],
        metadata: dict[str, list[str]],
        labels: Sequence[str],
        place: str,
    ) -> None:
        """Adds one document; repeated values within a field count once, as metadata are a set."""
        if document in self._place:
            self.faults.append(
                f"{place}: the document '{document}' was given before ({self._place[document]}); "
                f"every document needs an id of its own."
            )
            return
        self._place[document] = place
        for column, value in (("id", document), ("split", split), ("text", text)):
            self._documents[column].append(value)
        self._types["word"].append(words)
        for name, values in {**metadata, "label": list(labels)}.items():
            unique = list(dict.fromkeys(values))
            self._num_repeated += len(values) - len(unique)
            self._types[name].append(unique)

    def set_name(self, node_type: str, instance: str, name: str) -> None:
        """Names an instance of a type for people; one that no document has is passed over."""
        code = self._types[node_type].code.get(instance)
        if code is not None:
            self._names.setdefault(node_type, {})[code] = name

    def set_depth(self, label: str, depth: int) -> None:
        """Notes the depth that a source gives a label; likewise."""
        code = self._types["label"].code.get(label)
        if code is not None:
            self._depths[code] = depth

    def fail(self, fault: str) -> None:
        """Notes a fault; `build` raises them all."""
        self.faults.append(fault)

    def build(
        self,
        hierarchy: Sequence[tuple[str, str, str]],
        label_names: Mapping[str, str] | None = None,
    ) -> Corpus:
        """The corpus.

        Args:
            hierarchy: (child, parent, origin) triples.
            label_names: Names of labels by id, where known.

        Raises:
            CorpusError: With all faults noted so far, or with those of the tables.
        """
        if self.faults:
            raise CorpusError(list_faults(self.summary, self.faults))
        instances = {name: interner.instances() for name, interner in self._types.items()}
        for label, name in (label_names or {}).items():
            self.set_name("label", label, name)
        for node_type, names in self._names.items():
            values = list(self._types[node_type].code)
            for code, name in names.items():
                values[code] = name
            instances[node_type]["name"] = pd.Series(values, dtype=str)
        if self._depths:
            depths = [self._depths.get(code) for code in range(len(instances["label"]))]
            instances["label"]["depth"] = pd.array(depths, dtype="Int16")
        return Corpus(
            name=self.name,
            documents=pd.DataFrame(self._documents, dtype=str),
            instances=instances,
            edges={name: interner.edges() for name, interner in self._types.items()},
            hierarchy=hierarchy_frame(hierarchy),
            notes={"repeated_values_dropped": self._num_repeated},
        )
