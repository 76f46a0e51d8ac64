"""
In a pipeline of scikit-learn
=============================

``MatchClassifier`` is an estimator: it goes into pipelines, cross-validation and searches of
scikit-learn, and takes any encoder or baseline.
"""

# %%
# Rows, and documents made of them
# --------------------------------
# A document is a dict: text, metadata fields and an id. Here the rows come from a table, and a step
# of the pipeline makes documents of them.

import numpy as np
from sklearn.metrics import classification_report
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer

import match_graph as mg

PARENTS = {"bread": "baking", "cakes": "baking", "roses": "garden", "beans": "garden"}
WORDS = {"bread": "flour", "cakes": "sugar", "roses": "petals", "beans": "pods"}
draw = np.random.default_rng(0)
topics = draw.choice([*WORDS], 200).tolist()
mixed = [one if draw.random() < 0.6 else draw.choice([*WORDS]) for one in topics * 2]
rows = [(f"on {WORDS[a]}", f"writer of {b}") for a, b in zip(mixed[:200], mixed[200:], strict=True)]
labels = [[one, PARENTS[one]] for one in topics]


def make_documents(rows):
    return [{"text": text, "author": author} for text, author in rows]


# %%
# Labels
# ------
# Lists of labels will do for ``fit``. Tools that take labels apart, such as cross-validation, want
# the matrix of ``MultiLabelBinarizer``; ``classes`` names its columns, so that the hierarchy can
# speak of them.

binarizer = MultiLabelBinarizer()
matrix = binarizer.fit_transform(labels)
classifier = mg.MatchClassifier(
    "tfidf_linear",
    fields=["author"],
    hierarchy=PARENTS,
    classes=binarizer.classes_,
    random_state=0,
)
pipeline = make_pipeline(FunctionTransformer(make_documents), classifier)

# %%
# Cross-validation
# ----------------
# The score is NDCG@5; ``predict`` gives the labels at the thresholds that each fit chose.

print("NDCG@5", cross_val_score(pipeline, rows, matrix, cv=3).round(3))
found = cross_val_predict(pipeline, rows, matrix, cv=3)
print(classification_report(matrix, found, target_names=binarizer.classes_, zero_division=0))

# %%
# A search of settings
# --------------------
# Every setting of ``match-graph settings`` is a parameter by its dotted key, but for those of
# reading a source (``data.options``, ``data.fields``).

grid = {"matchclassifier__settings__data.drop_fields": [[], ["author"]]}
search = GridSearchCV(pipeline, grid, cv=2).fit(rows, matrix)
print(search.best_params_, round(search.best_score_, 3))

# %%
# The best pipeline labels new rows; its last step holds the run, whose temporary folder goes when
# the pipeline does.

best = search.best_estimator_
print(binarizer.inverse_transform(best.predict([("on petals", "writer of roses")])))
print(best[-1].classifier_.predict(make_documents([("on pods", "")]), top_k=2)[0])
del best, search
